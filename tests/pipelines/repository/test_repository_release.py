from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from paritygate.artifact import Artifact
from paritygate.codec import to_data
from paritygate.errors import (
    ArtifactIntegrityError,
    ParitygateError,
    RepositoryError,
    StorageError,
    UsageError,
)
from paritygate.files import digest_of_files
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate, VariantCandidate
from paritygate.pipelines.release.repository.inspect import list_models, show, verify_release
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.release import next_version, promote

MakeVariant = Callable[..., VariantCandidate]
Make = Callable[..., ReleaseCandidate]


def _sha256(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _judged(variant: VariantCandidate, **fields: str) -> VariantCandidate:
    assert variant.evidence is not None
    return replace(variant, evidence=replace(variant.evidence, **fields))


def _assert_nothing_released(repository: Path) -> None:
    assert not (repository.exists() and list_models(repository))
    assert not list(repository.glob("store/*/*"))
    assert not list(repository.glob("staging/*"))


def test_a_release_holds_exactly_the_files_that_its_manifest_names(
    tmp_path: Path, make_candidate: Make, make_variant: MakeVariant
) -> None:
    variants = (make_variant("onnx-fp16", {"model.onnx": b"half"}), make_variant("onnx-fp32"))

    release = promote(tmp_path / "r", make_candidate(variants=variants))

    assert release.folder == tmp_path / "r/store/klue-sts/1"
    found = {
        path.relative_to(release.folder).as_posix(): _sha256(path)
        for path in release.folder.rglob("*")
        if path.is_file()
    }
    assert release.manifest == found.pop("manifest.json")
    manifest = json.loads((release.folder / "manifest.json").read_text())
    assert manifest["files"] == found
    assert set(found) == {
        "evidence.json",
        "report.html",
        "onnx-fp16/artifact.json",
        "onnx-fp16/model.onnx",
        "onnx-fp32/artifact.json",
        "onnx-fp32/model.onnx",
        "onnx-fp32/weights/0.bin",
    }


def test_the_manifest_says_what_the_release_was_made_and_judged_with(tmp_path: Path, make_candidate: Make) -> None:
    candidate = make_candidate(reason="first")

    release = promote(tmp_path / "r", candidate)

    manifest = json.loads((release.folder / "manifest.json").read_text())
    assert (manifest["model"], manifest["version"], manifest["reason"]) == ("klue-sts", 1, "first")
    assert manifest["provenance"] == to_data(candidate.provenance)
    (variant,) = manifest["variants"]
    assert variant == {
        "name": "onnx-fp32",
        "role": "converted",
        "digest": candidate.variants[0].record["digest"],
        "main": "model.onnx",
        "size_bytes": 105,
        "evidence": {
            "verdict": "pass",
            "artifact": candidate.variants[0].record["digest"],
            "kind": "verified",
            "device": "cpu",
            "runtime": "onnxruntime 1.18",
            "emulated_from": None,
            "has_run": True,
            "devices": [],
            "also": [],
            "rules": None,
        },
    }
    assert json.loads((release.folder / "evidence.json").read_text()) == {"rows": 519}


def test_a_released_variant_is_an_artifact_that_loads_and_verifies(tmp_path: Path, make_candidate: Make) -> None:
    candidate = make_candidate()

    release = promote(tmp_path / "r", candidate)

    artifact = Artifact.load(release.folder / "onnx-fp32")
    assert artifact.digest == candidate.variants[0].record["digest"]


def test_a_release_shares_no_file_with_the_run_it_came_from_and_is_read_only(
    tmp_path: Path, make_candidate: Make
) -> None:
    candidate = make_candidate()

    release = promote(tmp_path / "r", candidate)
    (candidate.variants[0].folder / "model.onnx").write_bytes(b"changed later")

    assert (release.folder / "onnx-fp32/model.onnx").read_bytes() == b"graph"
    assert all(not path.stat().st_mode & 0o222 for path in release.folder.rglob("*") if path.is_file())


def test_versions_are_counted_from_one_for_each_model(tmp_path: Path, make_candidate: Make) -> None:
    numbers = [promote(tmp_path / "r", make_candidate(model=name)).version for name in ("a", "a", "b", "a")]

    assert numbers == [1, 2, 1, 3]


def test_the_number_of_a_folder_without_record_is_not_used_and_the_folder_is_invisible(
    tmp_path: Path, make_candidate: Make
) -> None:
    (tmp_path / "r/store/klue-sts/7").mkdir(parents=True)

    assert promote(tmp_path / "r", make_candidate()).version == 8
    assert list_models(tmp_path / "r")[0].versions == (8,)


def test_the_number_of_a_release_whose_folder_was_lost_is_not_used_again(tmp_path: Path, make_candidate: Make) -> None:
    shutil.rmtree(promote(tmp_path / "r", make_candidate()).folder)

    assert promote(tmp_path / "r", make_candidate()).version == 2


def test_a_number_that_another_process_takes_first_leads_to_the_next(
    tmp_path: Path, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both processes have seen an empty store; the other one is faster.
    promote(tmp_path / "r", make_candidate())
    seen = iter([1])
    monkeypatch.setattr(
        "paritygate.pipelines.release.repository.release.next_version",
        lambda *where: next(seen, None) or next_version(*where),
    )

    release = promote(tmp_path / "r", make_candidate())

    assert release.version == json.loads((release.folder / "manifest.json").read_text())["version"] == 2
    assert verify_release(tmp_path / "r", "klue-sts", 1).is_intact
    assert verify_release(tmp_path / "r", "klue-sts", 2).is_intact


def test_one_record_makes_the_release_and_moves_the_alias(tmp_path: Path, make_candidate: Make) -> None:
    promote(tmp_path / "r", make_candidate())
    release = promote(tmp_path / "r", make_candidate(reason="retrained", who="kim", host="box"))

    record = read_records(tmp_path / "r", "klue-sts")[1]
    assert release.record == 2
    assert (record.kind, record.version, record.manifest) == ("released", 2, release.manifest)
    assert record.aliases == {"prod": 2}
    assert (record.reason, record.who, record.host) == ("retrained", "kim", "box")
    assert record.time.endswith("+00:00")


def test_a_release_without_alias_moves_none(tmp_path: Path, make_candidate: Make) -> None:
    promote(tmp_path / "r", make_candidate())
    promote(tmp_path / "r", make_candidate(alias=None))

    (model,) = list_models(tmp_path / "r")
    assert (model.versions, model.aliases) == ((1, 2), {"prod": 1})


@pytest.mark.parametrize("verdict", ["fail", "error", "inconclusive", "PASS", "passed", ""])
def test_a_variant_whose_verdict_is_not_exactly_pass_is_refused(
    tmp_path: Path, make_candidate: Make, make_variant: MakeVariant, verdict: str
) -> None:
    variants = (make_variant("onnx-fp32"), _judged(make_variant("onnx-fp16"), verdict=verdict))

    with pytest.raises(
        RepositoryError, match=f"onnx-fp16 is not released: its verdict is '{verdict}', expected 'pass'"
    ):
        promote(tmp_path / "r", make_candidate(variants=variants))

    _assert_nothing_released(tmp_path / "r")


def test_a_variant_without_evidence_is_refused(tmp_path: Path, make_candidate: Make, make_variant: MakeVariant) -> None:
    with pytest.raises(RepositoryError, match="onnx-fp32 has no evidence"):
        promote(tmp_path / "r", make_candidate(variants=(replace(make_variant(), evidence=None),)))


def test_evidence_about_other_bytes_is_refused(tmp_path: Path, make_candidate: Make, make_variant: MakeVariant) -> None:
    variant = _judged(make_variant(), artifact=f"sha256:{'0' * 64}")

    with pytest.raises(RepositoryError, match=r"the evidence of onnx-fp32 is about sha256:0{64}, not about sha256:"):
        promote(tmp_path / "r", make_candidate(variants=(variant,)))


@pytest.mark.parametrize(("kind", "accepted"), [("verified", {}), ("emulated", {"onnx-fp32": "emulated"})])
def test_what_was_verified_is_released_and_so_is_what_is_accepted_as_emulated(
    tmp_path: Path, make_candidate: Make, make_variant: MakeVariant, kind: str, accepted: dict[str, str]
) -> None:
    candidate = make_candidate(variants=(_judged(make_variant(), kind=kind),), accepted=accepted)

    manifest = json.loads((promote(tmp_path / "r", candidate).folder / "manifest.json").read_text())

    assert manifest["accepted"] == accepted
    assert manifest["variants"][0]["evidence"]["kind"] == kind


@pytest.mark.parametrize(
    ("kind", "accepted"),
    [
        ("emulated", {}),
        ("emulated", {"onnx-fp16": "emulated"}),
        ("emulated", {"onnx-fp32": "built"}),
        ("built", {"onnx-fp32": "built"}),
        ("built", {"onnx-fp32": "emulated"}),
        ("", {"onnx-fp32": ""}),
    ],
)
def test_what_was_not_verified_is_refused_unless_emulation_is_accepted_for_it(
    tmp_path: Path, make_candidate: Make, make_variant: MakeVariant, kind: str, accepted: dict[str, str]
) -> None:
    candidate = make_candidate(variants=(_judged(make_variant(), kind=kind),), accepted=accepted)

    with pytest.raises(RepositoryError, match=f"onnx-fp32 is not released because its evidence on cpu is '{kind}'"):
        promote(tmp_path / "r", candidate)

    _assert_nothing_released(tmp_path / "r")


def test_nothing_to_release_is_refused(tmp_path: Path, make_candidate: Make) -> None:
    with pytest.raises(RepositoryError, match="no variant of 'klue-sts' is left to release"):
        promote(tmp_path / "r", make_candidate(variants=()))


def test_the_source_is_released_with_its_reason(
    tmp_path: Path, make_candidate: Make, make_variant: MakeVariant
) -> None:
    source = replace(make_variant(), name="source", evidence=None, is_source=True)
    reason = "fallback: source, onnx-fp32 failed"

    release = promote(tmp_path / "r", make_candidate(variants=(source,), reason=reason))

    details = show(tmp_path / "r", "klue-sts", "prod")
    assert details.record.reason == release.reason == details.manifest["reason"] == reason
    assert details.manifest["variants"][0]["role"] == "source"
    assert (release.folder / "source/model.onnx").read_bytes() == b"graph"


@pytest.mark.parametrize("reason", ["", "  "])
def test_the_source_without_a_reason_is_refused(
    tmp_path: Path, make_candidate: Make, make_variant: MakeVariant, reason: str
) -> None:
    source = replace(make_variant(), name="source", evidence=None, is_source=True)

    with pytest.raises(RepositoryError, match="the source would be released as 'source' without a reason"):
        promote(tmp_path / "r", make_candidate(variants=(source,), reason=reason))


def test_a_source_does_not_carry_a_failed_variant_into_the_release(
    tmp_path: Path, make_candidate: Make, make_variant: MakeVariant
) -> None:
    source = replace(make_variant(), name="source", evidence=None, is_source=True)
    failed = _judged(make_variant("onnx-fp16"), verdict="fail")

    with pytest.raises(RepositoryError, match="its verdict is 'fail'"):
        promote(tmp_path / "r", make_candidate(variants=(source, failed), reason="fallback: source"))


@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (lambda folder: (folder / "model.onnx").write_bytes(b"grapg"), r"model\.onnx was changed"),
        (lambda folder: (folder / "weights/0.bin").unlink(), r"weights/0\.bin is missing"),
        (lambda folder: (folder / "extra.bin").write_bytes(b""), r"extra\.bin was added"),
        (shutil.rmtree, r"model\.onnx is missing, weights/0\.bin is missing"),
    ],
)
def test_an_artifact_that_was_tampered_with_is_refused(
    tmp_path: Path, make_candidate: Make, tamper: Callable[[Path], None], found: str
) -> None:
    candidate = make_candidate()
    tamper(candidate.variants[0].folder)

    with pytest.raises(ArtifactIntegrityError, match=f"is corrupt, nothing was released: {found}"):
        promote(tmp_path / "r", candidate)

    _assert_nothing_released(tmp_path / "r")


def test_a_record_changed_to_fit_tampered_files_is_refused(
    tmp_path: Path, make_candidate: Make, make_variant: MakeVariant
) -> None:
    variant = make_variant()
    (variant.folder / "model.onnx").write_bytes(b"grapg")
    record = {
        **variant.record,
        "files": {**variant.record["files"], "model.onnx": _sha256(variant.folder / "model.onnx")},
    }

    with pytest.raises(ArtifactIntegrityError, match="the record of onnx-fp32 contradicts itself"):
        promote(tmp_path / "r", make_candidate(variants=(replace(variant, record=record),)))


def test_a_record_without_files_is_refused(tmp_path: Path, make_candidate: Make, make_variant: MakeVariant) -> None:
    with pytest.raises(ArtifactIntegrityError, match="the record of onnx-fp32 names no files"):
        promote(tmp_path / "r", make_candidate(variants=(replace(make_variant(), record={"files": {}}),)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": {"../up": "sha256:0"}}, "the name '../up' leaves its folder"),
        ({"files": {"/up": "sha256:0"}}, "the name '/up' is an absolute path"),
        ({"files": {"a\\up": "sha256:0"}}, "holds a character that not every machine allows in a name"),
        ({"files": {"a\0up": "sha256:0"}}, "holds a character that not every machine allows in a name"),
        ({"main": "../inputs/model.onnx"}, "main is '../inputs/model.onnx', which is not one of its files"),
        ({"main": "."}, "main is '.', which is not one of its files"),
    ],
)
def test_a_record_that_names_files_elsewhere_is_refused(
    tmp_path: Path, make_candidate: Make, make_variant: MakeVariant, change: dict[str, Any], message: str
) -> None:
    variant = make_variant()
    record = {**variant.record, **change}
    forged = replace(variant, record={**record, "digest": digest_of_files(record["files"])})

    with pytest.raises(ArtifactIntegrityError, match=f"^the record of onnx-fp32 is corrupt: .*{re.escape(message)}"):
        promote(tmp_path / "r", make_candidate(variants=(forged,)))

    assert not list(tmp_path.glob("r/**/model.onnx"))


def test_a_file_that_changes_while_it_is_copied_is_refused(
    tmp_path: Path, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    copyfile = shutil.copyfile

    def copy_after_a_change(source: Path, target: Path) -> None:
        if source.name == "0.bin":
            source.write_bytes(b"\1" * 100)
        copyfile(source, target)

    candidate = make_candidate()
    monkeypatch.setattr(shutil, "copyfile", copy_after_a_change)

    with pytest.raises(ArtifactIntegrityError, match=r"the copy differs .* onnx-fp32/weights/0\.bin was changed"):
        promote(tmp_path / "r", candidate)

    _assert_nothing_released(tmp_path / "r")


def test_a_link_that_leaves_the_artifact_is_refused(tmp_path: Path, make_candidate: Make) -> None:
    candidate = make_candidate()
    (tmp_path / "secret").write_text("secret")
    (candidate.variants[0].folder / "secret").symlink_to(tmp_path / "secret")

    with pytest.raises(StorageError, match="is a link to a place outside"):
        promote(tmp_path / "r", candidate)


def test_a_link_to_a_folder_is_refused_even_inside_the_artifact(tmp_path: Path, make_candidate: Make) -> None:
    candidate = make_candidate()
    (candidate.variants[0].folder / "linked").symlink_to("weights")

    with pytest.raises(StorageError, match="linked is a link to a folder, whose files would be left out"):
        promote(tmp_path / "r", candidate)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "../klue"}, r"model name '\.\./klue' is not allowed"),
        ({"model": ""}, "model name '' is not allowed"),
        ({"alias": "team/prod"}, "alias name 'team/prod' is not allowed"),
        ({"alias": ".."}, r"alias name '\.\.' is not allowed"),
        ({"alias": "2"}, "alias name '2' is a number"),
        ({"reports": {"../report.html": Path(__file__)}}, r"report name '\.\./report\.html' is not allowed"),
        ({"reports": {"manifest.json": Path(__file__)}}, r"the name 'manifest\.json' occurs twice"),
        ({"reports": {"Evidence.JSON": Path(__file__)}}, r"the name 'Evidence\.JSON' occurs twice"),
        ({"reports": {"onnx-fp32": Path(__file__)}}, "the name 'onnx-fp32' occurs twice"),
    ],
)
def test_a_name_that_cannot_be_a_file_of_the_repository_is_a_usage_error(
    tmp_path: Path, make_candidate: Make, fields: dict[str, object], message: str
) -> None:
    candidate = replace(make_candidate(), **fields)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match=message):
        promote(tmp_path / "r", candidate)

    assert not (tmp_path / "r").exists()


def test_a_variant_put_forward_twice_is_a_usage_error(
    tmp_path: Path, make_candidate: Make, make_variant: MakeVariant
) -> None:
    with pytest.raises(UsageError, match="the name 'onnx-fp32' occurs twice"):
        promote(tmp_path / "r", make_candidate(variants=(make_variant(), make_variant())))


def test_a_variant_under_another_name_than_recorded_is_refused(
    tmp_path: Path, make_candidate: Make, make_variant: MakeVariant
) -> None:
    with pytest.raises(RepositoryError, match="given as onnx-fp16 is recorded as 'onnx-fp32'"):
        promote(tmp_path / "r", make_candidate(variants=(replace(make_variant(), name="onnx-fp16"),)))


def test_evidence_that_json_cannot_say_is_refused(tmp_path: Path, make_candidate: Make) -> None:
    with pytest.raises(RepositoryError, match=r"evidence\.json of the release cannot be written as JSON"):
        promote(tmp_path / "r", make_candidate(evidence={"max_abs_diff": math.nan}))


def test_a_digest_that_is_none_is_refused(tmp_path: Path, make_candidate: Make) -> None:
    provenance = replace(make_candidate().provenance, samples="unknown")

    with pytest.raises(RepositoryError, match="the digest of the samples is 'unknown', which is not a sha256 digest"):
        promote(tmp_path / "r", make_candidate(provenance=provenance))


def test_a_damaged_log_stops_the_release_before_anything_is_copied(tmp_path: Path, make_candidate: Make) -> None:
    promote(tmp_path / "r", make_candidate())
    record = tmp_path / "r/log/klue-sts/000001.json"
    record.unlink()
    record.write_text("{")

    with pytest.raises(RepositoryError, match=r"000001\.json is not a record"):
        promote(tmp_path / "r", make_candidate())

    assert [path.name for path in (tmp_path / "r/store/klue-sts").iterdir()] == ["1"]


def test_a_store_on_another_filesystem_is_one_clear_error(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, make_candidate: Make
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    if elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second filesystem to write to")
    (tmp_path / "r").mkdir()
    (tmp_path / "r/store").symlink_to(elsewhere)

    with pytest.raises(StorageError, match=r"is on another filesystem than "):
        promote(tmp_path / "r", make_candidate())

    assert not list_models(tmp_path / "r")
    assert not list((tmp_path / "r/staging").iterdir())


def test_everything_is_on_the_disk_before_the_record_is(
    tmp_path: Path, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    at_link: list[int] = []
    fsync, hardlink_to = os.fsync, Path.hardlink_to

    def note_sync(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    def note_link(path: Path, target: Path) -> None:
        at_link.append(len(synced))
        hardlink_to(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "hardlink_to", note_link)

    release = promote(tmp_path / "r", make_candidate())

    (before,) = at_link
    written = [release.folder, *release.folder.rglob("*"), *release.folder.parents[:3]]
    record = tmp_path / "r/log/klue-sts/000001.json"
    assert {path.stat().st_ino for path in (*written, record)} <= {*synced[:before]}
    assert record.parent.stat().st_ino in synced[before:]


def test_every_refusal_says_what_to_do_next(tmp_path: Path, make_candidate: Make, make_variant: MakeVariant) -> None:
    refused = [
        make_candidate(model="a/b"),
        make_candidate(variants=()),
        make_candidate(variants=(_judged(make_variant(), verdict="fail"),)),
        make_candidate(variants=(_judged(make_variant(), kind="emulated"),)),
        make_candidate(evidence={"x": math.inf}),
    ]
    for candidate in refused:
        with pytest.raises(ParitygateError) as caught:
            promote(tmp_path / "r", candidate)
        assert caught.value.hint
