"""What a fault looks like, strata and the noise floor as a user sees them: in the terminal, in JSON, in reports."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.codec import from_data
from paritygate.pipelines.compare.result import ComparisonResult

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Desk

_OFFSET = "a constant offset: +0.5 everywhere, varying by "


def test_an_output_that_failed_is_told_in_words(bench: Bench) -> None:
    reference, candidate = bench.linear("a"), bench.linear("b", error=0.5)

    outcome = bench.compare(reference, candidate, "--samples", bench.samples(), "--probes", "none")

    (words,) = outcome.result["outputs"]["logits"]["looks_like"]
    assert words.startswith(_OFFSET)
    assert f"looks like [logits]: {words}" in outcome.err + outcome.out
    assert outcome.result["outputs"]["logits"]["rows_beyond"] == 32
    assert outcome.code == 1


def test_an_output_that_passed_is_not(bench: Bench) -> None:
    outcome = bench.compare(
        bench.linear("a"), bench.linear("b", error=1e-6), "--samples", bench.samples(), "--probes", "none"
    )

    assert outcome.result["outputs"]["logits"]["looks_like"] == []
    assert outcome.result["outputs"]["logits"]["rows_beyond"] == 0
    assert "looks like" not in outcome.err + outcome.out


def test_words_survive_the_way_to_disk(bench: Bench) -> None:
    outcome = bench.compare(
        bench.linear("a"), bench.linear("b", error=0.5), "--samples", bench.samples(), "--probes", "none"
    )

    again = from_data(ComparisonResult, outcome.result)

    assert again.outputs["logits"].looks_like == outcome.result["outputs"]["logits"]["looks_like"]


def test_rows_of_recorded_outputs_are_told_by_their_place(bench: Bench) -> None:
    expected = bench.normal(256, 4)
    actual = expected.copy()
    actual[15::16] += np.float32(0.5) * np.array([1, -1, 1, -1], dtype=np.float32)

    outcome = bench.given({"y": expected}, {"y": actual}, "--batch-size", "16")

    assert outcome.result["outputs"]["y"]["looks_like"] == [
        "only rows at the last place of their batch differ: 16 of 16, and none of the other 240"
    ]


def test_a_tolerance_below_the_noise_of_the_reference_is_a_warning(bench: Bench) -> None:
    import onnx

    nodes = [
        onnx.helper.make_node("RandomNormalLike", ["x"], ["noise"], scale=1e-6),
        onnx.helper.make_node("Add", ["x", "noise"], ["logits"]),
    ]
    spec = {"x": ("float", ["batch", "width"])}
    reference = bench.model("a", nodes, inputs=spec, outputs={"logits": ("float", ["batch", "width"])})
    candidate = bench.model(
        "b",
        [onnx.helper.make_node("Identity", ["x"], ["logits"])],
        inputs=spec,
        outputs={"logits": ("float", ["batch", "width"])},
    )

    outcome = bench.compare(
        reference, candidate, "--samples", bench.samples(), "--probes", "none", "--tolerance", "max_abs_diff=1e-8"
    )

    check = outcome.check("noise_floor", "logits")
    assert check["status"] == "warning"
    assert (check["measured"] > check["limit"], check["limit"]) == (True, 1e-8)
    assert check["words"][-1]["values"]["name"] == "max_abs_diff"
    assert outcome.failed == {"max_abs_diff"}
    # Where there is one processor, threads are not among them.
    said = r"warning: noise_floor of logits: [^\n]* over repeats(,| and) batch sizes"
    assert re.search(said, outcome.err + outcome.out)


_ROWS = """
import numpy as np
from paritygate.batch import Batch

def read(path):
    random = np.random.default_rng(0)
    for start in range(0, 120, 12):
        values = random.standard_normal((12, 4)).astype(np.float32)
        yield Batch(inputs={"x": values}, ids=[str(start + at) for at in range(12)],
                    strata={"corpus": ["rare"] * 2 + ["news"] * 10})
"""


@pytest.fixture
def rows_module(desk: Desk) -> str:
    name = f"rows_{desk.folder.name.replace('-', '_')}"
    desk.module(name, _ROWS)
    sys.path.insert(0, str(desk.folder))
    return name


def test_strata_are_shown_with_their_rows_and_those_of_few_rows_are_not_covered(desk: Desk, rows_module: str) -> None:
    desk.spec(samples={"source": f"{rows_module}:read", "strata": ["corpus"]}, probes="none")

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == 0, str(called)
    strata = desk.evidence()["variants"][0]["result"]["strata"]["corpus"]
    assert {value: found["outputs"]["logits"]["rows"] for value, found in strata.items()} == {"news": 100, "rare": 20}
    assert {value: found["outputs"]["logits"]["compared"] for value, found in strata.items()} == {
        "news": 300,
        "rare": 60,
    }
    for found in strata.values():
        assert found["outputs"]["logits"]["p99_abs_diff"] == 0
        assert found["outputs"]["logits"]["rows_beyond"] == 0
        assert found["outputs"]["logits"]["bias_high_95"] == 0
    assert strata["rare"]["decisions"]["logits"]["mismatch_rate_upper_95"] == pytest.approx(1 - 0.05 ** (1 / 20))
    text = called.out + called.err
    assert re.search(r"warning: strata_coverage: [^\n]*'corpus'[^\n]*'rare' \(rows: 20\)", text)
    _assert_reported(desk.run_folder)


def _assert_reported(run: Path) -> None:
    markdown = (run / "report.md").read_text(encoding="utf-8")
    page = (run / "report.html").read_text(encoding="utf-8")
    for report in (markdown, page):
        assert "rows beyond a limit" in report
        assert "strata_coverage" in report
        assert "13.92 %" in report
