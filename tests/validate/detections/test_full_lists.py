"""Detections at the end of a full list: of those that score alike it is chance which is in it, and of no others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paritygate.batch import Batch
from paritygate.validate.detections.figures import MatchStatistics
from paritygate.validate.detections.judgement import judge_matches
from paritygate.validate.detections.measurement import MatchComparison
from paritygate.validate.detections.rule import MatchRule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs = dict[str, NDArray[Any]]

_RULE = MatchRule(name="detections", boxes="boxes", scores="scores", classes="labels")
_TOLERANCE = _RULE.score_tolerance


def _all_found(seed: int, *, rows: int = 1, count: int = 12) -> Outputs:
    """Return what a detector finds before its list is cut: boxes far from each other, the highest score first."""
    random = np.random.default_rng(seed)
    cells = np.stack([random.permutation(25)[:count] for _ in range(rows)])
    corner = np.stack([cells % 5, cells // 5], axis=2) * 20.0
    return {
        "boxes": np.concatenate([corner, corner + random.uniform(8, 15, (rows, count, 2))], axis=2).astype(np.float32),
        "scores": -np.sort(-random.uniform(0.3, 1.0, (rows, count)), axis=1).astype(np.float32),
        "labels": random.integers(0, 3, (rows, count)),
    }


def _cut(found: Outputs, places: int) -> Outputs:
    """Return the best of each picture, as many as the list has places."""
    best = np.argsort(-found["scores"], axis=1, kind="stable")[:, :places]
    at = np.arange(len(best))[:, None]
    return {name: array[at, best] for name, array in found.items()}


def _without(found: Outputs, at: int) -> Outputs:
    return {name: np.delete(array, at, axis=1) for name, array in found.items()}


def _matched(*pictures: tuple[Outputs, Outputs], rule: MatchRule = _RULE) -> MatchStatistics:
    """Match pictures, (actual, expected) each, a batch each."""
    comparison = MatchComparison(rule)
    for number, (actual, expected) in enumerate(pictures):
        rows = len(expected["scores"])
        comparison.add(Batch(inputs={}, ids=[f"{number}-{row}" for row in range(rows)]), actual, expected)
    comparison.end_pass()
    return comparison.finish()


def _status(found: MatchStatistics) -> str:
    return str(next(check.status for check in judge_matches(found) if check.name == "detections_matched"))


@given(seed=st.integers(0, 10_000), at=st.integers(0, 7))
def test_a_detection_that_scores_clearly_above_the_end_of_a_full_list_is_missed(seed: int, at: int) -> None:
    """The next one moves up into the place of one that the candidate drops, so both lists are full."""
    found = _all_found(seed)
    expected, actual = _cut(found, 8), _cut(_without(found, at), 8)
    lowest = actual["scores"].min()

    measured = _matched((actual, expected))

    assert measured.matched == 7
    if expected["scores"][0, at] > lowest + _TOLERANCE:
        assert (_status(measured), measured.missing, measured.at_end) == ("fail", 1, 0)
        assert "row '0-0': 1 missing, such as [" in measured.examples[0]
    else:
        assert (measured.missing, measured.extra, measured.at_end) == (0, 0, 2)


@given(seed=st.integers(0, 10_000), noise=st.floats(0, 0.004), other=st.integers(0, 10_000))
def test_an_honest_error_in_the_scores_is_never_a_missing_detection(seed: int, noise: float, other: int) -> None:
    found = _all_found(seed, rows=20)
    error = np.random.default_rng(other).uniform(-noise, noise, found["scores"].shape).astype(np.float32)

    measured = _matched((_cut({**found, "scores": found["scores"] + error}, 8), _cut(found, 8)))

    assert (measured.missing, measured.extra) == (0, 0)
    assert _status(measured) != "fail"


def test_a_blank_picture_among_others_passes_whichever_of_its_equal_scores_are_in_the_list() -> None:
    blank = _all_found(0)
    blank["scores"][:] = np.float32(0.6217)
    seen = [_cut(_all_found(seed), 8) for seed in range(1, 20)]
    turned = {name: array[:, ::-1] for name, array in blank.items()}

    measured = _matched((_cut(turned, 8), _cut(blank, 8)), *((one, one) for one in seen))

    assert (_status(measured), measured.matched, measured.at_end, measured.end_rows) == ("pass", 19 * 8 + 4, 8, 1)
    detail = judge_matches(measured)[0].detail
    assert re.search(r"\b8 unmatched .* 1 of 20 rows", detail)
    assert "near the score floor" not in detail


def test_equal_scores_in_every_picture_are_no_proof() -> None:
    """A detector that is sure of everything and has all boxes wrong."""
    expected = _cut(_all_found(0, rows=40), 8)
    expected["scores"][:] = np.float32(0.999)
    wrong = {**expected, "boxes": expected["boxes"] + np.float32(7)}

    assert _status(_matched((wrong, expected))) == "inconclusive"
    assert judge_matches(_matched((wrong, expected)))[0].words[-1].key == "match.mostly_end"
    # Nor is it where the last place alone is wrong, each time.
    last = _cut(_all_found(1, rows=40), 8)
    moved = {**last, "boxes": last["boxes"].copy()}
    moved["boxes"][:, -1] += np.float32(7)
    assert _status(_matched((moved, last))) == "inconclusive"
    # From a floor above the end on there is no chance in it.
    sure = replace(_RULE, score_floor=float(last["scores"][:, -1].max()) + 2 * _TOLERANCE)
    assert _status(_matched((moved, last), rule=sure)) == "pass"


@pytest.mark.parametrize("side", ["zero", "number", "shorter"])
def test_a_list_with_room_left_has_no_end(side: str) -> None:
    found = _all_found(3)
    expected = _cut(found, 8)
    actual = _without(expected, 7)
    rule = _RULE
    if side == "zero":
        # Filled up by what is not a detection.
        actual = {name: np.concatenate([array, np.zeros_like(array[:, :1])], axis=1) for name, array in actual.items()}
    elif side == "number":
        rule = replace(_RULE, num="num")
        actual = {name: np.concatenate([array, array[:, :1]], axis=1) for name, array in actual.items()}
        expected, actual = ({**of, "num": np.array([count])} for of, count in ((expected, 8), (actual, 7)))

    measured = _matched((actual, expected), rule=rule)

    assert (_status(measured), measured.missing, measured.at_end) == ("fail", 1, 0)


@pytest.mark.parametrize("is_first", [False, True])
def test_a_list_shorter_than_another_picture_s_was_not_cut_off(*, is_first: bool) -> None:
    longer, short = _cut(_all_found(4), 8), _cut(_all_found(5), 5)
    moved = {**short, "boxes": short["boxes"].copy()}
    moved["boxes"][:, -1] += np.float32(7)
    pictures = [(moved, short), (longer, longer)]

    measured = _matched(*(pictures if is_first else pictures[::-1]))

    assert (_status(measured), measured.missing, measured.extra, measured.at_end) == ("fail", 1, 1, 0)
    assert f"row '{0 if is_first else 1}-0': 1 missing, such as [" in measured.examples[0]


def test_a_list_of_one_place_is_held_to_it() -> None:
    expected = _cut(_all_found(8, rows=40), 1)
    actual = {**expected, "boxes": expected["boxes"].copy()}
    actual["boxes"][0] += np.float32(7)

    measured = _matched((actual, expected))

    assert (_status(measured), measured.missing, measured.extra) == ("fail", 1, 1)


def test_a_clear_miss_beside_the_end_leaves_nothing_excused() -> None:
    expected = _cut(_all_found(6), 8)
    actual = {**expected, "labels": expected["labels"] + 1}

    measured = _matched((actual, expected))

    assert (measured.missing, measured.extra, measured.at_end) == (8, 8, 0)


def test_a_clear_miss_in_one_picture_leaves_no_other_picture_excused() -> None:
    seen = [_cut(_all_found(seed), 8) for seed in range(20)]
    wrong = [{name: array.copy() for name, array in one.items()} for one in seen]
    wrong[3]["boxes"][:, -1] += np.float32(7)
    pairs = list(zip(wrong, seen, strict=True))
    assert _status(_matched(*pairs)) == "pass"
    wrong[9]["boxes"][:, 0] += np.float32(7)

    measured = _matched(*pairs)

    assert (_status(measured), measured.missing, measured.extra, measured.at_end) == ("fail", 2, 2, 0)
    assert [words.partition(":")[0] for words in measured.examples] == ["row '9-0'", "row '3-0'"]


def test_one_list_that_is_full_excuses_only_what_the_other_side_lacks() -> None:
    """The candidate's list is full, the reference's has room: what the candidate has more was never cut off there."""
    found = _all_found(7)
    actual = _cut(found, 8)
    expected = {name: array.copy() for name, array in actual.items()}
    for array in expected.values():
        array[:, -1] = 0

    measured = _matched((actual, expected))

    assert (_status(measured), measured.extra) == ("fail", 1)
