"""Rows within the limits of the samples need no other look, but where their own answer may be stricter than those."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure import profile as profiles
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.probes.recording import BatchRecord, ProbesRecording, StoredProbeBatch
from paritygate.validate.probes.run import JudgedProbe, ProbeQuestion

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FILL = np.float32(-1e9)


def _judged(
    expected: NDArray[Any], actual: NDArray[Any], *, is_unlike_seen: bool = False, axis: int | None = None
) -> list[str]:
    """Return the checks that a batch fails, where 50 rows of samples hold ordinary values."""
    samples = np.random.default_rng(0).normal(size=(50, *expected.shape[1:])).astype(np.float32)
    recording = ProbesRecording(
        folder=Path(),
        probes=(),
        roles={},
        profiles={"y": profile_outputs("y", [(samples, len(samples))], axis=axis, dtype="float32")},
    )
    rules = GateRules(tolerance=parse_tolerance(Precision.FP32, {}))
    judged = JudgedProbe(recording, ProbeQuestion(rules=rules, outputs=("y",)), name="batches")
    record = BatchRecord(rows=len(expected), about="some rows", is_beyond_seen=False, is_unlike_seen=is_unlike_seen)
    judged.judge(0, StoredProbeBatch(record=record, inputs={"x": expected}, outputs={"y": expected}), {"y": actual})
    return [failure.check for failure in judged.failures()]


def test_a_fill_value_of_the_rows_themselves_is_compared_exactly() -> None:
    expected = np.array([[0.5, _FILL, 0.25, _FILL], [_FILL, 1.5, _FILL, 0.75]], dtype=np.float32)
    off = np.where(expected == _FILL, np.nextafter(_FILL, np.float32(0)), expected)

    assert _judged(expected, expected.copy()) == []
    assert _judged(expected, off) == ["fill_values"]


def test_rows_spread_wider_than_samples_are_held_to_their_own_answer() -> None:
    # The limit of the samples is 1e-4, and that of rows which are ten times as wide ten times that.
    expected = np.random.default_rng(1).normal(scale=10, size=(8, 4)).astype(np.float32)
    expected[:, 0] = 0
    column = np.array([1, 0, 0, 0], dtype=np.float32)

    for difference, failed in ((4e-5, []), (4e-4, []), (0.1, ["max_abs_diff"])):
        actual = expected + np.float32(difference) * column
        assert _judged(expected, actual, is_unlike_seen=True) == failed, difference


@pytest.mark.parametrize("is_unlike_seen", [False, True])
def test_channels_that_explode_do_not_widen_the_limit_of_one_that_does_not(is_unlike_seen: bool) -> None:  # noqa: FBT001 - a case each
    # By the samples' own scale, most values of each row are far beyond the bulk.
    expected = np.random.default_rng(1).normal(size=(4, 20, 8)).astype(np.float32)
    expected[:, :19] *= 250
    expected = np.clip(expected, -999, 999)
    actual = expected.copy()
    actual[:, 19] += np.float32(1e-3)

    assert _judged(expected, expected.copy(), is_unlike_seen=is_unlike_seen, axis=1) == []
    assert _judged(expected, actual, is_unlike_seen=is_unlike_seen, axis=1) == ["max_abs_diff"]


def test_what_is_within_the_limits_of_samples_is_profiled_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)
    asked: list[str] = []
    real = profiles.profile_outputs
    monkeypatch.setattr(
        "paritygate.validate.probes.run.profile_outputs",
        lambda name, *args, **kwargs: asked.append(name) or real(name, *args, **kwargs),
    )

    assert _judged(expected, expected + np.float32(1e-6)) == []
    assert asked == []
    assert _judged(expected, expected + np.float32(1.0)) == ["max_abs_diff"]
    assert asked == ["y"]
