"""What a run says of several variants: what holds for more than one is said once, with their names."""

from __future__ import annotations

import pytest

from paritygate.pipelines.compare.result import ComparisonResult, ProbeResult, ProbesResult, SideResult
from paritygate.pipelines.report.terminal.comparison_details import probes_of_all_line, shared_remarks


def _result(*, rows: int, detail: str, notes: list[str]) -> ComparisonResult:
    probe = ProbeResult(
        looks_for="faults", status="pass", detail="", batches=1, rows=rows, dropped=0, unfit=0, unfit_first=[],
        failed=0, failures=[], seconds=2.0, reference_seconds=1.0,
    )  # fmt: skip
    apart = ProbeResult(
        looks_for="faults", status="not asked", detail=detail, batches=0, rows=0, dropped=0, unfit=0, unfit_first=[],
        failed=0, failures=[], seconds=0.0, reference_seconds=None,
    )  # fmt: skip
    return ComparisonResult(
        verdict="pass",
        exit_code=0,
        rows=100,
        precision="fp32",
        reference=SideResult(name="source", kind="onnx"),
        candidate=SideResult(name="candidate", kind="onnx"),
        samples="samples.npz",
        probes=ProbesResult(asked={"ids": probe, "concurrent": apart}, samples_seconds=0.5),
        notes=notes,
    )


def test_remarks_and_notes_that_several_variants_share_are_said_once() -> None:
    found = {
        "onnx-fp32": _result(rows=40, detail="not asked: one call at a time", notes=["it executes code"]),
        "onnx-fp16": _result(rows=2, detail="not asked: one call at a time", notes=["it executes code", "rounded"]),
        "tflite-fp32": _result(rows=1, detail="not asked: another reason", notes=[]),
    }

    assert list(shared_remarks(found)) == [
        "onnx-fp32; onnx-fp16: probe concurrent: not asked: one call at a time",
        "onnx-fp32; onnx-fp16: note: it executes code",
        "onnx-fp16: note: rounded",
        "tflite-fp32: probe concurrent: not asked: another reason",
    ]


@pytest.mark.parametrize(("count", "words"), [(1, "7 rows for 1 comparison; 2.0 s, the samples 0.5 s"), (3, "21 rows")])
def test_how_long_all_probes_took_is_one_line(count: int, words: str) -> None:
    (line,) = probes_of_all_line([_result(rows=7, detail="not asked", notes=[])] * count)

    assert words in line


def test_where_no_probe_was_asked_nothing_is_said_of_their_time() -> None:
    result = _result(rows=7, detail="not asked", notes=[])

    assert list(probes_of_all_line([ComparisonResult(**{**_fields(result), "probes": ProbesResult()})])) == []


def _fields(result: ComparisonResult) -> dict[str, object]:
    return {name: getattr(result, name) for name in ComparisonResult.__struct_fields__}
