"""Outputs of text are compared exactly, and recorded as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.errors import ReferenceRefusedError
from paritygate.precision import Precision
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, Measurement, OutputComparison, repeat_difference
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.reference.record import check_health
from paritygate.validate.reference.recording import ChunkWriter, read_chunks
from paritygate.validate.words.sentence import say

_WORDS = np.array([["cat", "dog"], ["", "강아지"], ["cat", "cat"]])


def _plan(expected: NDArray[np.generic]) -> ComparisonPlan:
    profile = profile_outputs("label", [(expected, len(expected))], axis=None, dtype="string")
    return ComparisonPlan(
        profiles={"label": profile}, limits={"label": limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile)}
    )


def _compared(actual: NDArray[np.generic], expected: NDArray[np.generic]) -> Measurement:
    comparison = OutputComparison(_plan(expected))
    ids = [str(row) for row in range(len(expected))]
    comparison.add(Batch(inputs={}, ids=ids), {"label": actual}, {"label": expected})
    comparison.end_pass()
    return comparison.finish()


def test_text_that_differs_is_counted_and_its_row_is_named() -> None:
    actual = _WORDS.astype("<U9")
    actual[1, 1] = "고양이"

    found = _compared(actual, _WORDS)

    assert found.violations == ()
    statistics = found.statistics["label"]
    assert (statistics.mismatches, statistics.values, statistics.worst_rows[0].row_id) == (1, 6, "1")


def test_the_same_text_is_the_same_however_wide_its_array_is() -> None:
    found = _compared(_WORDS.astype("<U9"), _WORDS)

    assert found.violations == ()
    assert (found.statistics["label"].mismatches, found.statistics["label"].max_abs_diff) == (0, 0)


def test_text_in_place_of_numbers_breaks_the_contract() -> None:
    found = _compared(np.zeros((3, 2), np.int64), _WORDS)

    (violation,) = found.violations
    assert violation.check == "dtype"
    assert violation.details == (say("contract.dtype", actual_dtype="int64", expected_dtype="string"),)


def test_a_pass_that_answers_other_text_is_no_repetition() -> None:
    plan = _plan(_WORDS)
    limits = plan.limits["label"]
    other = _WORDS.astype("<U9")

    assert repeat_difference(other, _WORDS, limits) == (0, 0)
    other[0, 0] = "cats"
    assert repeat_difference(other, _WORDS, limits)[0] == np.inf


def test_a_reference_that_always_answers_one_text_is_refused() -> None:
    always = np.full(4, "cat")
    profiles = {
        words[0]: profile_outputs("label", [(words, 4)], axis=None, dtype="string")
        for words in (always, np.array(["dog", "cat", "cat", "cat"]))
    }

    assert [profile.varies for profile in profiles.values()] == [False, True]
    with pytest.raises(ReferenceRefusedError, match="its output is the same for every row"):
        check_health({"label": profiles["cat"]}, is_non_finite_declared=False)


@pytest.mark.parametrize(
    "words", [_WORDS, np.array("alone"), np.array([""]), np.zeros((0, 2), "<U3")], ids=["table", "one", "empty", "none"]
)
def test_text_is_recorded_as_it_is(tmp_path: Path, words: NDArray[np.str_]) -> None:
    writer = ChunkWriter(tmp_path)
    for array in (words, words.astype("<U40")):
        writer.add({"label": array, "x": np.ones(3)}, rows=3, case=None)
    writer.flush()

    assert writer.dtypes == {"label": "string", "x": "float64"}
    for batch in read_chunks(tmp_path, writer.chunks):
        found = batch.outputs["label"]
        assert found.shape == words.shape
        assert found.tolist() == words.tolist()
        assert batch.outputs["x"].tolist() == [1, 1, 1]
