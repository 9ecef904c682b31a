"""What the table of the gate's cost counts, without a model."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def cost(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(project_root / "benchmarks")
    return importlib.import_module("gate_cost")


def test_seconds_of_children_count_while_they_run_and_once_they_ended(cost: ModuleType) -> None:
    before = cost.family_seconds(os.getpid())
    busy = "import time, sys\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", busy]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running = cost.family_seconds(os.getpid())
        child.communicate()
    ended = cost.family_seconds(os.getpid())

    assert running - before >= 0.25
    # A sum of fractions may be one rounding smaller.
    assert ended >= running - 1e-6


def test_what_is_spent_between_two_words_of_progress_is_the_first_ones(
    cost: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 1.0, 3.0, 3.5])
    monkeypatch.setattr(cost, "family_seconds", lambda _: next(now))
    meter = cost.Meter()

    report = meter.of("validate")
    report("running the candidate, pass 1 of 2", 16, 0)
    report("running the candidate, pass 2 of 2", 16, 0)
    report("running the candidate: probe batches", 4, 0)
    meter.begin("end")

    assert dict(meter.spent) == {
        "validate: starting": 1.0,
        "validate: running the candidate, the samples": 2.0,
        "validate: running the candidate: probe batches": 0.5,
    }


def test_the_table_says_what_probes_cost_and_what_they_may(cost: ModuleType) -> None:
    text = cost.printed(
        {
            "model": "cnn", "rows": 256, "verdicts": {"onnx-fp32": "pass"}, "inference_cpu_s": 0.5,
            "probes_of_reference_cpu_s": 2.25, "allowed_for_these_cpu_s": 7.0, "cpu_s": 30.0, "wall_s": 19.0,
            "aim_wall_s": 20.0, "stages": {"record: loading the source": {"cpu_s": 2.5, "passes": 5.0}},
        }
    )  # fmt: skip

    assert "cnn: 256 rows, a pass of inference 0.5 s of CPU\n  onnx-fp32: pass\n" in text
    assert "2.50 s     5.0 x  record: loading the source" in text
    assert "2.25 s            probes of the reference, of 7.0 s allowed" in text
    assert "30.00 s            all; on the clock 19.0 s, aim 20.0 s" in text


def test_a_model_that_there_is_not_is_refused(cost: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cost.main(["resnet"])

    assert "no such model: resnet" in capsys.readouterr().err
