"""A row that fails by no more than the reference differs from itself in it passes, and a warning says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.pipelines.compare.excused.noisy_model import noisy_model

from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.compare.excused import reference_noise

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Outcome


def _compare(
    bench: Bench, *, of_reference: float, of_candidate: float, is_recorded: bool = False, noisy: tuple[int, ...] = (40,)
) -> Outcome:
    x = np.random.default_rng(0).uniform(-0.8, 0.8, size=(64, 3)).astype(np.float32)
    x[list(noisy), 1] = 0.95
    samples = bench.npz("samples.npz", {"x": x})
    reference = noisy_model(bench, "a", noise=of_reference)
    if is_recorded:
        reference = bench.npz("outputs.npz", {"y": x})
    candidate = noisy_model(bench, "b", noise=of_candidate, is_always=True)
    return bench.compare(reference, candidate, "--samples", samples, "--probes", "none")


@pytest.mark.parametrize(
    ("of_reference", "of_candidate", "code"), [(0.0, 3e-4, 1), (4e-4, 3e-4, 0), (4e-4, 6e-4, 1), (5e-3, 3e-4, 1)]
)
def test_the_limit_of_a_row_is_what_the_reference_differs_by_there(
    bench: Bench, *, of_reference: float, of_candidate: float, code: int
) -> None:
    found = _compare(bench, of_reference=of_reference, of_candidate=of_candidate)

    assert found.code == code, found.out
    excused = re.search(r"row '40' differs by 0\.0003\b[^\n]* 0\.0004\b", " ".join(found.out.split()))
    assert (excused is not None) is (code == 0)
    unsound = [check for check in found.result["checks"] if "noise.excuses_nothing" in str(check["words"])]
    assert (len(unsound) == 1) is (of_reference == 5e-3)
    assert all(check["words"][-1]["values"]["row"] == "40" for check in unsound)


def test_the_figures_of_a_row_that_is_excused_stay_as_measured(bench: Bench) -> None:
    found = _compare(bench, of_reference=4e-4, of_candidate=3e-4)

    assert found.result["outputs"]["y"]["max_abs_diff"] == pytest.approx(3e-4, rel=1e-3)
    assert "noise.excused_rows" in str(found.check("max_abs_diff")["words"])
    assert found.result["outputs"]["y"]["looks_like"] == []


def test_outputs_that_were_recorded_excuse_nothing(bench: Bench) -> None:
    found = _compare(bench, of_reference=4e-4, of_candidate=3e-4, is_recorded=True)

    assert (found.code, "max_abs_diff" in found.failed) == (1, True)


def test_more_rows_than_may_be_excused_excuse_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_noise, "most_noisy", lambda _: 1)
    monkeypatch.setattr(reference_noise, "may_be_noise", lambda _: True)
    found = _compare(bench, of_reference=4e-4, of_candidate=3e-4, noisy=(30, 40))

    assert (found.code, "max_abs_diff" in found.failed) == (1, True)
    assert "noise.excused" not in str(found.result["checks"])


def test_a_source_that_cannot_be_loaded_is_named_where_it_could_excuse_rows(bench: Bench) -> None:
    x = np.random.default_rng(0).uniform(-0.8, 0.8, size=(64, 3)).astype(np.float32)
    x[40, 1] = 0.95
    samples = bench.npz("samples.npz", {"x": x})
    source = Path(noisy_model(bench, "a", noise=4e-4))
    recording = str(bench.folder / "recording")
    assert cli.main(["record", str(source), "--samples", samples, "--out", recording], standalone_mode=False) == 0
    source.write_bytes(b"no model")
    candidate = noisy_model(bench, "b", noise=3e-4, is_always=True)
    found = bench.compare(recording, candidate, "--samples", samples, "--source", str(source))

    (check,) = [check for check in found.result["checks"] if "noise.not_asked" in str(check["words"])]
    assert (found.code, check["status"]) == (1, "warning")
    assert source.name in str(check["words"])
