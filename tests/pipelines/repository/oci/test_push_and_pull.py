"""A release comes back from a registry as it was pushed: nothing that was changed, cut off or forged arrives."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.repository.oci.registries import DebianRegistry, SmallRegistry

from paritygate.errors import ArtifactIntegrityError, InputFileError, RepositoryError, StorageError, UsageError
from paritygate.files import digest_of_bytes, json_bytes
from paritygate.pipelines.release.oci import pull as pulling
from paritygate.pipelines.release.oci import registry as registry_module
from paritygate.pipelines.release.oci.pull import Pulled, pull
from paritygate.pipelines.release.oci.push import STATUS, Pushed, push
from paritygate.pipelines.release.oci.reference import parse_reference
from paritygate.pipelines.release.repository.aliases import Note
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate, VariantCandidate
from paritygate.pipelines.release.repository.collection import collect
from paritygate.pipelines.release.repository.inspect import list_models, show, verify_release
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.release import promote
from paritygate.pipelines.release.repository.signature import SignatureStatus
from paritygate.pipelines.release.signing.keys import read_signing_key, read_verifying_key
from paritygate.pipelines.release.stores.disk import digests_below
from paritygate.roots import Root, root_of

Make = Callable[..., ReleaseCandidate]
Any_ = SmallRegistry | DebianRegistry
_MODEL = "klue-sts"


def _push(root: Root, registry: Any_, tag: str = "", which: str = "1", model: str = _MODEL) -> Pushed:
    return push(root, model, which, parse_reference(f"{registry.host}/team/scores{tag}"), lambda *_: None)


def _pull(root: Root, reference: str) -> Pulled:
    return pull(root, parse_reference(reference), lambda *_: None, who="me", host="here")


def _is_empty(root: Path) -> bool:
    """Return whether a repository holds no release, and nothing half done."""
    return not [path for path in root.rglob("*") if path.is_file()] and not [*root.glob("store/*/*")]


def test_a_release_comes_back_byte_for_byte_with_what_proves_it(
    repository: Path, registry: Any_, tmp_path: Path
) -> None:
    pushed = _push(repository, registry)
    pulled = _pull(tmp_path / "other", f"{registry.host}/team/scores:1")

    assert digests_below(tmp_path / "other/store") == digests_below(repository / "store")
    assert (pulled.model, pulled.version, pulled.is_new) == (_MODEL, 1, True)
    assert (pushed.reference, pushed.tag) == (pulled.reference, "1")
    verification = verify_release(tmp_path / "other", _MODEL, 1)
    assert (verification.is_intact, verification.files_checked) == (True, pulled.files)
    (record,) = read_records(tmp_path / "other", _MODEL)
    assert (record.who, record.reason) == ("me", f"pulled from {pulled.reference}")
    manifest = json.loads(registry.manifests["1"])
    assert manifest["annotations"][STATUS] == "validated"
    assert {layer["annotations"]["org.opencontainers.image.title"] for layer in manifest["layers"]} == {
        *digests_below(Path(str(pulled.folder)))
    }
    # Neither registry lists what refers to it, so the index under the tag does.
    assert not pushed.is_listed
    index = json.loads(registry.manifests[pushed.reference.partition("@")[2].replace(":", "-")])
    assert {each["artifactType"]: each["digest"] for each in index["manifests"]} == pushed.referrers
    assert {kind.split(".")[-1] for kind in pushed.referrers} == {"v1+json", "cyclonedx+json"}
    for each in index["manifests"]:
        proof = json.loads(registry.blob(each["digest"]))
        assert proof["subject"]["digest"] == digest_of_bytes(registry.manifests["1"])
        assert digest_of_bytes(registry.blob(proof["layers"][0]["digest"])) == proof["layers"][0]["digest"]
    assert not _push(repository, registry).is_new
    assert not _pull(tmp_path / "other", f"{registry.host}/team/scores:1").is_new
    assert len(read_records(tmp_path / "other", _MODEL)) == 1


def test_a_signature_refers_to_its_release_and_comes_back(
    small: SmallRegistry, tmp_path: Path, make_candidate: Make
) -> None:
    pytest.importorskip("securesystemslib", reason="securesystemslib is not installed")
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
    (tmp_path / "key.pem").write_bytes(private)
    public = key.public_key().public_bytes(to.Encoding.PEM, to.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pub").write_bytes(public)
    promote(tmp_path / "repository", make_candidate(signer=read_signing_key(tmp_path / "key.pem")))

    pushed = _push(tmp_path / "repository", small)
    _pull(tmp_path / "other", f"{small.host}/team/scores:1")

    assert {kind.split(".")[1] for kind in pushed.referrers} == {"paritygate", "dsse", "dev", "cyclonedx+json"}
    found = verify_release(tmp_path / "other", _MODEL, 1, key=read_verifying_key(tmp_path / "key.pub"))
    assert found.signature is not None
    assert found.signature.status is SignatureStatus.VALID


def test_a_release_of_an_earlier_version_comes_back_too(small: SmallRegistry, tmp_path: Path) -> None:
    old = Path(__file__).parents[1] / "of_0_2_0/repository"

    for which in ("1", "2", "3"):
        _push(old, small, which=which, model="tiny")
        assert _pull(tmp_path / "other", f"{small.host}/team/scores:{which}").version == int(which)
        assert verify_release(tmp_path / "other", "tiny", which).is_intact


def test_a_registry_that_lists_referrers_gets_no_index(repository: Path, small: SmallRegistry) -> None:
    small.lists = True

    pushed = _push(repository, small)

    assert pushed.is_listed
    assert not [tag for tag in small.manifests if tag.startswith("sha256-")]
    assert {*pushed.referrers.values()} < {*small.manifests}


def test_an_index_keeps_what_others_added(repository: Path, small: SmallRegistry) -> None:
    tag = f"sha256-{_push(repository, small).reference.partition('@sha256:')[2]}"
    index = json.loads(small.manifests[tag])
    other = {"mediaType": "x", "digest": "sha256:0", "size": 1}
    small.manifests[tag] = json_bytes({**index, "manifests": [other, *index["manifests"]]})

    _push(repository, small)

    assert json.loads(small.manifests[tag])["manifests"] == [other, *index["manifests"]]


def _source(variant: VariantCandidate) -> dict[str, Any]:
    return {"variants": (replace(variant, evidence=None, is_source=True),), "reason": "fallback: source"}


def _emulated(variant: VariantCandidate) -> dict[str, Any]:
    assert variant.evidence is not None
    evidence = replace(variant.evidence, kind="emulated")
    return {"variants": (replace(variant, evidence=evidence),), "accepted": {variant.name: "emulated"}}


@pytest.mark.parametrize("fields", [_source, _emulated, lambda _: {"despite": "it is not served yet"}])
def test_only_a_pass_is_called_validated(
    small: SmallRegistry,
    tmp_path: Path,
    make_candidate: Make,
    make_variant: Callable[..., VariantCandidate],
    fields: Callable[[VariantCandidate], dict[str, Any]],
) -> None:
    promote(tmp_path / "repository", make_candidate(**fields(make_variant())))

    assert not _push(tmp_path / "repository", small).is_validated
    assert STATUS not in json.loads(small.manifests["1"])["annotations"]
    assert _pull(tmp_path / "other", f"{small.host}/team/scores:1").is_new


@pytest.mark.parametrize("name", ["config", "manifest.json", "onnx-fp32/model.onnx", "evidence.json"])
@pytest.mark.parametrize("change", ["changed", "cut", "longer", "removed"])
def test_a_blob_that_is_not_what_was_pushed_is_named_and_nothing_is_left(
    repository: Path, registry: Any_, tmp_path: Path, name: str, change: str
) -> None:
    _push(repository, registry)
    config = {"config": json.loads(registry.manifests["1"])["config"]["digest"]}
    digest = {**config, **digests_below(repository / f"store/{_MODEL}/1")}[name]
    content = registry.blob(digest)
    changed = {"changed": content[:-1] + b"!", "cut": content[:-1], "longer": content + b"!"}.get(change)
    if change == "cut" and isinstance(registry, SmallRegistry):
        registry.cut.add(digest)
    else:
        registry.change(digest, changed)

    problem = "is missing" if change == "removed" else "is corrupt"
    with pytest.raises(ArtifactIntegrityError, match=f"^{re.escape(name)} in .* {problem}"):
        _pull(tmp_path / "other", f"{registry.host}/team/scores:1")

    assert _is_empty(tmp_path / "other")


def _forge(registry: SmallRegistry, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Change the manifest of the artifact and that of its release, and make them match again."""
    artifact = json.loads(registry.manifests["1"])
    layer = next(
        item for item in artifact["layers"] if item["annotations"]["org.cncf.model.filepath"] == "manifest.json"
    )
    manifest = json.loads(registry.blobs[layer["digest"]])
    change(artifact, manifest)
    content = json_bytes(manifest)
    layer.update(digest=digest_of_bytes(content), size=len(content))
    registry.blobs[layer["digest"]] = content
    registry.manifests["1"] = json_bytes(artifact)


def _rename(artifact: dict[str, Any], name: str) -> None:
    artifact["layers"][0]["annotations"]["org.cncf.model.filepath"] = name


@pytest.mark.parametrize(
    "change",
    [
        lambda artifact, _: _rename(artifact, "../../outside"),
        lambda artifact, _: _rename(artifact, "/outside"),
        lambda artifact, _: _rename(artifact, "onnx-fp32"),
        lambda artifact, _: _rename(artifact, "MANIFEST.json"),
        lambda artifact, _: artifact["layers"].append(artifact["layers"][0]),
        lambda artifact, _: artifact["layers"].pop(0),
        lambda artifact, _: artifact["layers"][0].update(digest="sha512:0"),
        lambda artifact, _: artifact.update(layers=None),
        lambda artifact, _: artifact.update(artifactType="application/vnd.other"),
        lambda _, manifest: manifest.update(model="../outside"),
        lambda _, manifest: manifest.update(version=0),
        lambda _, manifest: manifest.update(version="1e400"),
        lambda _, manifest: manifest.update(identity="sha256:" + "0" * 64),
        lambda _, manifest: manifest["variants"][0].update(digest="sha256:" + "0" * 64),
        lambda _, manifest: manifest["variants"][0]["evidence"].update(verdict="fail"),
        lambda _, manifest: manifest["variants"][0].update(evidence=None),
        lambda _, manifest: manifest["variants"][0].update(name="../outside"),
        lambda _, manifest: manifest["files"].pop("evidence.json"),
        lambda _, manifest: manifest.pop("files"),
        lambda _, manifest: manifest.update(variants=[]),
    ],
)
def test_a_forged_manifest_is_refused_and_nothing_is_left(
    repository: Path, small: SmallRegistry, tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> None:
    _push(repository, small)
    _forge(small, change)

    with pytest.raises(ArtifactIntegrityError):
        _pull(tmp_path / "target/other", f"{small.host}/team/scores:1")

    assert _is_empty(tmp_path / "target")


def test_a_digest_in_the_reference_counts(repository: Path, small: SmallRegistry, tmp_path: Path) -> None:
    digest = _push(repository, small).reference.partition("@")[2]
    small.manifests["1"] = b"{}"

    assert _pull(tmp_path / "other", f"{small.host}/team/scores:1@{digest}").version == 1
    small.manifests[digest] = small.manifests[digest] + b" "
    with pytest.raises(ArtifactIntegrityError, match="returned other bytes"):
        _pull(tmp_path / "third", f"{small.host}/team/scores@{digest}")


def test_a_manifest_under_a_tag_has_the_digest_that_the_registry_names(
    repository: Path, small: SmallRegistry, tmp_path: Path
) -> None:
    small.names = True
    _push(repository, small)
    assert _pull(tmp_path / "other", f"{small.host}/team/scores:1").is_new

    small.manifests["1"] += b" "
    with pytest.raises(ArtifactIntegrityError, match="returned other bytes"):
        _pull(tmp_path / "third", f"{small.host}/team/scores:1")


def test_a_number_that_another_release_has_or_had_is_refused(
    repository: Path, small: SmallRegistry, tmp_path: Path, make_candidate: Make
) -> None:
    other = tmp_path / "other"
    _push(repository, small)
    for _ in range(2):
        promote(other, make_candidate())
    before = digests_below(other)

    with pytest.raises(RepositoryError, match="another release"):
        _pull(other, f"{small.host}/team/scores:1")
    assert digests_below(other) == before
    collect(other, _MODEL, keep=1, note=Note())
    with pytest.raises(RepositoryError, match="another release"):
        _pull(other, f"{small.host}/team/scores:1")
    assert list_models(other)[0].versions == (2,)


def test_a_pull_that_was_killed_before_its_record_is_completed(
    repository: Path, small: SmallRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _push(repository, small)
    other, reference = tmp_path / "other", f"{small.host}/team/scores:1"

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("append_record", "withdraw_unrecorded"):
        monkeypatch.setattr(pulling, name, end)
    with pytest.raises(KeyboardInterrupt):
        _pull(other, reference)
    monkeypatch.undo()
    assert list_models(other) == ()

    assert _pull(other, reference).is_new
    assert verify_release(other, _MODEL, 1).is_intact
    # A later release has the next number.
    assert show(other, _MODEL).version == 1


def test_a_pull_that_cannot_record_leaves_nothing(
    repository: Path, small: SmallRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _push(repository, small)

    def fail(*_: object) -> None:
        msg = "the disk is full"
        raise StorageError(msg)

    monkeypatch.setattr(pulling, "append_record", fail)
    with pytest.raises(StorageError):
        _pull(tmp_path / "other", f"{small.host}/team/scores:1")

    assert _is_empty(tmp_path / "other")


def test_the_tag_of_a_version_stays_and_a_given_one_moves(
    repository: Path, small: SmallRegistry, tmp_path: Path, make_candidate: Make
) -> None:
    _push(repository, small)
    _push(repository, small, ":prod")
    promote(tmp_path / "other", make_candidate(despite="x"))

    before = dict(small.manifests)
    for tag in ("", ":1"):
        with pytest.raises(RepositoryError, match="another release"):
            _push(tmp_path / "other", small, tag)
    for tag in (":2", ":01"):
        with pytest.raises(UsageError, match="is a version"):
            _push(tmp_path / "other", small, tag)
    assert small.manifests == before
    assert _push(tmp_path / "other", small, ":prod").is_new
    assert small.manifests["1"] != small.manifests["prod"]


def test_a_corrupt_release_is_not_pushed(repository: Path, small: SmallRegistry) -> None:
    path = repository / f"store/{_MODEL}/1/onnx-fp32/model.onnx"
    path.chmod(0o644)
    path.write_bytes(b"other")

    with pytest.raises(ArtifactIntegrityError):
        _push(repository, small)

    assert not small.requests


def test_every_store_is_pushed_from_and_pulled_into(root: Root, small: SmallRegistry, make_candidate: Make) -> None:
    other = root_of(f"{root}-2")
    promote(root, make_candidate())
    _push(root, small)

    assert _pull(other, f"{small.host}/team/scores:1").is_new
    assert verify_release(other, _MODEL, 1).is_intact
    assert not _pull(other, f"{small.host}/team/scores:1").is_new


def test_a_pull_that_fails_takes_nothing_from_another_one(
    root: Root, small: SmallRegistry, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = root_of(f"{root}-2")
    promote(root, make_candidate())
    _push(root, small)
    reference, append = f"{small.host}/team/scores:1", pulling.append_record

    def fail(*_: object) -> None:
        raise StorageError("the disk is full", hint="free some space")

    def after_another_one(*args: object) -> object:
        monkeypatch.setattr(pulling, "append_record", fail)
        with pytest.raises(StorageError, match="the disk is full"):
            _pull(other, reference)
        return append(*args)

    monkeypatch.setattr(pulling, "append_record", after_another_one)

    assert _pull(other, reference).is_new
    assert verify_release(other, _MODEL, 1).is_intact


@pytest.mark.parametrize("reference", ["127.0.0.1:1/team/scores:1", "localhost:1/scores:1"])
def test_a_registry_that_does_not_answer_is_one_clear_error(reference: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="did not answer") as caught:
        _pull(tmp_path / "other", reference)

    assert caught.value.hint
    assert _is_empty(tmp_path)


@pytest.mark.parametrize("page", [(404, b"no"), (200, b"<html>")])
def test_a_web_server_is_no_registry(
    repository: Path, small: SmallRegistry, tmp_path: Path, page: tuple[int, bytes]
) -> None:
    small.page = page

    with pytest.raises(StorageError, match="GET /v2/"):
        _pull(tmp_path / "other", f"{small.host}/team/scores:1")
    with pytest.raises(StorageError, match="GET /v2/"):
        _push(repository, small)


def test_a_silent_server_is_named_with_the_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_SILENCE_S", 0.25)
    message = r"within 0\.25 seconds"
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(StorageError, match=message):
        _pull(tmp_path / "other", f"127.0.0.1:{server.getsockname()[1]}/team/scores:1")


def test_a_repository_that_cannot_be_made_hints_at_another(
    repository: Path, small: SmallRegistry, tmp_path: Path
) -> None:
    _push(repository, small)
    (tmp_path / "file").touch()

    with pytest.raises(StorageError) as caught:
        _pull(tmp_path / "file/other", f"{small.host}/team/scores:1")

    assert "--repository" in str(caught.value.hint)


def test_what_is_not_there_is_wrong_input(small: SmallRegistry, tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="has no"):
        _pull(tmp_path / "other", f"{small.host}/team/scores:1")
    with pytest.raises(UsageError, match="has a digest"):
        _push(tmp_path, small, f"@sha256:{'0' * 64}")
    with pytest.raises(UsageError, match="neither tag nor digest"):
        _pull(tmp_path / "other", f"{small.host}/team/scores")


def test_files_of_several_parts_come_back(
    registry: Any_, tmp_path: Path, make_candidate: Make, make_variant: Callable[..., VariantCandidate]
) -> None:
    files = {"model.onnx": bytes(range(256)) * 10000, "empty.bin": b"", "a b #%é.bin": b"x"}
    promote(tmp_path / "repository", make_candidate(variants=(make_variant(files=files),)))
    _push(tmp_path / "repository", registry)

    pulled = _pull(tmp_path / "other", f"{registry.host}/team/scores:1")

    for name, content in files.items():
        found = (tmp_path / "other" / f"store/{_MODEL}/1/onnx-fp32" / name).read_bytes()
        assert hashlib.sha256(found).digest() == hashlib.sha256(content).digest()
    assert pulled.files == len(digests_below(tmp_path / f"other/store/{_MODEL}/1"))
