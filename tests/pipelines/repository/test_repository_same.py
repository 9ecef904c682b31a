"""What exists already is not released a second time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paritygate.errors import ArtifactIntegrityError, ExitCode, RepositoryError
from paritygate.pipelines.release.repository import release
from paritygate.pipelines.release.repository.aliases import Note, point_alias, roll_back
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate, VariantCandidate
from paritygate.pipelines.release.repository.inspect import list_models, show, verify_release
from paritygate.pipelines.release.repository.log import append_record, read_records
from paritygate.pipelines.release.repository.manifest import read_file
from paritygate.pipelines.release.repository.record import Record, RecordKind, utc_now
from paritygate.pipelines.release.repository.release import promote
from paritygate.pipelines.release.repository.rolled_back import RolledBackError
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.pipelines.release.stores.staging import staging_folder
from paritygate.pipelines.report.terminal.release import alias_of_same
from paritygate.roots import Root

Make = Callable[..., ReleaseCandidate]
MakeVariant = Callable[..., VariantCandidate]
_RULES = f"sha256:{'1' * 64}"


def _judged(variant: VariantCandidate, **fields: Any) -> VariantCandidate:  # noqa: ANN401 - any field
    assert variant.evidence is not None
    return replace(variant, evidence=replace(variant.evidence, **fields))


@pytest.fixture
def same(make_candidate: Make, make_variant: MakeVariant) -> Callable[..., ReleaseCandidate]:
    """Return a function that makes the same candidate each time, but for the fields given."""

    def variant() -> VariantCandidate:
        return make_variant(rules=_RULES)

    def make(**fields: Any) -> ReleaseCandidate:  # noqa: ANN401 - any field of the candidate
        return make_candidate(**fields) if "variants" in fields else make_candidate(variants=(variant(),), **fields)

    return make


def test_the_same_again_makes_no_version_and_no_record(tmp_path: Path, same: Make) -> None:
    first = promote(tmp_path, same())
    again = promote(tmp_path, same(reason="another reason", who="kim", evidence={"rows": 520}))

    assert (first.is_new, first.version, first.record) == (True, 1, 1)
    assert (again.is_new, again.version, again.record, again.alias) == (False, 1, None, "prod")
    assert (again.folder, again.manifest) == (first.folder, first.manifest)
    assert len(read_records(tmp_path, "klue-sts")) == 1
    assert [path.name for path in (tmp_path / "store/klue-sts").iterdir()] == ["1"]
    assert not list((tmp_path / "staging").iterdir())


def test_the_same_again_moves_an_alias_that_is_elsewhere(tmp_path: Path, same: Make, make_candidate: Make) -> None:
    promote(tmp_path, same())
    promote(tmp_path, make_candidate())

    again = promote(tmp_path, same(reason="the better one after all", who="kim", host="box"))

    assert (again.is_new, again.version, again.record) == (False, 1, 3)
    assert (again.moved_from, again.is_older) == (2, True)
    # A quiet run prints this too.
    assert alias_of_same(again) == "; alias prod was moved back from 2 to 1"
    record = read_records(tmp_path, "klue-sts")[-1]
    assert (record.kind, record.version, record.aliases) == (RecordKind.ALIAS_MOVED, None, {"prod": 1})
    assert (record.reason, record.who, record.host) == ("the better one after all", "kim", "box")
    assert list_models(tmp_path)[0].aliases == {"prod": 1}


def test_what_an_alias_was_rolled_back_from_is_not_released_to_it_again(
    root: Root, same: Make, make_candidate: Make, make_variant: MakeVariant
) -> None:
    promote(root, make_candidate())
    promote(root, same())
    roll_back(root, "klue-sts", note=Note(reason="answers badly", who="kim"))
    promote(root, make_candidate(variants=(make_variant("onnx-fp16"),)))

    with pytest.raises(RolledBackError) as refused:
        promote(root, same())

    assert refused.value.exit_code == ExitCode.NOT_MEASURED
    assert refused.value.rollback == {
        "alias": "prod",
        "version": 2,
        "record": 3,
        "reason": "answers badly",
        "who": "kim",
        "host": "",
        "time": read_records(root, "klue-sts")[2].time,
    }
    assert (list_models(root)[0].aliases, len(read_records(root, "klue-sts"))) == ({"prod": 3}, 4)
    # Other aliases were not rolled back from it, and whoever names the version wants it.
    assert promote(root, same(alias="canary")).version == 2
    point_alias(root, "klue-sts", "prod", 2)
    assert promote(root, same()).record is None


def _pair(make_variant: MakeVariant) -> tuple[VariantCandidate, VariantCandidate]:
    """Return two variants with files of their own."""
    return (
        make_variant("onnx-fp16", {"model.onnx": b"half"}, rules=_RULES),
        make_variant("onnx-fp32", {"model.onnx": b"full"}, rules=_RULES),
    )


def test_neither_order_nor_company_nor_rules_undo_a_rollback(
    root: Root, make_candidate: Make, make_variant: MakeVariant
) -> None:
    half, full = _pair(make_variant)
    other = make_variant("onnx-int8", {"model.onnx": b"small"}, rules=_RULES)
    promote(root, make_candidate(variants=(other,)))
    promote(root, make_candidate(variants=(half, full)))
    roll_back(root, "klue-sts", note=Note(reason="answers badly", who="kim"))

    by_other_rules, by_unknown = (_judged(half, rules=rules) for rules in (f"sha256:{'2' * 64}", None))
    for variants in ((half, full), (full, half), (half,), (half, other), (by_other_rules,), (by_unknown, full)):
        for despite in ("", "it is urgent"):
            with pytest.raises(RolledBackError) as refused:
                promote(root, make_candidate(variants=variants, despite=despite))
            assert refused.value.rollback["version"] == 2
            assert refused.value.command.split()[1:5] == ["alias", "klue-sts", "prod", "2"]
            assert ("--despite" in refused.value.hint) == bool(despite)
    assert list_models(root)[0].aliases == {"prod": 1}
    assert list_models(root)[0].versions == (1, 2)

    # What takes the place of the bad files is released, and so is everything once somebody named the version.
    assert promote(root, make_candidate(variants=(full,))).version == 3
    point_alias(root, "klue-sts", "prod", 2)
    assert promote(root, make_candidate(variants=(full, half))).version == 4
    roll_back(root, "klue-sts")
    better = make_variant("onnx-fp16", {"model.onnx": b"better"}, rules=_RULES)
    assert promote(root, make_candidate(variants=(better, full))).version == 5


def test_a_corrupt_manifest_of_what_was_rolled_back_releases_nothing(
    root: Root, make_candidate: Make, make_variant: MakeVariant
) -> None:
    half, full = _pair(make_variant)
    promote(root, make_candidate(variants=(full,)))
    promote(root, make_candidate(variants=(half,)))
    roll_back(root, "klue-sts")
    manifest = root / "store/klue-sts/2/manifest.json"
    content = (read_file(root / "store/klue-sts/2", "manifest.json") or b"") + b" "
    if isinstance(manifest, Path):
        manifest.chmod(0o644)
        manifest.write_bytes(content)
    else:
        store_of(root).replace("store/klue-sts/2/manifest.json", content)

    with pytest.raises(ArtifactIntegrityError, match="version 2") as refused:
        promote(root, make_candidate(variants=(half,)))

    assert refused.value.command.split()[1:4] == ["verify", "klue-sts", "2"]
    assert (list_models(root)[0].aliases, list_models(root)[0].versions) == ({"prod": 1}, (1, 2))
    # The release that prod is at stays, and other aliases remember nothing of it.
    assert promote(root, make_candidate(variants=(full,))).record is None
    assert promote(root, make_candidate(variants=(half,), alias="canary")).version == 3


def test_a_rollback_during_a_promotion_is_heeded(
    tmp_path: Path, same: Make, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote(tmp_path, make_candidate())
    promote(tmp_path, same())
    promote(tmp_path, make_candidate())

    def append_after_a_rollback(root: Path, model: str, *rest: Any) -> int | None:  # noqa: ANN401 - handed on
        monkeypatch.setattr(release, "append_record", append_record)
        point_alias(root, model, "prod", 2)
        roll_back(root, model)
        return append_record(root, model, *rest)

    monkeypatch.setattr(release, "append_record", append_after_a_rollback)
    with pytest.raises(RolledBackError):
        promote(tmp_path, same())
    assert list_models(tmp_path)[0].aliases == {"prod": 3}


def test_reports_are_made_where_a_release_is_made_and_not_where_it_is_there(tmp_path: Path, same: Make) -> None:
    made: list[str] = []
    reports = {"report.html": lambda: made.append("page") or b"<p>once</p>"}

    first, again = promote(tmp_path, same(reports=reports)), promote(tmp_path, same(reports=reports))

    assert (first.is_new, again.is_new) == (True, False)
    assert made == ["page"]
    assert (first.folder / "report.html").read_bytes() == b"<p>once</p>"


def test_the_same_again_makes_an_alias_that_is_new(tmp_path: Path, same: Make) -> None:
    promote(tmp_path, same())

    again = promote(tmp_path, same(alias="canary"))

    assert (again.is_new, again.version, again.record) == (False, 1, 2)
    assert list_models(tmp_path)[0].aliases == {"prod": 1, "canary": 1}


def test_the_same_again_without_alias_records_nothing(tmp_path: Path, same: Make) -> None:
    promote(tmp_path, same())

    again = promote(tmp_path, same(alias=None))

    assert (again.is_new, again.record, again.alias) == (False, None, None)
    assert list_models(tmp_path)[0].aliases == {"prod": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"rules": f"sha256:{'2' * 64}"},
        {"rules": None},
        {"device": "cuda:sm80"},
        {"devices": ("cpu",)},
    ],
)
def test_what_was_found_otherwise_is_another_release(
    tmp_path: Path, same: Make, make_variant: MakeVariant, change: dict[str, Any]
) -> None:
    promote(tmp_path, same())

    assert promote(tmp_path, same(variants=(_judged(make_variant(rules=_RULES), **change),))).version == 2


def test_what_was_found_on_another_device_as_well_is_another_release(
    tmp_path: Path, same: Make, make_variant: MakeVariant
) -> None:
    variant = make_variant(rules=_RULES)
    assert variant.evidence is not None
    other = replace(variant.evidence, device="cuda:sm80")
    promote(tmp_path, same())

    assert promote(tmp_path, same(variants=(_judged(variant, also=(other,)),))).version == 2


def test_emulated_evidence_is_another_release(tmp_path: Path, same: Make, make_variant: MakeVariant) -> None:
    emulated = _judged(make_variant(rules=_RULES), kind="emulated")
    promote(tmp_path, same())

    assert promote(tmp_path, same(variants=(emulated,), accepted={"onnx-fp32": "emulated"})).version == 2


def test_other_bytes_another_order_and_more_variants_are_other_releases(
    tmp_path: Path, same: Make, make_variant: MakeVariant
) -> None:
    promote(tmp_path, same())
    half = make_variant("onnx-fp16", {"model.onnx": b"half"}, rules=_RULES)
    full = make_variant(rules=_RULES)

    assert promote(tmp_path, same(variants=(full, half))).version == 2
    assert promote(tmp_path, same(variants=(half, full))).version == 3
    other = make_variant("onnx-fp32", {"model.onnx": b"other", "weights/0.bin": b""}, rules=_RULES)
    assert promote(tmp_path, same(variants=(other,))).version == 4


def test_evidence_without_known_rules_is_never_the_same(tmp_path: Path, make_candidate: Make) -> None:
    promote(tmp_path, make_candidate())

    assert promote(tmp_path, make_candidate()).version == 2


def test_the_same_source_is_not_released_twice(tmp_path: Path, make_candidate: Make, make_variant: MakeVariant) -> None:
    source = replace(make_variant(), name="source", evidence=None, is_source=True)
    promote(tmp_path, make_candidate(variants=(source,), reason="fallback: source"))

    again = promote(tmp_path, make_candidate(variants=(source,), reason="fallback: source, onnx-fp32 failed"))

    assert (again.is_new, again.version) == (False, 1)


def test_of_several_that_are_the_same_the_one_at_the_alias_is_meant_and_otherwise_the_newest(
    tmp_path: Path, same: Make, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # As a race left it: two versions hold the same.
        patch.setattr("paritygate.pipelines.release.repository.release._same_release", lambda *_: (None, ()))
        promote(tmp_path, same())
        promote(tmp_path, same(alias=None))

    assert promote(tmp_path, same()).version == 1
    assert promote(tmp_path, same(alias="canary")).version == 2
    promote(tmp_path, make_candidate())
    assert promote(tmp_path, same()).version == 2


def test_processes_that_promote_the_same_at_the_same_time_make_one_version(
    tmp_path: Path, same: Make, under: Callable[..., Any]
) -> None:
    repository = tmp_path / "repository"

    found = under("race", repository, same())

    assert [item["outcome"] for item in found] == [0] * 8
    (model,) = list_models(repository)
    assert len(model.versions) == 1
    assert len(read_records(repository, "klue-sts")) == 1
    assert len(list((repository / "store/klue-sts").iterdir())) == 1
    assert verify_release(repository, "klue-sts", "prod").is_intact
    assert not list((repository / "staging").iterdir())


def test_the_same_released_by_another_process_while_this_one_copies_is_what_the_alias_points_to(
    tmp_path: Path, same: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Path] = []

    def copy_slowly(candidate: ReleaseCandidate, content: Path) -> dict[str, str]:
        copies.append(content)
        if len(copies) == 1:
            assert promote(tmp_path, same(alias="canary")).version == 1
        return copy(candidate, content)

    copy = release._copy
    monkeypatch.setattr(release, "_copy", copy_slowly)

    later = promote(tmp_path, same())

    assert (later.version, later.is_new, later.record) == (1, False, 2)
    assert list_models(tmp_path)[0].aliases == {"canary": 1, "prod": 1}
    assert [path.name for path in (tmp_path / "store/klue-sts").iterdir()] == ["1"]
    assert later.manifest == show(tmp_path, "klue-sts", 1).record.manifest


def test_a_release_that_is_damaged_or_collected_is_not_there(tmp_path: Path, same: Make, make_candidate: Make) -> None:
    path = promote(tmp_path, same()).folder / "onnx-fp32/model.onnx"
    path.chmod(0o644)
    path.write_bytes(b"grapg")
    assert promote(tmp_path, same()).version == 2
    promote(tmp_path, make_candidate())
    with staging_folder(tmp_path) as staging:
        record = Record(kind=RecordKind.COLLECTED, time=utc_now(), version=2)
        append_record(tmp_path, "klue-sts", lambda _: record, staging)

    assert promote(tmp_path, same()).version == 4


def test_what_was_changed_since_it_was_measured_is_refused_even_if_it_is_there(tmp_path: Path, same: Make) -> None:
    promote(tmp_path, same())
    candidate = same(alias="canary")
    (candidate.variants[0].folder / "model.onnx").write_bytes(b"grapg")

    with pytest.raises(ArtifactIntegrityError, match=r"model\.onnx was changed"):
        promote(tmp_path, candidate)

    assert list_models(tmp_path)[0].aliases == {"prod": 1}


def test_a_release_despite_a_failed_run_says_why_in_log_and_manifest(tmp_path: Path, same: Make) -> None:
    promote(tmp_path, same())

    release = promote(tmp_path, same(despite="the demo is today"))

    assert (release.version, release.is_new, release.despite) == (2, True, "the demo is today")
    details = show(tmp_path, "klue-sts", 2)
    assert details.record.despite == details.manifest["despite"] == "the demo is today"
    assert [record.despite for record in details.history] == ["", "the demo is today"]
    assert show(tmp_path, "klue-sts", 1).manifest["despite"] == ""
    assert promote(tmp_path, same(despite="the demo is today")).version == 2


def test_despite_lets_no_variant_in_that_did_not_pass(tmp_path: Path, same: Make, make_variant: MakeVariant) -> None:
    failed = _judged(make_variant("onnx-fp16", rules=_RULES), verdict="fail")

    with pytest.raises(RepositoryError, match="onnx-fp16 is not released: its verdict is 'fail', expected 'pass'"):
        promote(tmp_path, same(variants=(make_variant(rules=_RULES), failed), despite="urgent"))


def test_the_manifest_names_the_identity_and_the_rules(tmp_path: Path, same: Make, make_candidate: Make) -> None:
    known = json.loads((promote(tmp_path, same()).folder / "manifest.json").read_text())
    unknown = json.loads((promote(tmp_path, make_candidate()).folder / "manifest.json").read_text())

    assert known["identity"].startswith("sha256:")
    assert known["variants"][0]["evidence"]["rules"] == _RULES
    assert unknown["identity"] is None
