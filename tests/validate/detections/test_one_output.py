"""Detections in one output: any order passes, and every fault in them is caught, in each layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.batch import Batch
from paritygate.errors import UsageError
from paritygate.validate.detections.figures import MatchStatistics
from paritygate.validate.detections.judgement import judge_matches
from paritygate.validate.detections.measurement import MatchComparison
from paritygate.validate.detections.rule import MatchRule, parse_match_rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_ROWS, _COUNT = 3, 40
_RULE = "det:output=out,boxes=0:4,scores=4,classes=5"
# The column before the box is the place of the row, the one after the class a number that the rule does not name.
_FLAT = "det:output=out,boxes=1:5,scores=5,classes=6,picture=0"


def _detections(seed: int = 0) -> NDArray[np.float32]:
    """Return `(rows, N, 7)`: corners far from each other, score, class, and a number more."""
    random = np.random.default_rng(seed)
    cells = np.stack([random.permutation(64)[:_COUNT] for _ in range(_ROWS)])
    corner = np.stack([cells % 8, cells // 8], axis=2) * 20 + random.uniform(0, 2, (_ROWS, _COUNT, 2))
    size = random.uniform(8, 15, (_ROWS, _COUNT, 2))
    scores = random.uniform(0.3, 0.9, (_ROWS, _COUNT, 1))
    classes = random.integers(0, 3, (_ROWS, _COUNT, 1))
    more = random.uniform(0, 1, (_ROWS, _COUNT, 1))
    return np.concatenate([corner, corner + size, scores, classes, more], axis=2).astype(np.float32)


def _permuted(array: NDArray[np.float32]) -> NDArray[np.float32]:
    random = np.random.default_rng(9)
    return np.stack([row[random.permutation(len(row))] for row in array])


def _transposed(array: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(array.swapaxes(1, 2))


def _flat(array: NDArray[np.float32]) -> NDArray[np.float32]:
    places = np.repeat(np.arange(len(array)), array.shape[1])[:, np.newaxis].astype(np.float32)
    return np.concatenate([places, array.reshape(-1, array.shape[2])], axis=1)


_LAYOUTS: dict[str, tuple[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]]] = {
    "last": (_RULE, lambda array: array),
    "first": (_RULE, _transposed),
    "declared": (f"{_RULE},axis=1", _transposed),
    "flat": (_FLAT, _flat),
    "flat, found": (_FLAT.removesuffix(",picture=0"), _flat),
}


def _matched(rule: str, actual: NDArray[Any], expected: NDArray[Any], *, rows: int = _ROWS) -> MatchStatistics:
    comparison = MatchComparison(parse_match_rule(rule))
    batch = Batch(inputs={}, ids=[f"row-{row}" for row in range(rows)])
    comparison.add(batch, {"out": actual}, {"out": expected})
    comparison.end_pass()
    return comparison.finish()


def _failed(found: MatchStatistics) -> set[str]:
    return {check.name for check in judge_matches(found) if str(check.status) != "pass"}


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_another_order_passes_in_every_layout(layout: str) -> None:
    rule, laid = _LAYOUTS[layout]
    expected = _detections()
    actual = _permuted(expected)
    # As a class that was computed in half precision.
    actual[..., 5] += 0.02

    found = _matched(rule, laid(actual), laid(expected))

    assert _failed(found) == set()
    assert (found.matched, found.missing, found.extra) == (_ROWS * _COUNT, 0, 0)


def _moved(array: NDArray[np.float32]) -> None:
    array[1, 7, :4] += 5


def _other_class(array: NDArray[np.float32]) -> None:
    array[1, 7, 5] += 1


def _halved(array: NDArray[np.float32]) -> None:
    array[1, 7, 4] /= 2


def _dropped(array: NDArray[np.float32]) -> None:
    # As a model fills up its lists.
    array[1, 7] = 0


def _doubled(array: NDArray[np.float32]) -> None:
    array[1, 7] = array[1, 8]


def _swapped(array: NDArray[np.float32]) -> None:
    array[[0, 1]] = array[[1, 0]]


def _other_number(array: NDArray[np.float32]) -> None:
    array[1, 7, 6] += 0.5


def _not_finite(array: NDArray[np.float32]) -> None:
    array[1, 7, 6] = np.nan


_FAULTS = {
    _moved: "detections_matched",
    _other_class: "detections_matched",
    _halved: "match_score_diff",
    _dropped: "detections_matched",
    _doubled: "detections_matched",
    _swapped: "detections_matched",
    _other_number: "match_other_diff",
    _not_finite: "finite",
}


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("fault", _FAULTS, ids=lambda fault: fault.__name__)
def test_every_fault_fails_in_every_layout(fault: Callable[[NDArray[np.float32]], None], layout: str) -> None:
    rule, laid = _LAYOUTS[layout]
    expected = _detections()
    actual = expected.copy()
    fault(actual)

    assert _FAULTS[fault] in _failed(_matched(rule, laid(_permuted(actual)), laid(expected)))


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 11, 300])
def test_lists_of_any_length_are_read_along_the_last_axis(count: int) -> None:
    expected = np.resize(_detections(), (_ROWS, count, 7)).astype(np.float32)

    assert _matched(_RULE, expected, expected).expected == _ROWS * count


def test_a_candidate_with_the_axes_exchanged_breaks_the_contract() -> None:
    expected = _detections()

    assert _failed(_matched(_RULE, _transposed(expected), expected)) == {"contract.match"}
    assert _failed(_matched(_RULE, expected[..., :6], expected)) == {"contract.match"}


def test_a_list_for_the_whole_batch_in_which_all_are_of_the_first_picture_fails() -> None:
    expected = _flat(_detections())
    actual = expected.copy()
    actual[:, 0] = 0

    assert "detections_matched" in _failed(_matched(_FLAT, actual, expected))
    actual[:, 0] = _ROWS
    assert _failed(_matched(_FLAT, actual, expected)) == {"contract.match"}


def test_numbers_that_change_from_batch_to_batch_ask_for_the_axis() -> None:
    comparison = MatchComparison(parse_match_rule(_RULE))
    for count in (7, 9):
        outputs = {"out": np.zeros((1, count, 40), np.float32)}
        if count == 7:
            comparison.add(Batch(inputs={}, ids=["a"]), outputs, outputs)
        else:
            with pytest.raises(UsageError):
                comparison.add(Batch(inputs={}, ids=["a"]), outputs, outputs)


@pytest.mark.parametrize(
    "text",
    [
        "det:output=out,boxes=0:3,scores=4",
        "det:output=out,boxes=boxes,scores=4",
        "det:output=out,boxes=0:4,scores=3",
        "det:output=out,boxes=0:4,scores=4:6",
        "det:output=out,boxes=0:4,scores=-1",
        "det:output=out,boxes=0:4,scores=4,axis=3",
        "det:output=out,boxes=0:4,scores=4,axis=1.5",
        "det:output=out,boxes=0:4,scores=4,picture=5,axis=1",
        "det:output=out,boxes=0:4,scores=4,num=out",
        "det:boxes=b,scores=s,axis=1",
        "det:boxes=b,scores=s,picture=1",
    ],
)
def test_columns_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_match_rule(text)


def test_a_rule_is_written_as_it_is_read() -> None:
    for text in (_RULE, _FLAT, f"{_RULE},axis=1,other_tolerance=0.5"):
        rule = parse_match_rule(text)
        assert isinstance(rule, MatchRule)
        assert parse_match_rule(str(rule)) == rule
