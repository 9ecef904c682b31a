"""What `compare` says on its one screen: every sentence is true, is said once, and fits."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench


def _screen(bench: Bench, reference: str, candidate: str, *options: str) -> list[str]:
    target = str(bench.folder / "result.json")
    # A path in a command that can be copied is never broken, so it is as short here as where a user stands.
    with contextlib.chdir(bench.folder):
        lines = bench.compare(reference, candidate, "--json", target, *options).out.splitlines()
    assert max(map(cell_len, lines)) <= 80, lines
    return lines


def test_limits_that_were_loosened_are_said_in_one_line(bench: Bench) -> None:
    models = bench.linear("a"), bench.linear("b", error=1e-6)
    samples = ("--samples", bench.samples(), "--decision", "logits:argmax")
    loose = ("--tolerance", "max_abs_diff=0.1", "--tolerance", "decision_mismatches=5")
    said = "limits looser than the default for fp32: max_abs_diff 0.1, decision_mismatches 5"

    assert _screen(bench, *models, *samples, *loose)[-2:] == [said, "verdict: pass"]
    stricter = _screen(bench, *models, *samples, "--tolerance", "max_abs_diff=1e-5")
    assert "looser" not in " ".join(stricter)


def test_findings_beside_a_failure_on_the_samples_are_only_counted(bench: Bench) -> None:
    options = ("--samples", bench.samples(), "--probes", "values")
    failed = _screen(bench, bench.linear("a"), bench.linear("b", error=1), *options)
    findings = [line for line in failed if line.startswith("out-of-sample finding")]

    assert findings == ["out-of-sample findings: 1, beside what fails on the samples already: see -v"]
    assert failed[-1] == "verdict: fail, 1 out-of-sample finding"
    # All of it is said to who asks for it.
    verbose = bench.compare(bench.linear("a"), bench.linear("b", error=1), *options).out
    assert "out-of-sample finding: probe_values: " in verbose
    assert "see -v" not in verbose
    assert "  if it never can, leave such rows out: give --role " in verbose


def test_how_a_probe_fails_alone_is_said_only_where_the_samples_do_not_fail(bench: Bench) -> None:
    options = ("--samples", bench.samples(), "--probes", "batches")
    verbose = bench.compare(bench.linear("a"), bench.linear("b", error=1), *options)

    assert {"max_abs_diff", "probe_batches"} <= verbose.failed
    assert "probe batches: to see this alone: " in verbose.out
    assert "to see the failure" not in " ".join(_screen(bench, bench.linear("a"), bench.linear("b", error=1), *options))


def test_what_fails_by_its_decisions_alone_has_no_share_of_a_limit(bench: Bench) -> None:
    weight = np.zeros((4, 3), dtype=np.float32)
    weight[0] = 1, 1.00001, -1
    models = bench.linear("a", weight=weight), bench.linear("b", weight=weight[:, [1, 0, 2]])
    options = ("--samples", bench.samples(), "--decision", "logits:argmax")

    (row,) = (line for line in _screen(bench, *models, *options) if line.startswith("fail"))
    assert row.split() == ["fail", "fp32", "14", "-"]


def test_batches_of_a_probe_are_said_by_their_rows(bench: Bench) -> None:
    options = ("--samples", bench.samples(), "--probes", "batches")
    found = bench.compare(bench.linear("a"), bench.linear("b", error=1), *options)

    assert "fail: probe_batches: at a batch of 33 rows: " in found.out
    asked = [failure["about"] for failure in found.result["probes"]["asked"]["batches"]["failures"]]
    assert asked[1].endswith(" rows, run after one of 33")


def test_why_no_probe_is_asked_is_said_without_the_name_of_a_check(bench: Bench) -> None:
    options = ("--samples", bench.samples(), "--probes", "batches")
    named = bench.compare(bench.linear("a"), bench.linear("b", output="other"), *options)
    fixed = bench.compare(bench.linear("a"), bench.linear("b", batch=4), *options)

    assert "(contract.outputs)" in named.result["probes"]["skipped"]
    for found in (named, fixed):
        assert " ".join(found.result["probes"]["skipped"].split()) in " ".join(found.out.split())
    assert "accepts_inputs" not in fixed.result["probes"]["skipped"]
