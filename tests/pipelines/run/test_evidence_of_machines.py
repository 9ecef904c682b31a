"""One run, validated on several machines: what counts for which device, and what a release of it records.

There is no second device where these tests run. It is simulated by writing the evidence document of another device into
`evidence.json` as a validation there would have left it: under `others`, or in the place of the last validation.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.conftest import changed_entry, make_desk

from paritygate.errors import InputFileError
from paritygate.pipelines.run.evidence import read_evidence
from paritygate.pipelines.run.validate import evidence_of_others
from paritygate.pipelines.run.workspace import open_run
from paritygate.validate.reference.recording import Recording

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

_GPU = "cuda:sm90"
_TARGETS = ["onnx-fp32", "onnx-fp16"]
_H100 = {"name": "NVIDIA H100", "device": _GPU, "driver": "570.86", "cuda": "12.8"}


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk with a run of two variants that passed on the CPU; not to be changed, but copied."""
    desk = make_desk(tmp_path_factory.mktemp("validated"))
    # What is chosen is looked at, so that nothing stands in its way.
    desk.spec(targets=_TARGETS, required=[])
    called = desk.json("run", "spec.yaml", "--verbose", "--no-promote")
    assert called.code == 0, str(called)
    return desk


@pytest.fixture
def run(validated: Desk, tmp_path: Path) -> Desk:
    """Return a desk with a copy of that run."""
    return validated.copy(tmp_path)


def _write(desk: Desk, evidence: dict[str, Any]) -> None:
    (desk.run_folder / "evidence.json").write_text(json.dumps(evidence), encoding="utf-8")


def _on(desk: Desk, evidence: dict[str, Any], device: str, **entries: dict[str, object]) -> dict[str, Any]:
    """Return the evidence as it would be of another device; `entries` are changes by variant, with `_` for dashes."""
    found = deepcopy({key: value for key, value in evidence.items() if key != "others"})
    found["device"] = device
    found["machine"] = {**found["machine"], "gpu": None if device == "cpu" else {**_H100, "device": device}}
    found["variants"] = [
        desk.entry_on(entry, device, **entries.get(entry["variant"].replace("-", "_"), {}))
        for entry in found["variants"]
    ]
    return found


def _with_gpu(desk: Desk, *, is_last: bool = False, **entries: dict[str, object]) -> None:
    """Write the evidence as it is after a validation on a GPU too, before or after the one on the CPU."""
    cpu = {**desk.evidence(), "others": []}
    gpu = {**_on(desk, cpu, _GPU, **entries), "others": []}
    last, other = (gpu, cpu) if is_last else (cpu, gpu)
    other.pop("others")
    _write(desk, {**last, "others": [other]})


def _promise(desk: Desk, **promote: object) -> None:
    path = desk.run_folder / "spec.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["spec"]["promote"].update(promote)
    path.write_text(json.dumps(data), encoding="utf-8")


def _promote(desk: Desk, *devices: str) -> Called:
    options = [word for device in devices for word in ("--for", device)]
    return desk.json("promote", "--verbose", "--run", str(desk.run_folder), *options)


def _stored(desk: Desk, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (desk.folder / "artifacts/repository/store/tiny/1" / name).read_text(encoding="utf-8")
    )
    return found


_FAIL = {"verdict": "fail", "exit_code": 1}
_CRASH = {"verdict": "error", "exit_code": 5, "evidence": "none", "artifact": None, "device": None}


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("entry", [_FAIL, _CRASH])
def test_a_release_for_a_device_holds_what_passed_on_that_device(
    run: Desk, entry: dict[str, object], *, is_last: bool
) -> None:
    _with_gpu(run, is_last=is_last, onnx_fp16=entry)

    assert _promote(run, _GPU).data["variants"] == ["onnx-fp32"]
    assert _promote(run, "cpu").data["variants"] == _TARGETS


@pytest.mark.parametrize("is_last", [False, True])
def test_what_failed_on_the_cpu_and_passed_on_the_gpu_is_released_for_the_gpu_alone(
    run: Desk, *, is_last: bool
) -> None:
    _with_gpu(run, is_last=is_last)
    evidence = run.evidence()
    cpu = evidence["others"][0] if is_last else evidence
    cpu["variants"][0] = changed_entry(cpu["variants"][0], **_FAIL)
    _write(run, evidence)

    assert _promote(run, _GPU).data["variants"] == _TARGETS
    assert _promote(run, "cpu").data["variants"] == ["onnx-fp16"]
    assert _promote(run, "cpu", _GPU).data["variants"] == ["onnx-fp16"]


@pytest.mark.parametrize("is_last", [False, True])
def test_a_release_for_two_devices_holds_what_passed_on_both_and_names_both(run: Desk, *, is_last: bool) -> None:
    _with_gpu(run, is_last=is_last, onnx_fp16=_FAIL)

    called = _promote(run, "cpu", _GPU)

    assert called.data["variants"] == ["onnx-fp32"]
    manifest = _stored(run, "manifest.json")
    (variant,) = manifest["variants"]
    found = [variant["evidence"], *variant["evidence"]["also"]]
    assert [(item["device"], item["devices"], item["kind"]) for item in found] == [
        ("cpu", ["cpu"], "verified"),
        (_GPU, [_GPU], "verified"),
    ]
    machines = manifest["provenance"]["machines"]
    assert {device: machine["gpu"] for device, machine in machines.items()} == {"cpu": None, _GPU: _H100}
    evidence = _stored(run, "evidence.json")
    assert {evidence["device"], *(item["device"] for item in evidence["others"])} == {"cpu", _GPU}
    shown = run.call("show", "tiny", "1", "--repository", "artifacts/repository").out
    words = " ".join(shown.split())
    assert "verified on cpu by onnxruntime" in words
    assert f"verified on {_GPU} by onnxruntime" in words


def test_without_a_named_device_it_is_that_of_the_last_validation(run: Desk) -> None:
    _with_gpu(run, is_last=True, onnx_fp32=_FAIL)

    called = _promote(run)

    assert called.data["variants"] == ["onnx-fp16"]
    assert _stored(run, "manifest.json")["choice"]["devices"] == [_GPU]


def test_why_a_variant_is_left_out_names_the_device(run: Desk) -> None:
    _with_gpu(run, onnx_fp32=_FAIL, onnx_fp16={**_CRASH, "evidence": "built", "verdict": "not run here"})

    called = _promote(run, "cpu", _GPU)

    why = f"(onnx-fp32: fail on {_GPU}, onnx-fp16: does not run on {_GPU})"
    assert called.data["reason"] == f"fallback: source, because no converted variant passed for cpu, {_GPU} {why}"


def test_a_device_that_no_machine_had_is_refused_and_those_that_were_there_are_named(run: Desk) -> None:
    _with_gpu(run)

    called = _promote(run, "cpu", "cuda:sm80")

    assert (called.code, run.releases) == (2, [])
    assert f"nothing in this run was verified on 'cuda:sm80' (verified on: cpu, {_GPU})" in called.err


def test_evidence_about_a_file_that_was_made_again_does_not_count(run: Desk) -> None:
    _with_gpu(run, onnx_fp16={"artifact": "sha256:" + "0" * 64})

    assert _promote(run, _GPU).data["variants"] == ["onnx-fp32"]
    _promise(run, prefer=["onnx-fp16"], fallback="replace")
    reason = _promote(run, _GPU).data["reason"]
    assert f"onnx-fp16: what was compared on {_GPU} is a different file, or none" in reason


def test_an_emulated_row_does_not_stand_for_a_device_that_was_there(run: Desk) -> None:
    _with_gpu(run, onnx_fp16=_FAIL)
    _promise(run, accept={"onnx-fp16": "emulated"}, prefer=["onnx-fp16"])

    assert _promote(run, _GPU).data["variants"] == ["source"]


def test_an_emulated_row_does_not_save_what_failed_on_another_gpu(run: Desk) -> None:
    _with_gpu(run, onnx_fp16=_FAIL)
    _promise(run, accept={"onnx-fp16": "emulated"}, prefer=["onnx-fp16"], **{"for": ["cuda:sm80"]})

    assert _promote(run).data["variants"] == ["source"]


def test_an_emulated_row_stands_for_the_absent_device_beside_the_one_that_it_passed_on(run: Desk) -> None:
    _promise(run, accept={"onnx-fp16": "emulated"})

    called = _promote(run, "cpu", _GPU)

    assert called.data["variants"] == ["onnx-fp16"], str(called)
    (variant,) = _stored(run, "manifest.json")["variants"]
    found = [variant["evidence"], *variant["evidence"]["also"]]
    assert [(item["kind"], item["devices"], item["has_run"]) for item in found] == [
        ("emulated", [_GPU], True),
        ("verified", ["cpu"], True),
    ]
    assert called.data["reason"].endswith("accepted on emulated evidence by the spec: onnx-fp16")


@pytest.mark.parametrize("damage", [{}, {"device": "cuda:sm80"}, "text", None])
def test_damaged_evidence_of_another_device_releases_nothing(run: Desk, damage: object) -> None:
    _write(run, {**run.evidence(), "others": [damage]})

    called = _promote(run)

    assert (called.code, run.releases) == (2, [])
    assert "evidence.json is corrupt: others.0" in called.err


def test_a_device_that_stands_twice_releases_nothing(run: Desk) -> None:
    evidence = run.evidence()
    _write(run, {**evidence, "others": [_on(run, evidence, "cpu")]})

    called = _promote(run)

    assert (called.code, run.releases) == (2, [])
    assert "a device occurs twice (cpu, cpu)" in called.err


def test_evidence_of_another_device_about_another_reference_releases_nothing(run: Desk) -> None:
    evidence = run.evidence()
    other = _on(run, evidence, _GPU)
    other["reference"]["digest"] = "sha256:" + "0" * 64
    _write(run, {**evidence, "others": [other]})

    called = _promote(run)

    assert (called.code, run.releases) == (5, [])
    assert "is about another reference than the one in" in called.err


def test_a_validation_keeps_what_was_found_on_other_devices(run: Desk) -> None:
    # As if the run had come back from the GPU machine: its evidence is the last one.
    _with_gpu(run, is_last=True, onnx_fp16=_FAIL)
    gpu = {key: value for key, value in run.evidence().items() if key != "others"}

    called = run.json("validate", "--verbose", "--run", str(run.run_folder))

    assert called.code == 0, str(called)
    evidence = run.evidence()
    assert evidence["device"] == "cpu"
    assert evidence["others"] == [{**gpu, "others": []}]
    assert _promote(run, _GPU).data["variants"] == ["onnx-fp32"]


def test_a_validation_of_another_reference_keeps_nothing(run: Desk) -> None:
    _with_gpu(run, is_last=True)
    run.samples(seed=1)
    assert run.call("record", "--run", str(run.run_folder)).code == 0

    assert run.json("validate", "--verbose", "--run", str(run.run_folder)).code == 0

    assert run.evidence()["others"] == []


def test_of_the_kept_evidence_the_newest_comes_first(run: Desk) -> None:
    cpu = run.evidence()
    _write(run, {**cpu, "others": [_on(run, cpu, device) for device in ("cuda:sm80", _GPU)]})
    folder = open_run(run.run_folder)

    kept = evidence_of_others(folder, Recording.load(folder.reference), _GPU)

    assert [item.device for item in kept] == ["cpu", "cuda:sm80"]
    assert all(item.others == () for item in kept)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"others": 3}'])
def test_of_evidence_that_cannot_be_read_nothing_is_kept(run: Desk, text: str) -> None:
    folder = open_run(run.run_folder)
    recording = Recording.load(folder.reference)
    folder.evidence_file.write_text(text, encoding="utf-8")

    assert evidence_of_others(folder, recording, "cpu") == ()
    folder.evidence_file.unlink()
    assert evidence_of_others(folder, recording, "cpu") == ()


@pytest.mark.parametrize("key", ["device", "reference", "machine", "variants"])
def test_evidence_without_one_of_its_parts_is_none(run: Desk, key: str) -> None:
    path, evidence = run.run_folder / "evidence.json", run.evidence()

    assert read_evidence(path).device == "cpu"
    for damaged in ({name: value for name, value in evidence.items() if name != key}, {**evidence, key: 3}):
        _write(run, damaged)
        with pytest.raises(InputFileError, match=rf"evidence\.json is corrupt: {key} is "):
            read_evidence(path)


def test_the_report_names_the_other_machine_and_what_was_found_there(run: Desk) -> None:
    _with_gpu(run, is_last=True, onnx_fp16={**_FAIL, "artifact": "sha256:" + "0" * 64})

    run.json("validate", "--verbose", "--run", str(run.run_folder))

    page = (run.run_folder / "report.md").read_text(encoding="utf-8")
    html = (run.run_folder / "report.html").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(f"| {_GPU} |")]
    assert [[*line.split(" | ")[2:4], line.split(" | ")[-1]] for line in rows] == [
        ["onnx-fp32", "120", "✓ pass |"],
        ["onnx-fp16", "0", "○ not measured |"],
    ]
    assert "NVIDIA H100 (driver 570.86, CUDA 12.8)" in rows[0]
    assert "another file" in rows[1]
    for text in (page, html):
        assert "Validated on other devices" in text
        assert f"Validated on {_GPU}, on this machine" in text


@pytest.mark.thorough
def test_a_benchmark_counts_on_the_machine_of_its_device_whatever_was_validated_since(run: Desk) -> None:
    run.json("benchmark", "--run", str(run.run_folder), "--rounds", "2", "--seconds", "0.01")
    _with_gpu(run, is_last=True)
    evidence = run.evidence()
    # The GPU machine has another processor than the one where the benchmark was made.
    evidence["machine"]["cpu"] = {"model": "another processor", "flags": []}
    _write(run, evidence)
    chosen = {
        devices: run.json(
            "choose", "--run", str(run.run_folder), *(word for name in devices for word in ("--for", name))
        )
        for devices in (("cpu",), (_GPU,), ("cpu", _GPU))
    }

    assert chosen["cpu",].code == 0
    for devices in ((_GPU,), ("cpu", _GPU)):
        assert chosen[devices].code == 5
        assert "its speed was not measured (benchmarked on cpu only)" in chosen[devices].data["reason"]
