"""Evidence of engines where no engine runs: built, and emulated by the ONNX file that they were built from."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.conftest import make_desk

from paritygate.artifact import Artifact
from paritygate.engine.gpu_fit import why_not_built_for

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

_MODEL = {
    "name": "tiny",
    "source": "model.onnx",
    "rename": {"output_0": "logits"},
    "dims": {"batch": {"min": 1, "opt": 8, "max": 64}},
}
_RTX = ("tensorrt-rtx-fp32", "tensorrt-rtx-fp16")
_ACCEPT = {"accept": {"tensorrt-rtx-fp16": "emulated"}}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk with a run of a model and its two TensorRT-RTX engines; not to be changed, but copied."""
    desk = make_desk(tmp_path_factory.mktemp("built"))
    desk.spec(model=_MODEL, targets=["onnx-fp32", *_RTX])
    called = desk.json("run", "spec.yaml", "--verbose")
    assert called.code == 0, str(called)
    return desk


@pytest.fixture
def run(built: Desk, tmp_path: Path) -> Desk:
    """Return a desk with a copy of that run."""
    return built.copy(tmp_path)


def _promise(desk: Desk, **promote: object) -> None:
    """Change what the run's spec says of promotion."""
    path = desk.run_folder / "spec.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["spec"]["promote"].update(promote)
    path.write_text(json.dumps(data), encoding="utf-8")


def _promote(desk: Desk, *options: str) -> Called:
    return desk.json("promote", "--verbose", "--run", str(desk.run_folder), *options)


def _manifest(desk: Desk, version: int) -> dict[str, Any]:
    path = desk.folder / f"artifacts/repository/store/tiny/{version}/manifest.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _rows(desk: Desk, kind: str) -> dict[str, dict[str, Any]]:
    return {entry["variant"]: entry for entry in desk.evidence()[kind]}


@pytest.mark.rtx
def test_an_engine_is_built_and_its_onnx_file_is_judged_in_its_place(built: Desk) -> None:
    folder = built.run_folder
    verified, emulated = _rows(built, "variants"), _rows(built, "emulated")

    assert list(emulated) == list(_RTX)
    for name, base in zip(_RTX, ("onnx-fp32", "bases/onnx-fp16"), strict=True):
        engine, onnx = Artifact.load(folder / name), Artifact.load(folder / base)
        assert (verified[name]["evidence"], verified[name]["verdict"]) == ("built", "not run here")
        assert "engines run on NVIDIA GPUs only" in verified[name]["reason"]
        row = emulated[name]
        assert (row["evidence"], row["verdict"], row["result"]["rows"]) == ("emulated", "pass", 120)
        assert (row["artifact"], row["stage"]["reads"]["ran"]) == (engine.digest, onnx.digest)
        assert row["result"]["candidate"]["device"] == f"emulated:{engine.variant.precision}"
    # FP16 rounds, FP32 is the very graph that onnx-fp32 is.
    assert emulated["tensorrt-rtx-fp16"]["result"]["outputs"]["logits"]["max_abs_diff"] > 0
    assert emulated["tensorrt-rtx-fp32"]["result"]["outputs"] == verified["onnx-fp32"]["result"]["outputs"]
    assert any(
        "fp32 has no rounding to emulate: the graph that" in note for note in emulated[_RTX[0]]["result"]["notes"]
    )


@pytest.mark.rtx
def test_the_emulated_row_of_an_engine_is_held_to_the_limits_of_the_engine(run: Desk) -> None:
    path = run.run_folder / "spec.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["spec"]["tolerance"] = {"tensorrt-rtx-fp16": {"max_abs_diff": 1e-9}}
    path.write_text(json.dumps(data), encoding="utf-8")

    run.json("validate", "--verbose", "--run", str(run.run_folder))

    emulated = _rows(run, "emulated")
    assert [emulated[name]["verdict"] for name in _RTX] == ["pass", "fail"]
    _promise(run, **_ACCEPT)
    assert "nothing that is accepted stands for it" in _promote(run, "--for", "cuda:sm89").err


@pytest.mark.rtx
def test_a_report_says_that_the_engine_did_not_run(built: Desk) -> None:
    page = (built.run_folder / "report.md").read_text(encoding="utf-8")
    html = (built.run_folder / "report.html").read_text(encoding="utf-8")

    for text in (page, html):
        assert "engines run on NVIDIA GPUs only: validate it where it runs" in text
        assert "built: the file was made and checked, and did not run here. That alone is never released." in text
        assert "emulated, of tensorrt-rtx-fp32, tensorrt-rtx-fp16: what ran on the CPU is the ONNX file" in text
        assert "The engine itself did not run for that row." in text
    row = next(line for line in page.splitlines() if line.startswith("| tensorrt-rtx-fp16 (emulated)"))
    assert "| emulated:fp16 | emulated | ✓ pass |" in row


@pytest.mark.rtx
@pytest.mark.parametrize("device", ["cpu", "cuda:sm89"])
def test_what_was_only_built_is_never_released(run: Desk, device: str) -> None:
    _promise(run, prefer=list(_RTX), fallback="replace", **{"for": [device]})

    called = _promote(run)

    assert called.data["variants"] == ["source"]
    why = "does not run on cpu" if device == "cpu" else f"was built, and never ran on {device}"
    assert f"tensorrt-rtx-fp32 and tensorrt-rtx-fp16: {why}" in called.data["reason"]


@pytest.mark.rtx
def test_without_accept_a_gpu_that_nothing_ran_on_is_refused(run: Desk) -> None:
    called = _promote(run, "--for", "cuda:sm89")

    assert called.code == 2
    assert "nothing in this run was verified on 'cuda:sm89' (verified on: cpu)" in called.err
    assert run.releases == ["tiny/1"]


@pytest.mark.rtx
def test_an_engine_is_released_on_its_emulated_row_if_the_spec_accepts_that_and_the_release_says_so(run: Desk) -> None:
    _promise(run, **_ACCEPT)

    called = _promote(run, "--for", "cuda:sm89")

    assert called.data["variants"] == ["tensorrt-rtx-fp16"], str(called)
    said = "accepted on emulated evidence by the spec: tensorrt-rtx-fp16 (never ran itself)"
    assert called.data["reason"] == said
    manifest = _manifest(run, 2)
    assert manifest["accepted"] == {"tensorrt-rtx-fp16": "emulated"}
    (variant,) = manifest["variants"]
    (row,) = (row for row in run.evidence()["emulated"] if row["variant"] == "tensorrt-rtx-fp16")
    assert variant["evidence"] == {
        "verdict": "pass",
        "artifact": Artifact.load(run.run_folder / "tensorrt-rtx-fp16").digest,
        "kind": "emulated",
        "device": "emulated:fp16",
        "runtime": variant["evidence"]["runtime"],
        "emulated_from": Artifact.load(run.run_folder / "bases/onnx-fp16").digest,
        "has_run": False,
        "devices": ["cuda:sm89"],
        "also": [],
        "rules": row["stage"]["rules"],
    }
    shown = run.call("show", "tiny", "2", "--repository", "artifacts/repository").out
    assert "it never ran itself" in " ".join(shown.split())


@pytest.mark.rtx
def test_an_engine_is_not_accepted_for_a_gpu_that_it_was_not_built_for(run: Desk) -> None:
    _promise(run, **_ACCEPT)

    called = _promote(run, "--for", "cuda:sm90")

    assert called.code == 2
    words = "tensorrt-rtx-fp16: was built for compute capability 8.0, 8.6, 8.9, 12.0, 12.1, not for cuda:sm90"
    others = "onnx-fp32: passed on cpu only, tensorrt-rtx-fp32: was built, and never ran on cuda:sm90"
    assert f"and nothing that is accepted stands for it ({others}, {words})" in called.err
    assert run.releases == ["tiny/1"]
    _promise(run, fallback="replace", **{"for": ["cuda:sm90"]})
    assert words in _promote(run).data["reason"]


@pytest.mark.rtx
def test_an_accepted_engine_does_not_make_a_release_for_a_device_that_it_does_not_run_on(run: Desk) -> None:
    _promise(run, **_ACCEPT)

    called = _promote(run, "--for", "cuda:sm89", "--for", "cpu")

    assert called.code == 2
    assert (
        "nothing that would be released runs on cpu (it would be: tensorrt-rtx-fp16; left out: onnx-fp32: "
        in called.err
    )
    assert "validate such a variant on every device of the release" in called.err
    assert run.releases == ["tiny/1"]


@pytest.mark.rtx
def test_a_name_that_is_no_gpu_is_not_made_one_by_accepting(run: Desk) -> None:
    _promise(run, **_ACCEPT)

    called = _promote(run, "--for", "cuda:90")

    assert (called.code, run.releases) == (2, ["tiny/1"])
    assert "nothing in this run was verified on 'cuda:90'" in called.err


@pytest.mark.rtx
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "model.onnx").open("ab").write(b"\0"), "model.onnx was changed"),
        (lambda folder: (folder / "artifact.json").unlink(), "but that file is missing"),
    ],
)
def test_without_the_file_that_it_was_built_from_an_engine_has_no_emulated_row(
    run: Desk,
    change: Callable[[Path], object],
    words: str,
) -> None:
    change(run.run_folder / "bases/onnx-fp16")
    _promise(run, **_ACCEPT)

    called = run.json("validate", "--verbose", "--run", str(run.run_folder))

    row = _rows(run, "emulated")["tensorrt-rtx-fp16"]
    assert (row["verdict"], row["evidence"], row["stage"]["reads"]["ran"]) == ("error", "built", None)
    assert words in row["reason"]
    assert "tensorrt-rtx-fp16, emulated: " in called.err
    assert _promote(run, "--for", "cuda:sm89").code == 2


@pytest.mark.rtx
def test_an_onnx_file_made_again_says_nothing_of_the_engine_built_before(run: Desk) -> None:
    record = run.run_folder / "tensorrt-rtx-fp16/artifact.json"
    data = json.loads(record.read_text(encoding="utf-8"))
    data["made_by"]["base"]["digest"] = "sha256:" + "0" * 64
    record.write_text(json.dumps(data), encoding="utf-8")
    _promise(run, **_ACCEPT)

    before = _promote(run, "--for", "cuda:sm89")
    run.json("validate", "--verbose", "--run", str(run.run_folder))

    assert before.code == 5
    assert "tensorrt-rtx-fp16 was built from onnx-fp16 with digest sha256:000" in before.err
    reason = _rows(run, "emulated")["tensorrt-rtx-fp16"]["reason"]
    assert "was built from onnx-fp16 with digest sha256:000" in reason
    assert "but the present file has sha256:" in reason


@pytest.mark.rtx
@pytest.mark.parametrize("base", [{}, {"variant": "../onnx-fp16", "digest": "sha256:0"}])
def test_an_engine_without_a_word_of_its_making_has_no_emulated_row(run: Desk, base: dict[str, str]) -> None:
    record = run.run_folder / "tensorrt-rtx-fp16/artifact.json"
    data = json.loads(record.read_text(encoding="utf-8"))
    data["made_by"]["base"] = base
    record.write_text(json.dumps(data), encoding="utf-8")

    called = run.json("validate", "--verbose", "--run", str(run.run_folder))

    assert "the record of tensorrt-rtx-fp16 does not name the file it was built from" in called.err
    assert f"build the engine again: convert-and-validate build --run {run.run_folder}" in called.err


def _rtx(*capabilities: str) -> dict[str, Any]:
    return {"library": "tensorrt-rtx", "engine_settings": {"compute_capabilities": list(capabilities)}}


def _tensorrt(level: str, capability: str = "90") -> dict[str, Any]:
    settings = {"hardware_compatibility": level}
    return {"library": "tensorrt", "engine_settings": settings, "built_on": {"capability": capability}}


@pytest.mark.parametrize(
    ("facts", "device", "words"),
    [
        (_rtx(), "cuda:sm86", ""),
        (_rtx(), "cuda:sm120", ""),
        (_rtx(), "cuda:sm75", "was built for compute capability 8.0, 8.6, 8.9, 12.0, 12.1, not for cuda:sm75"),
        (_rtx(), "cuda:sm100", "was built for compute capability 8.0, 8.6, 8.9, 12.0, 12.1, not for cuda:sm100"),
        (_rtx("7.5", "8.9"), "cuda:sm75", ""),
        (_rtx("7.5", "8.9"), "cuda:sm86", "was built for compute capability 7.5, 8.9, not for cuda:sm86"),
        (_rtx(), "cpu", "is built for GPUs, not for cpu"),
        (_tensorrt("none"), "cuda:sm90", ""),
        (_tensorrt("none"), "cuda:sm80", "was built on cuda:sm90 with hardware compatibility none, not for cuda:sm80"),
        (_tensorrt("same_compute_capability"), "cuda:sm89",
         "was built on cuda:sm90 with hardware compatibility same_compute_capability, not for cuda:sm89"),
        (_tensorrt("ampere_plus"), "cuda:sm80", ""),
        (_tensorrt("ampere_plus"), "cuda:sm75",
         "was built on cuda:sm90 with hardware compatibility ampere_plus, not for cuda:sm75"),
        ({**_tensorrt("none"), "built_on": None}, "cuda:sm90", "does not name the GPU that it was built on"),
        ({}, "cuda:sm90", "does not name the GPUs that it was built for"),
    ],
)  # fmt: skip
def test_an_engine_runs_on_the_gpus_that_it_was_built_for(facts: dict[str, Any], device: str, words: str) -> None:
    assert why_not_built_for(device, facts) == words


def _as_on_a_gpu(desk: Desk, device: str, **entries: dict[str, object]) -> None:
    """Write the evidence as a validation on a GPU would have left it, everything passed but for `entries`.

    No GPU is here: the evidence of the CPU is kept under `others`, and that of the GPU is made up.
    """
    evidence = desk.evidence()
    cpu = deepcopy({key: value for key, value in evidence.items() if key != "others"})
    for at, name in enumerate(("onnx_fp32", "rtx_fp32", "rtx_fp16")):
        entry = evidence["variants"][at]
        made = Artifact.load(desk.run_folder / entry["variant"]).digest
        passed = {"evidence": "verified", "verdict": "pass", "artifact": made, "exit_code": 0}
        evidence["variants"][at] = desk.entry_on(entry, device, **{**passed, **entries.get(name, {})})
    path = desk.run_folder / "evidence.json"
    path.write_text(json.dumps({**evidence, "device": device, "others": [cpu]}), encoding="utf-8")


@pytest.mark.rtx
def test_an_engine_is_released_for_the_gpu_and_the_onnx_file_for_the_cpu_too(run: Desk) -> None:
    _as_on_a_gpu(run, "cuda:sm89", rtx_fp16={"verdict": "fail", "exit_code": 1})
    path = run.run_folder / "spec.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, "spec": {**data["spec"], "required": ["onnx-fp32"]}}), encoding="utf-8")

    called = _promote(run, "--for", "cpu", "--for", "cuda:sm89")

    assert called.code == 0, str(called)
    assert called.data["variants"] == ["onnx-fp32", "tensorrt-rtx-fp32"]
    engine = _manifest(run, 2)["variants"][1]["evidence"]
    assert (engine["devices"], engine["also"], engine["has_run"]) == (["cuda:sm89"], [], True)
    assert _promote(run, "--for", "cpu").data["variants"] == ["onnx-fp32"]


@pytest.mark.rtx
def test_an_engine_that_failed_on_a_gpu_is_not_saved_by_its_emulated_row(run: Desk) -> None:
    _as_on_a_gpu(run, "cuda:sm89", rtx_fp16={"verdict": "fail", "exit_code": 1})
    _promise(run, **_ACCEPT, prefer=["tensorrt-rtx-fp16"], fallback="replace", **{"for": ["cuda:sm86"]})
    path = run.run_folder / "spec.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["spec"]["required"] = []
    path.write_text(json.dumps(data), encoding="utf-8")

    assert _promote(run).data["variants"] == ["source"]


@pytest.mark.rtx
def test_a_release_of_engines_alone_is_none_for_a_cpu(run: Desk) -> None:
    _as_on_a_gpu(run, "cuda:sm89")
    _promise(run, prefer=["tensorrt-rtx-fp32", "onnx-fp32"])

    called = _promote(run, "--for", "cpu", "--for", "cuda:sm89")

    assert (called.code, run.releases) == (2, ["tiny/1"])
    assert "nothing that would be released runs on cpu (it would be: tensorrt-rtx-fp32)" in called.err
