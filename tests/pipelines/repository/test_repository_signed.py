"""A signed release is refused as soon as anything of it was exchanged, even with a log that was forged to match."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from paritygate.codec import to_data
from paritygate.errors import InputFileError, UsageError
from paritygate.files import digest_of_bytes, json_bytes, read_json
from paritygate.pipelines.cli.signing import signing_key
from paritygate.pipelines.process.child import environment_of_child
from paritygate.pipelines.release.repository.aliases import Note, roll_back
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate, VariantCandidate
from paritygate.pipelines.release.repository.collection import collect
from paritygate.pipelines.release.repository.commit import Commit
from paritygate.pipelines.release.repository.inspect import list_models, show, verify_release
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.release import StoredRelease, promote
from paritygate.pipelines.release.repository.rolled_back import RolledBackError
from paritygate.pipelines.release.signing.keys import (
    SigningKey,
    VerifyingKey,
    read_signing_key,
    read_verifying_key,
)
from paritygate.pipelines.release.signing.oms import signature_of
from paritygate.pipelines.release.stores.disk import digests_below
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.roots import Root

pytest.importorskip("securesystemslib", reason="securesystemslib is not installed")

Make = Callable[..., ReleaseCandidate]
_MODEL = "klue-sts"
_PASSWORD = "password-of-this-test"  # noqa: S105 - of a key that only this test has


class Keys(Struct, frozen=True, kw_only=True):
    """Hold a pair of keys, as files and as they are used."""

    private_file: Path
    public_file: Path
    private: SigningKey
    public: VerifyingKey


def _write_keys(folder: Path, kind: str, password: str = "") -> Keys:
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    key: Any = {
        "ed25519": ed25519.Ed25519PrivateKey.generate,
        "p256": lambda: ec.generate_private_key(ec.SECP256R1()),
        "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
        "k256": lambda: ec.generate_private_key(ec.SECP256K1()),
        "rsa": lambda: rsa.generate_private_key(65537, 2048),
    }[kind]()
    encryption = to.BestAvailableEncryption(password.encode()) if password else to.NoEncryption()
    private, public = folder / f"{kind}.pem", folder / f"{kind}.pub"
    private.write_bytes(key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, encryption))
    public.write_bytes(key.public_key().public_bytes(to.Encoding.PEM, to.PublicFormat.SubjectPublicKeyInfo))
    return Keys(
        private_file=private,
        public_file=public,
        private=read_signing_key(private, lambda: password or None),
        public=read_verifying_key(public),
    )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return _write_keys(tmp_path_factory.mktemp("keys"), "p256")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return _write_keys(tmp_path_factory.mktemp("keys"), "ed25519")


def _signature(root: Root, version: int, keys: Keys | None) -> dict[str, Any]:
    found = verify_release(root, _MODEL, version, key=None if keys is None else keys.public)
    data: dict[str, Any] = {**(found.to_json()["signature"] or {}), "accepted": found.is_accepted}
    return data


def test_a_signature_is_checked_alike_in_every_store(
    root: Root, make_candidate: Make, keys: Keys, others: Keys
) -> None:
    promote(root, make_candidate(signer=keys.private))
    promote(root, make_candidate(signer=others.private))
    promote(root, make_candidate())
    mine, theirs = keys.public.fingerprint, others.public.fingerprint

    found = [_signature(root, version, keys) for version in (1, 2, 3)]

    assert [(item["status"], item["accepted"]) for item in found] == [
        ("valid", True),
        ("other key", False),
        ("missing", False),
    ]
    assert [(item["signer"], item["key"]) for item in found] == [(mine, mine), (theirs, mine), (None, mine)]
    assert _signature(root, 2, others)["status"] == "valid"
    assert (_signature(root, 1, None)["status"], _signature(root, 3, None)) == ("unchecked", {"accepted": True})
    assert [show(root, _MODEL, version).manifest["signer"] for version in (1, 2, 3)] == [mine, theirs, None]
    # A copy on this machine has the signature too.
    assert {"model.sig", "parity.intoto.json"} <= digests_below(show(root, _MODEL, 1).local_folder()).keys()
    collect(root, _MODEL, keep=1, note=Note())
    assert store_of(root).size_bytes(f"store/{_MODEL}/1") == 0


def test_an_unsigned_release_after_a_signed_one_is_told(root: Root, make_candidate: Make, keys: Keys) -> None:
    found = [
        promote(root, make_candidate(signer=signer, alias=alias)).unsigned_after
        for signer, alias in (
            (None, "prod"),
            (keys.private, "prod"),
            (None, "canary"),
            (keys.private, None),
            (None, None),
            (None, "prod"),
            (None, "prod"),
        )
    ]

    # Without a version at its alias, the newest one counts.
    assert found == [None, None, 2, None, 4, 2, None]


def test_a_signature_makes_no_new_release_of_what_was_rolled_back(
    tmp_path: Path, make_candidate: Make, make_variant: Callable[..., VariantCandidate], keys: Keys
) -> None:
    same = make_candidate(variants=(make_variant(rules=f"sha256:{'1' * 64}"),))
    promote(tmp_path, make_candidate())
    promote(tmp_path, same)
    roll_back(tmp_path, _MODEL)

    with pytest.raises(RolledBackError):
        promote(tmp_path, replace(same, signer=keys.private))
    assert list_models(tmp_path)[0].versions == (1, 2)


def test_the_statement_has_verdicts_limits_and_figures_of_these_files(
    tmp_path: Path, make_candidate: Make, keys: Keys
) -> None:
    candidate = make_candidate(signer=keys.private)
    result = {"rows": 519, "outputs": {"y": {"dtype": "float32", "max_abs_diff": 2e-6}}}
    entry = {
        "variant": "onnx-fp32",
        "artifact": candidate.variants[0].digest,
        "evidence": "verified",
        "verdict": "pass",
        "result": result,
    }
    release = promote(tmp_path / "repository", replace(candidate, evidence={"variants": [entry]}))

    envelope = read_json(Path(str(release.folder)) / "parity.intoto.json")
    statement = json.loads(base64.b64decode(envelope["payload"]))

    predicate = statement["predicate"]
    assert {item["name"]: f"sha256:{item['digest']['sha256']}" for item in statement["subject"]} == {
        f"onnx-fp32/{name}": digest for name, digest in candidate.variants[0].files.items()
    }
    assert (predicate["verdict"], predicate["limits"]) == ("pass", {"onnx-fp32": {"max_abs_diff": 1e-4}})
    (figures,) = predicate["figures"]
    assert (figures["output"], figures["rows"], figures["max_abs_diff"]) == ("y", 519, 2e-6)
    assert predicate["evidence"] == digest_of_bytes((Path(str(release.folder)) / "evidence.json").read_bytes())


def _rewrite(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def _forge_log(repository: Path, version: int) -> None:
    """Write manifest and log anew, so that both fit the files that are there now."""
    folder, records = repository / f"store/{_MODEL}/{version}", read_records(repository, _MODEL)
    digests = digests_below(folder)
    files = {name: of for name, of in digests.items() if name not in {"manifest.json", "model.sig"}}
    _rewrite(folder / "manifest.json", json_bytes({**read_json(folder / "manifest.json"), "files": files}))
    before = None
    for number, record in enumerate(records, start=1):
        changed = record
        if record.version == version:
            manifest = digest_of_bytes((folder / "manifest.json").read_bytes())
            changed = replace(record, manifest=manifest, signature=digests.get("model.sig"))
        before = changed.after(before)
        _rewrite(repository / f"log/{_MODEL}/{number:06d}.json", json_bytes(to_data(before)))


def _signed_by(folder: Path, keys: Keys, fingerprint: str) -> bytes:
    """Return a signature of the files that are there, which names any key as its signer."""
    digests = {name: of for name, of in digests_below(folder).items() if name != "model.sig"}
    return signature_of(_MODEL, digests, replace(keys.private, fingerprint=fingerprint))


@pytest.mark.parametrize(
    ("plant", "status", "named"),
    [
        ("changed", "other files", ("changed", "onnx-fp32/model.onnx")),
        ("statement", "other files", ("changed", "parity.intoto.json")),
        ("removed", "other files", ("missing", "report.html")),
        ("added", "other files", ("added", "onnx-fp32/extra.bin")),
        ("stripped", "missing", None),
        ("other key", "other key", None),
        ("pretended key", "forged", ("file", "model.sig")),
        ("no signature", "forged", ("file", "model.sig")),
        ("statement by another key", "forged", ("file", "parity.intoto.json")),
        ("statement on other files", "forged", ("file", "parity.intoto.json")),
        ("another version", "other release", None),
    ],
)
def test_a_manipulation_that_the_log_was_forged_to_match_is_named(
    tmp_path: Path,
    make_candidate: Make,
    keys: Keys,
    others: Keys,
    *,
    plant: str,
    status: str,
    named: tuple[str, str] | None,
) -> None:
    repository = tmp_path / "repository"
    for signer in (keys.private, keys.private, others.private):
        promote(repository, make_candidate(signer=signer))
    folder = repository / f"store/{_MODEL}/2"
    content = {
        "changed": ("onnx-fp32/model.onnx", lambda: b"other graph"),
        "statement": ("parity.intoto.json", lambda: b"{}"),
        "added": ("onnx-fp32/extra.bin", lambda: b""),
        "other key": ("model.sig", lambda: _signed_by(folder, others, others.public.fingerprint)),
        "pretended key": ("model.sig", lambda: _signed_by(folder, others, keys.public.fingerprint)),
        "no signature": ("model.sig", lambda: b"{}"),
        "statement by another key": (
            "parity.intoto.json",
            (repository / f"store/{_MODEL}/3/parity.intoto.json").read_bytes,
        ),
        "statement on other files": ("onnx-fp32/model.onnx", lambda: b"other graph"),
    }.get(plant)
    if content is not None:
        _rewrite(folder / content[0], content[1]())
    elif plant == "removed":
        (folder / "report.html").unlink()
    elif plant == "stripped":
        (folder / "model.sig").unlink()
    else:
        shutil.rmtree(folder)
        shutil.copytree(repository / f"store/{_MODEL}/1", folder)
    if plant == "another version":
        records = read_records(repository, _MODEL)
        forged = replace(records[1], manifest=records[0].manifest, signature=records[0].signature).after(records[0])
        last = records[2].after(forged)
        for number, record in enumerate((forged, last), start=2):
            _rewrite(repository / f"log/{_MODEL}/{number:06d}.json", json_bytes(to_data(record)))
    else:
        _forge_log(repository, 2)
    if plant.startswith("statement "):
        # The holder of the key signed it with a tool that did not look at the statement.
        _rewrite(folder / "model.sig", _signed_by(folder, keys, keys.public.fingerprint))
        _forge_log(repository, 2)

    found = verify_release(repository, _MODEL, 2, key=keys.public)

    assert found.is_intact
    assert not found.is_accepted
    assert found.signature is not None
    data = found.signature.to_json()
    assert data["status"] == status
    if named is not None:
        assert named[1] in (data[named[0]] if named[0] != "file" else [data["file"]])
    assert _signature(repository, 1, keys)["status"] == "valid"


@pytest.mark.parametrize("name", ["model.sig", "parity.intoto.json"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_signature_file_that_was_changed_or_removed_is_named_without_a_key(
    tmp_path: Path, make_candidate: Make, keys: Keys, name: str, *, is_there: bool
) -> None:
    repository = tmp_path / "repository"
    folder = Path(str(promote(repository, make_candidate(signer=keys.private)).folder))
    (folder / name).unlink()
    if is_there:
        (folder / name).write_bytes(b"{}")

    found = verify_release(repository, _MODEL, 1, key=None)

    assert not found.is_accepted
    assert (found.difference.changed if is_there else found.difference.missing) == (name,)


def test_a_release_is_signed_before_the_log_shows_it(root: Root, make_candidate: Make, keys: Keys) -> None:
    seen: list[bytes] = []

    def stop(release: StoredRelease) -> None:
        seen.extend(store_of(release.folder).read(["model.sig", "parity.intoto.json"]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        promote(root, make_candidate(signer=keys.private), Commit(prepare=stop))

    assert len(seen) == 2
    assert read_records(root, _MODEL) == ()


def test_the_same_release_is_made_again_only_for_another_signature(
    tmp_path: Path,
    make_candidate: Make,
    make_variant: Callable[..., VariantCandidate],
    keys: Keys,
    others: Keys,
) -> None:
    candidate = make_candidate(variants=(make_variant(rules="sha256:0"),))
    signers = [None, keys.private, keys.private, others.private, None]

    made = [promote(tmp_path / "repository", replace(candidate, signer=signer)) for signer in signers]

    assert [(release.version, release.is_new) for release in made] == [
        (1, True),
        (2, True),
        (2, False),
        (3, True),
        (3, False),
    ]


def test_model_signing_agrees_about_every_release(tmp_path: Path, make_candidate: Make, keys: Keys) -> None:
    reason = "model-signing and pyOpenSSL are not installed"
    verifying = pytest.importorskip("model_signing.verifying", reason=reason, exc_type=ImportError)
    from model_signing import hashing, signing

    repository = tmp_path / "repository"
    folder = Path(str(promote(repository, make_candidate(signer=keys.private)).folder))
    check = verifying.Config().use_elliptic_key_verifier(public_key=keys.public_file).verify

    check(folder, folder / "model.sig")
    ignored = hashing.Config().set_ignored_paths(paths=["model.sig"], ignore_git_paths=False)
    theirs = signing.Config().use_elliptic_key_signer(private_key=keys.private_file).set_hashing_config(ignored)
    theirs.sign(folder, tmp_path / "theirs.sig")

    payloads = [
        json.loads(base64.b64decode(read_json(path)["dsseEnvelope"]["payload"]))
        for path in (folder / "model.sig", tmp_path / "theirs.sig")
    ]
    assert payloads[0]["predicate"] == payloads[1]["predicate"]
    assert payloads[0]["subject"][0]["digest"] == payloads[1]["subject"][0]["digest"]
    _rewrite(folder / "onnx-fp32/model.onnx", b"other graph")
    with pytest.raises(ValueError, match=r"Hash mismatch for .*onnx-fp32/model\.onnx"):
        check(folder, folder / "model.sig")
    assert verify_release(repository, _MODEL, 1).difference.changed == ("onnx-fp32/model.onnx",)


def test_a_key_may_be_encrypted_and_no_child_gets_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_candidate: Make
) -> None:
    keys = _write_keys(tmp_path, "p384", _PASSWORD)
    with pytest.raises(UsageError, match="is encrypted, but there is no terminal"):
        signing_key(keys.private_file)
    monkeypatch.setenv("PARITYGATE_SIGNING_PASSWORD", "another one")
    with pytest.raises(UsageError, match="could not be decrypted"):
        signing_key(keys.private_file)
    monkeypatch.setenv("PARITYGATE_SIGNING_PASSWORD", _PASSWORD)

    signer = signing_key(keys.private_file)

    assert signer is not None
    assert _PASSWORD not in environment_of_child().values()
    release = promote(tmp_path / "repository", make_candidate(signer=signer))
    assert _signature(tmp_path / "repository", 1, keys)["status"] == "valid"
    written = b"".join(path.read_bytes() for path in (tmp_path / "repository").rglob("*") if path.is_file())
    assert _PASSWORD.encode() not in written
    assert release.version == 1


@pytest.mark.parametrize("kind", ["rsa", "k256"])
def test_a_key_of_another_kind_is_wrong_usage(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UsageError, match="another kind of key"):
        _write_keys(tmp_path, kind)


def test_the_wrong_half_of_a_pair_is_wrong_usage(tmp_path: Path, keys: Keys) -> None:
    with pytest.raises(UsageError, match="is a public key"):
        read_signing_key(keys.public_file)
    with pytest.raises(UsageError, match="is a private key"):
        read_verifying_key(keys.private_file)
    (tmp_path / "text.pem").write_text("no key")
    with pytest.raises(UsageError, match="is not a PEM key"):
        read_verifying_key(tmp_path / "text.pem")
    with pytest.raises(InputFileError, match="could not be read"):
        read_verifying_key(tmp_path / "missing.pem")
