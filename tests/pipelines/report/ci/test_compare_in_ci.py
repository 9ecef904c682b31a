"""`compare --format junit` and `github`: what leaves the machine names no row, and every verdict can be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from tests.pipelines.report.ci.test_format_option import result_of

from paritygate.pipelines.compare.result import ProbeFailureResult
from paritygate.pipelines.report.markdown_report import render_comparison
from paritygate.pipelines.report.tables.table import SYMBOLS, status
from paritygate.validate.measure.check import UNDECLARED_PADDING, Check, Status

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench

# Of letters alone: Markdown writes others otherwise.
_PERSON = "AnnaExample"


def _samples(bench: Bench, rows: NDArray[np.float32]) -> str:
    """Write rows with ids that are nobody's business."""
    path = bench.folder / "rows.jsonl"
    lines = [json.dumps({"id": f"{_PERSON}-{at}", "x": values}) for at, values in enumerate(rows.tolist())]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def _of_the_batch(bench: Bench, *, name: str) -> str:
    """Write `logits = x @ weight - mean of the batch`: no row is answered alone as it is among others."""
    make = onnx.helper.make_node
    return bench.model(
        name,
        [
            make("MatMul", ["x", "weight"], ["product"]),
            make("ReduceMean", ["product"], ["mean"], axes=[0], keepdims=1),
            make("Sub", ["product", "mean"], ["logits"]),
        ],
        inputs={"x": ("float", ["batch", 4])},
        outputs={"logits": ("float", ["batch", 3])},
        weights={"weight": bench.normal(4, 3, seed=7)},
    )


def _wrong(bench: Bench) -> tuple[str, str, NDArray[np.float32], tuple[str, ...]]:
    return bench.linear("a"), bench.linear("b", error=0.5), bench.normal(40, 4), ()


def _of_a_batch(bench: Bench) -> tuple[str, str, NDArray[np.float32], tuple[str, ...]]:
    return bench.linear("a"), _of_the_batch(bench, name="b"), bench.normal(40, 4), ("--probes", "batches")


def _only_alone(bench: Bench) -> tuple[str, str, NDArray[np.float32], tuple[str, ...]]:
    # In one batch the rows cancel each other out: it differs where fewer are asked.
    half = bench.normal(8, 4)
    rows = np.concatenate([half, -half])
    return bench.linear("a"), _of_the_batch(bench, name="b"), rows, ("--batch-size", "16", "--probes", "batches")


def _not_finite(bench: Bench) -> tuple[str, str, NDArray[np.float32], tuple[str, ...]]:
    rows = bench.normal(40, 4)
    rows[7] = 3e38
    return bench.linear("a"), bench.linear("b"), rows, ()


def _refused_rows(bench: Bench) -> tuple[str, str, NDArray[np.float32], tuple[str, ...]]:
    return bench.linear("a"), bench.linear("b", batch=3), bench.normal(40, 4), ()


@pytest.mark.parametrize("form", ["junit", "github"])
@pytest.mark.parametrize("case", [_wrong, _of_a_batch, _only_alone, _not_finite, _refused_rows])
def test_what_leaves_the_machine_names_no_row(
    case: object, form: str, bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    reference, candidate, rows, options = case(bench)  # type: ignore[operator]  # one of the functions above

    outcome = bench.compare(reference, candidate, "--samples", _samples(bench, rows), "--format", form, *options)

    assert outcome.code not in {0, 2}, outcome.err
    # Here, rows are named: what is compared and its JSON stay on this machine.
    assert _PERSON in outcome.err + outcome.out + json.dumps(outcome.result)
    said = [line for line in outcome.out.splitlines() if form == "junit" or line.startswith("::")]
    assert len(said) > 2
    assert [line for line in said if _PERSON in line] == []
    assert form == "junit" or _PERSON not in summary.read_text(encoding="utf-8")


@pytest.mark.parametrize("verdict", ["pass", "fail", "inconclusive"])
def test_a_comparison_with_a_finding_has_a_page(verdict: str) -> None:
    edge = ProbeFailureResult(probe="rare", batch=0, about="NaN in x", check="finite", detail="nan", edge="NaN in x")
    padding = Check(name=UNDECLARED_PADDING, status=Status.EDGE, output="y", detail="it differs")

    for changes in ({"edge_findings": [edge]}, {"checks": [padding]}):
        assert verdict in render_comparison(result_of(verdict=verdict, **changes)).splitlines()[0]


@pytest.mark.parametrize("word", [*SYMBOLS, "a verdict of tomorrow"])
@pytest.mark.parametrize("flag", ["", "edge"])
def test_every_status_has_a_symbol_beside_its_word(word: str, flag: str) -> None:
    cell = status(word, flag=flag)

    assert cell.text.startswith(word)
    assert len(cell.symbol) == 1
