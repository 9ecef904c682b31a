"""What `promote` lets in: only what passed, on the device asked for, and byte for byte what was measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.conftest import changed_entry

from paritygate.artifact import Artifact, file_digests

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk


def _edit(path: Path, **changes: object) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    data.update(changes)
    path.write_text(json.dumps(data), encoding="utf-8")


def _promise(desk: Desk, **promote: object) -> None:
    """Change what the run's spec says of promotion."""
    path = desk.run_folder / "spec.json"
    spec = json.loads(path.read_text(encoding="utf-8"))["spec"]
    _edit(path, spec={**spec, "promote": {**spec["promote"], **promote}})


def _require_nothing(desk: Desk, *, fallback: str = "replace") -> None:
    """Change the run's spec so that it requires nothing, and lets the source take the place of what is released."""
    path = desk.run_folder / "spec.json"
    _edit(path, spec={**json.loads(path.read_text(encoding="utf-8"))["spec"], "required": []})
    _promise(desk, fallback=fallback)


def _judge(desk: Desk, **entry: object) -> None:
    """Change what the evidence says of the only variant."""
    path = desk.run_folder / "evidence.json"
    (found,) = json.loads(path.read_text(encoding="utf-8"))["variants"]
    _edit(path, variants=[changed_entry(found, **entry)])


def _promote(desk: Desk, *options: str) -> Called:
    return desk.json("promote", "--verbose", "--run", str(desk.run_folder), *options)


@pytest.fixture
def run(finished: Desk, tmp_path: Path) -> Desk:
    """Return a desk with a run that passed and was released as version 1."""
    return finished.copy(tmp_path)


def test_a_run_that_was_not_validated_is_not_released(run: Desk) -> None:
    (run.run_folder / "evidence.json").unlink()

    called = _promote(run)

    assert called.code == 2
    assert "was not validated: evidence.json is missing" in called.err
    assert f"hint: convert-and-validate validate --run {run.run_folder}" in called.err
    assert run.releases == ["tiny/1"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"reference": {}}'])
def test_damaged_evidence_releases_nothing(run: Desk, text: str) -> None:
    (run.run_folder / "evidence.json").write_text(text, encoding="utf-8")

    called = _promote(run)

    assert called.code == 2, str(called)
    assert "evidence.json is corrupt" in called.err
    assert f"hint: convert-and-validate validate --run {run.run_folder}" in called.err
    assert run.releases == ["tiny/1"]


@pytest.mark.parametrize("verdict", ["fail", "error", "inconclusive"])
def test_a_required_variant_that_did_not_pass_lets_nothing_be_released(run: Desk, verdict: str) -> None:
    _judge(run, verdict=verdict)

    called = _promote(run)

    assert called.code == 5, str(called)
    assert f"required and not passed: onnx-fp32 ({verdict})" in called.err
    assert run.releases == ["tiny/1"]


def test_where_nothing_is_required_the_source_is_released_in_place_of_what_failed(run: Desk) -> None:
    _judge(run, verdict="fail")
    _require_nothing(run)

    called = _promote(run)

    assert called.code == 0, str(called)
    assert called.data["variants"] == ["source"]
    reason = "fallback: replace, because no converted variant passed for cpu (onnx-fp32: fail)"
    assert called.data["reason"] == reason
    assert f"reason: {reason}" in called.out


@pytest.mark.parametrize("verdict", ["error", "inconclusive"])
def test_the_source_is_not_released_in_place_of_what_was_not_measured(run: Desk, verdict: str) -> None:
    _judge(run, verdict=verdict)
    _require_nothing(run)

    called = _promote(run)

    assert called.code == 5, str(called)
    assert "The source cannot replace variants that were not measured" in called.err
    assert run.releases == ["tiny/1"]


def test_a_variant_that_was_not_measured_for_a_wrong_spec_is_not_replaced_by_the_source(run: Desk) -> None:
    _judge(run, verdict="error", evidence="none", exit_code=2, reason="stratum 'zz' is not in the samples")
    _require_nothing(run)

    called = _promote(run)

    assert called.code == 2
    assert "nothing to release: onnx-fp32 was not measured: stratum 'zz' is not in the samples" in called.err
    assert "hint: correct " in called.err
    assert run.releases == ["tiny/1"]


def test_where_the_spec_wants_no_fallback_nothing_is_released(run: Desk) -> None:
    _judge(run, verdict="fail")
    _require_nothing(run, fallback="none")

    called = _promote(run)

    assert called.code == 5
    assert (
        "nothing to release: no converted variant passed for cpu (onnx-fp32: fail), and the spec has no" in called.err
    )
    assert "hint: " in called.err
    assert run.releases == ["tiny/1"]


@pytest.mark.parametrize("kind", ["emulated", "built", "none"])
def test_a_pass_that_is_not_verified_is_not_released(run: Desk, kind: str) -> None:
    _judge(run, evidence=kind)
    _promise(run, fallback="none")

    called = _promote(run)

    assert called.code == 5
    assert f"no converted variant passed for cpu (onnx-fp32: passed, and is {kind}, not verified)" in called.err
    assert run.releases == ["tiny/1"]


def test_a_device_that_nothing_was_verified_on_is_refused(run: Desk) -> None:
    called = _promote(run, "--for", "cuda:sm90")

    assert called.code == 2
    assert "nothing in this run was verified on 'cuda:sm90' (verified on: cpu)" in called.err
    assert run.releases == ["tiny/1"]


def test_the_device_of_the_spec_is_that_of_the_release(run: Desk) -> None:
    _promise(run, fallback="replace", **{"for": ["cuda:sm90"]})

    called = _promote(run)

    assert called.data["variants"] == ["source"]
    assert called.data["reason"].endswith("for cuda:sm90 (onnx-fp32: passed on cpu only)")
    assert _promote(run, "--for", "cpu").data["variants"] == ["onnx-fp32"]


def test_without_a_declared_device_it_is_the_one_that_was_validated_on(run: Desk) -> None:
    _judge(run, device="cuda:sm90", stage=run.stage("onnx-fp32", "cuda:sm90"))
    _edit(run.run_folder / "evidence.json", device="cuda:sm90")

    assert _promote(run).data["variants"] == ["onnx-fp32"]
    assert _promote(run, "--for", "cpu").code == 2


def test_of_the_preferred_variants_the_first_that_passed_is_released(run: Desk) -> None:
    _promise(run, prefer=["savedmodel-fp32", "onnx-fp32"])

    assert _promote(run).data["variants"] == ["onnx-fp32"]


def test_a_variant_that_passed_and_is_not_preferred_is_said_to_be_so(run: Desk) -> None:
    _promise(run, prefer=["savedmodel-fp32"], fallback="replace")

    called = _promote(run)

    assert called.data["variants"] == ["source"]
    assert "(onnx-fp32: passed, and promote.prefer does not name it)" in called.data["reason"]


def test_alias_and_repository_of_the_command_line_stand_above_the_spec(run: Desk) -> None:
    called = _promote(run, "--alias", "canary", "--repository", "releases")

    assert (called.data["alias"], called.data["version"]) == ("canary", 1)
    assert run.releases == ["tiny/1"]


def test_an_alias_that_cannot_be_one_is_wrong_usage(run: Desk) -> None:
    called = _promote(run, "--alias", "12")

    assert called.code == 2
    assert "alias name '12' is a number" in called.err
    assert run.releases == ["tiny/1"]


def test_without_an_alias_only_a_version_is_made(run: Desk) -> None:
    # What exists already would not be released again.
    shutil.rmtree(run.folder / "artifacts/repository")
    _promise(run, alias=None)

    called = _promote(run)

    assert (called.code, called.data["alias"], called.data["version"]) == (0, None, 1)
    assert "released tiny version 1: onnx-fp32" in called.out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "model.onnx").open("ab").write(b"\0"), "model.onnx was changed"),
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx is missing"),
        (lambda folder: (folder / "weights.bin").write_bytes(b"\0"), "weights.bin was added"),
    ],
)
def test_an_artifact_tampered_with_after_validation_is_not_released(
    run: Desk, change: Callable[[Path], object], words: str
) -> None:
    change(run.run_folder / "onnx-fp32")

    called = _promote(run)

    assert called.code == 5
    assert words in called.err
    assert run.releases == ["tiny/1"]


def test_an_artifact_made_again_after_validation_is_not_released(run: Desk) -> None:
    artifact = Artifact.load(run.run_folder / "onnx-fp32")
    artifact.path.write_bytes(artifact.path.read_bytes() + b"\0")
    files = file_digests(artifact.folder)
    Artifact(
        variant=artifact.variant, folder=artifact.folder, main=artifact.main, signature=artifact.signature, files=files
    ).save()

    called = _promote(run)

    assert called.code == 5
    assert "the evidence of onnx-fp32 is about " in called.err
    assert run.releases == ["tiny/1"]


def test_evidence_about_an_earlier_reference_releases_nothing(run: Desk) -> None:
    run.samples(seed=1)
    assert run.call("record", "--run", str(run.run_folder)).code == 0

    called = _promote(run)

    assert called.code == 5
    assert "is about another reference than the one in" in called.err
    assert f"hint: convert-and-validate validate --run {run.run_folder}" in called.err
    assert run.releases == ["tiny/1"]


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_source_that_is_not_what_was_recorded_is_no_fallback(run: Desk, *, is_removed: bool) -> None:
    _judge(run, verdict="fail")
    _require_nothing(run)
    if is_removed:
        (run.folder / "model.onnx").unlink()
    else:
        run.onnx(fill=0.5)

    called = _promote(run)

    assert called.code == (2 if is_removed else 5)
    assert "model.onnx does not exist" in called.err or "model.onnx was changed" in called.err
    assert run.releases == ["tiny/1"]


def test_files_that_a_module_reads_and_its_code_are_released_with_the_source(run: Desk) -> None:
    # As the recording of a module:callable describes it; the module itself is not called to release it.
    run.module("net", "raise RuntimeError")
    run.module("blocks", "x = 1")
    (run.folder / "weights.bin").write_bytes(b"w")
    spec = json.loads((run.run_folder / "spec.json").read_text(encoding="utf-8"))["spec"]
    _edit(run.run_folder / "spec.json", spec={**spec, "model": {**spec["model"], "source": "net:model"}})
    evidence = json.loads((run.run_folder / "evidence.json").read_text(encoding="utf-8"))
    files = {
        name: of for name, of in file_digests(run.folder).items() if name in {"blocks.py", "net.py", "weights.bin"}
    }
    described = {**evidence["reference"]["model"], "text": "net:model", "files": files}
    _edit(run.run_folder / "evidence.json", reference={**evidence["reference"], "model": described})
    _judge(run, verdict="fail")
    _require_nothing(run)

    assert _promote(run).code == 0

    code = run.folder / "artifacts/repository/store/tiny/2/source/code"
    assert {path.name for path in code.iterdir()} == {"blocks.py", "net.py", "weights.bin"}
    (run.folder / "weights.bin").write_bytes(b"v")
    changed = _promote(run)
    assert changed.code == 5
    assert "weights.bin was changed" in changed.err
