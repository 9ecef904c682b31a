"""Detections matched: what is the same one, what is a fault, and that their order is none."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from paritygate.batch import Batch
from paritygate.codec import from_data, to_data
from paritygate.errors import UsageError
from paritygate.validate.detections.boxes import (
    Detections,
    corners_of,
    intersection_over_union,
    is_turned,
    match_detections,
)
from paritygate.validate.detections.figures import MatchStatistics
from paritygate.validate.detections.judgement import detections_coverage, failed_match, judge_matches
from paritygate.validate.detections.measurement import MatchComparison
from paritygate.validate.detections.repeats import MatchRepeats, changed_detections
from paritygate.validate.detections.rule import MatchRule, check_match_rules, make_match_rule, parse_match_rule
from paritygate.validate.words.sentence import render

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs = dict[str, NDArray[Any]]

_RULE = MatchRule(name="detections", boxes="boxes", scores="scores", classes="labels")


def _outputs(seed: int, *, rows: int = 2, count: int = 6) -> Outputs:
    """Return detections far from each other: one in each cell of a grid, in any order."""
    random = np.random.default_rng(seed)
    cells = np.stack([random.permutation(25)[:count] for _ in range(rows)])
    corner = np.stack([cells % 5, cells // 5], axis=2) * 20 + random.uniform(0, 2, (rows, count, 2))
    size = random.uniform(8, 15, (rows, count, 2))
    return {
        "boxes": np.concatenate([corner, corner + size], axis=2).astype(np.float32),
        "scores": random.uniform(0.3, 1.0, (rows, count)).astype(np.float32),
        "labels": random.integers(0, 3, (rows, count)),
    }


def _with_room(outputs: Outputs) -> Outputs:
    """Return the same detections in lists with one more place, filled up with what is not a detection."""
    return {name: np.concatenate([array, np.zeros_like(array[:, :1])], axis=1) for name, array in outputs.items()}


def _matched(actual: Outputs, expected: Outputs, rule: MatchRule = _RULE, *, rows: int = 2) -> MatchStatistics:
    comparison = MatchComparison(rule)
    batch = Batch(inputs={}, ids=[f"row-{row}" for row in range(rows)])
    comparison.add(batch, actual, expected)
    comparison.end_pass()
    return comparison.finish()


def _statuses(found: MatchStatistics) -> dict[str, str]:
    return {check.name: str(check.status) for check in judge_matches(found)}


@given(seed=st.integers(0, 1000), order=st.integers(0, 1000))
def test_the_order_of_detections_changes_nothing(seed: int, order: int) -> None:
    expected = _outputs(seed)
    noise = np.random.default_rng(order).uniform(-0.05, 0.05, expected["boxes"].shape)
    actual = {**expected, "boxes": (expected["boxes"] + noise).astype(np.float32)}
    shuffled = {name: array.copy() for name, array in actual.items()}
    for row in range(2):
        new = np.random.default_rng(order + row).permutation(6)
        for name, array in shuffled.items():
            array[row] = actual[name][row][new]

    plain, again = _matched(actual, expected), _matched(shuffled, expected)

    assert plain == again
    assert (plain.matched, plain.missing, plain.extra, plain.max_score_diff) == (12, 0, 0, 0.0)
    assert set(_statuses(plain).values()) == {"pass"}


@given(seed=st.integers(0, 1000), at=st.integers(0, 5), fault=st.sampled_from(["moved", "class", "dropped", "score"]))
def test_one_fault_is_always_caught(seed: int, at: int, fault: str) -> None:
    expected = _with_room(_outputs(seed))
    actual = {name: array.copy() for name, array in expected.items()}
    if fault == "moved":
        actual["boxes"][1, at] += np.float32(5)
    elif fault == "class":
        actual["labels"][1, at] += 1
    elif fault == "score":
        actual["scores"][1, at] -= np.float32(0.02)
    else:
        # As a model fills up its lists.
        for array in actual.values():
            array[1, at] = 0

    found = _matched(actual, expected)

    statuses = _statuses(found)
    if fault == "score":
        assert statuses["match_score_diff"] == "fail"
        assert statuses["detections_matched"] == "pass"
    else:
        assert statuses["detections_matched"] == "fail"
        # The place that is not a detection has its pair as well.
        assert (found.matched, found.missing, found.extra) == (13, 1, 0 if fault == "dropped" else 1)
        assert "row 'row-1': 1 missing, such as [" in found.examples[0]


def test_lists_of_other_lengths_are_padded_or_counted() -> None:
    expected = _outputs(0)
    longer = {name: np.concatenate([array, np.zeros_like(array[:, :3])], axis=1) for name, array in expected.items()}
    # What is beyond the count is anything at all.
    junk = {**longer, "boxes": longer["boxes"] + 0, "scores": longer["scores"] + 0, "num": np.array([6, 6])}
    junk["boxes"][:, 6:] = [0, 0, 9, 9]
    junk["scores"][:, 6:] = 0.9

    assert _statuses(_matched(longer, expected))["detections_matched"] == "pass"
    counted = replace(_RULE, num="num")
    assert _statuses(_matched(junk, {**expected, "num": np.array([[6], [6]])}, counted))["detections_matched"] == "pass"
    found = _matched(junk, expected)
    assert (found.extra, _statuses(found)["detections_matched"]) == (6, "fail")


def test_a_picture_alone_may_come_without_an_axis_of_rows() -> None:
    expected = {name: array[0] for name, array in _outputs(3).items()}

    assert _matched(expected, expected, rows=1).matched == 6


def test_detections_near_the_floor_may_be_there_or_not() -> None:
    expected = _outputs(0)
    expected["scores"][0, 0] = np.float32(0.305)
    expected["scores"][0, 1] = np.float32(0.32)
    rule = replace(_RULE, score_floor=0.3)
    without = {name: array.copy() for name, array in expected.items()}
    without["scores"][0, 0] = 0

    found = _matched(without, expected, rule)
    assert (found.near_floor, found.missing, _statuses(found)["detections_matched"]) == (1, 0, "pass")
    assert "1 unmatched near the score floor 0.3" in judge_matches(found)[0].detail
    # Where zero is the floor, a score that went to zero is a score that differs.
    assert _statuses(_matched(without, expected))["match_score_diff"] == "fail"

    without["scores"][0, 1] = 0
    assert _statuses(_matched(without, expected, rule))["detections_matched"] == "fail"


def test_scores_below_a_floor_that_nobody_declared_are_no_pass() -> None:
    expected = _outputs(0)
    expected["scores"][0, :4] -= np.float32(3)

    (check, *_) = judge_matches(_matched(expected, expected))

    assert str(check.status) == "inconclusive"
    assert [dict(words.values) for words in check.words][-2:] == [{"count": 4, "score_floor": 0.0}, {}]
    assert _statuses(_matched(expected, expected, replace(_RULE, score_floor=0.1)))["detections_matched"] == "pass"
    assert _statuses(_matched(expected, expected, replace(_RULE, score_floor=-4.0)))["detections_matched"] == "pass"


def test_detections_that_are_not_finite_fail() -> None:
    expected = _outputs(0)
    actual = {**expected, "boxes": expected["boxes"].copy()}
    actual["boxes"][0, 0, 0] = np.nan

    found = _matched(actual, expected)

    assert found.non_finite == 1
    assert _statuses(found)["finite"] == "fail"
    assert _statuses(found)["detections_matched"] == "fail"


def test_the_box_limit_holds_where_there_is_one() -> None:
    expected = _outputs(0)
    actual = {**expected, "boxes": expected["boxes"] + np.float32(0.05)}

    assert _statuses(_matched(actual, expected))["detections_matched"] == "pass"
    assert _statuses(_matched(actual, expected, replace(_RULE, max_box_diff=0.06)))["match_box_diff"] == "pass"
    assert _statuses(_matched(actual, expected, replace(_RULE, max_box_diff=0.04)))["match_box_diff"] == "fail"


def test_no_detection_on_either_side_is_inconclusive() -> None:
    nothing: Outputs = {
        "boxes": np.zeros((2, 0, 4), dtype=np.float32),
        "scores": np.zeros((2, 0), dtype=np.float32),
        "labels": np.zeros((2, 0), dtype=np.int64),
    }

    found = _matched(nothing, nothing)

    assert _statuses(found) == {"detections_matched": "inconclusive"}
    assert [words.key for words in judge_matches(found)[0].words] == ["match.nothing"]
    assert _statuses(_matched(nothing, _outputs(0)))["detections_matched"] == "fail"
    assert _statuses(_matched(_outputs(0), nothing))["detections_matched"] == "fail"


def test_candidates_of_another_form_break_the_contract() -> None:
    expected = _outputs(0)

    of_dtype = _matched({**expected, "labels": expected["labels"].astype(np.int32)}, expected)
    assert _statuses(of_dtype) == {"contract.match": "fail"}
    assert "dtype of 'labels' is int32, the reference's int64" in judge_matches(of_dtype)[0].detail
    flat = _matched({**expected, "boxes": expected["boxes"].reshape(2, -1)}, expected)
    assert "'boxes' has shape [2, 24]" in judge_matches(flat)[0].detail
    short = _matched({**expected, "scores": expected["scores"][:, :5]}, expected)
    assert "'scores' has shape [2, 5] beside boxes of [2, 6, 4]" in judge_matches(short)[0].detail
    counted = replace(_RULE, num="num")
    many = _matched({**expected, "num": np.array([6, 7])}, {**expected, "num": np.array([6, 6])}, counted)
    assert "'num' is [6, 7] for 2 rows of at most 6 detections" in judge_matches(many)[0].detail


def test_references_that_hold_no_detections_or_too_many_are_refused() -> None:
    expected = _outputs(0)
    with pytest.raises(UsageError, match="the reference's outputs hold no detections: 'boxes' has shape"):
        _matched(expected, {**expected, "boxes": expected["boxes"][..., :3]})
    many: Outputs = {
        "boxes": np.zeros((1, 4001, 4), dtype=np.float32),
        "scores": np.ones((1, 4001), dtype=np.float32),
        "labels": np.zeros((1, 4001), dtype=np.int64),
    }
    with pytest.raises(UsageError, match=r"row 'row-0' holds 4001 detections \(allowed: 4000\)"):
        _matched(many, many, rows=1)


def test_of_several_passes_the_worst_counts() -> None:
    expected = _outputs(0)
    worse = {**expected, "labels": expected["labels"] + 1}
    comparison = MatchComparison(_RULE)
    batch = Batch(inputs={}, ids=["a", "b"])
    for actual in (expected, worse, expected):
        comparison.add(batch, actual, expected)
        comparison.end_pass()

    found = comparison.finish()

    assert (found.rows, found.matched, found.missing, found.extra) == (2, 0, 12, 12)


_COUNTED = ("rows", "expected", "actual", "matched", "missing", "extra", "near_floor", "below_floor", "non_finite")


@given(seed=st.integers(0, 1000), of=st.integers(1, 4), fault=st.sampled_from(["moved", "class", "nan", "floor"]))
def test_strata_add_up_to_all_pictures(seed: int, of: int, fault: str) -> None:
    random = np.random.default_rng(seed)
    expected = _with_room(_outputs(seed, rows=8))
    actual = {name: array.copy() for name, array in expected.items()}
    at = random.integers(0, 8), random.integers(0, 6)
    actual["boxes"][at] += np.float32({"moved": 5, "nan": np.nan}.get(fault, 0))
    actual["labels"][at] += fault == "class"
    rule = replace(_RULE, score_floor=0.5) if fault == "floor" else _RULE
    light = [str(row % of) for row in range(8)]
    comparison = MatchComparison(rule, ["light"])
    batch = Batch(inputs={}, ids=[str(row) for row in range(8)], strata={"light": light})
    for side in (expected, actual):
        # Of two passes the worse counts, in each stratum by itself.
        comparison.add(batch, side, expected)
        comparison.end_pass()

    found = comparison.finish()

    apart = found.strata["light"]
    for name in _COUNTED:
        assert sum(getattr(item, name) for item in apart.values()) == getattr(found, name), name
    assert min(item.min_iou for item in apart.values()) == found.min_iou
    if fault != "floor":
        bad = [value for value, item in apart.items() if item.missing + item.extra + item.non_finite]
        assert bad == [light[int(at[0])]]
    assert {name: getattr(found, name) for name in _COUNTED} == {
        name: getattr(_matched(actual, expected, rule, rows=8), name) for name in _COUNTED
    }


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), of=st.integers(1, 9), passes=st.integers(1, 2))
def test_detections_in_any_number_of_parts_have_the_figures_of_the_whole(seed: int, of: int, passes: int) -> None:
    random = np.random.default_rng(seed)
    expected = _with_room(_outputs(seed, rows=8))
    sides = [{name: array.copy() for name, array in expected.items()} for _ in range(passes)]
    for side in sides:
        side["labels"][random.integers(0, 8, 3), random.integers(0, 6, 3)] += 1
        side["scores"][random.integers(0, 8), random.integers(0, 6)] = 0

    def added(rows: range, pair: tuple[MatchComparison, MatchRepeats]) -> tuple[MatchComparison, MatchRepeats]:
        for number, side in enumerate(sides):
            for row in rows:
                batch = Batch(inputs={}, ids=[str(row)], strata={"light": [str(row % 3)]})
                own, first, right = (
                    {key: item[row : row + 1] for key, item in s.items()} for s in (side, sides[0], expected)
                )
                pair[0].add(batch, own, right)
                if number:
                    pair[1].add(batch, own, first)
            pair[0].end_pass()
        return pair

    def figures(pair: tuple[MatchComparison, MatchRepeats]) -> Any:  # noqa: ANN401 - JSON data
        # Of passes that differ, a part names the rows of its own batches first.
        found = replace(pair[0].finish(), examples=())
        return to_data([found, judge_matches(found), pair[1].finish()])

    def empty() -> tuple[MatchComparison, MatchRepeats]:
        return MatchComparison(_RULE, ["light"]), MatchRepeats(_RULE)

    merged = empty()
    for number in range(of):
        part = added(range(8 * number // of, 8 * (number + 1) // of), empty())
        for whole, own, read in zip(merged, part, empty(), strict=True):
            read.read(json.loads(json.dumps(own.to_data())))
            whole.take_in(read)

    assert figures(merged) == figures(added(range(8), empty()))


def test_values_in_whose_pictures_nothing_is_detected_are_not_covered() -> None:
    expected = _outputs(0, rows=40)
    expected["scores"][:35] = 0
    comparison = MatchComparison(replace(_RULE, score_floor=0.2), ["light"])
    batch = Batch(inputs={}, ids=[str(row) for row in range(40)], strata={"light": ["dark"] * 35 + ["day"] * 5})
    comparison.add(batch, expected, expected)
    comparison.end_pass()

    (check,) = detections_coverage(comparison.finish())

    assert (check.name, str(check.status), check.output) == ("strata_coverage", "warning", "detections")
    assert (check.words[0].key, check.words[0].values["stratum"]) == ("match.not_covered", "light")
    assert check.detail.endswith("'dark' (rows: 35)")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"scores": 0.009}, ""),
        ({"scores": 0.02}, "match_score_diff: 0.02"),
        ({"labels": 1}, "detections_matched: 0 of 12"),
        ({"boxes": 5}, "detections_matched: 0 of 12"),
        ({"boxes": np.nan}, "detections_matched: 0 of 12"),
    ],
)
def test_detections_are_held_to_earlier_ones_by_the_same_rule(change: dict[str, float], words: str) -> None:
    first = _outputs(0)
    again = {name: (array + change.get(name, 0)).astype(array.dtype) for name, array in first.items()}
    batch = Batch(inputs={}, ids=["a", "b"])
    repeats = MatchRepeats(_RULE)
    repeats.add(batch, again, first)

    assert render(changed_detections(_RULE, batch, again, first)).startswith(words)
    assert bool(changed_detections(_RULE, batch, again, first)) == bool(words)
    assert [str(check.status) for check in repeats.finish()] == ["fail" if words else "pass"]
    assert MatchRepeats(_RULE).finish() == ()


def test_what_was_broken_before_and_comes_again_is_no_change() -> None:
    whole = _outputs(0)
    broken = {**whole, "boxes": np.full_like(whole["boxes"], np.nan)}
    flat = {**whole, "boxes": whole["boxes"].reshape(2, 24)}
    lacking = {name: array for name, array in whole.items() if name != "labels"}
    batch = Batch(inputs={}, ids=["a", "b"])

    for first in (broken, flat, lacking):
        assert changed_detections(_RULE, batch, dict(first), first) == ()
    assert [item.key for item in changed_detections(_RULE, batch, whole, flat)] == ["match.first_broken"]
    assert render(changed_detections(_RULE, batch, flat, whole)).startswith("contract.match: ")
    (lacks,) = changed_detections(_RULE, batch, lacking, whole)
    assert (lacks.key, lacks.values) == ("match.without", {"output": "labels"})
    assert render(changed_detections(_RULE, batch, whole, broken)).startswith("detections_matched: 0 of 0")


def test_one_batch_alone_says_what_failed() -> None:
    expected = _outputs(0)
    batch = Batch(inputs={}, ids=["a", "b"])

    assert failed_match((_RULE,), batch, expected, expected) is None
    check = failed_match((_RULE,), batch, {**expected, "labels": expected["labels"] + 1}, expected)
    assert check is not None
    assert (check.name, check.output) == ("detections_matched", None)
    assert check.detail.startswith("detections: 0 of 12 detections matched at IoU 0.9, 12 missing, 12 extra")


def _naive_iou(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    cells = [
        (x, y)
        for x, y in itertools.product(range(12), range(12))
        if a[0] <= x < a[2] and a[1] <= y < a[3] and b[0] <= x < b[2] and b[1] <= y < b[3]
    ]
    area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - len(cells)
    return len(cells) / area if area else float((a == b).all())


@given(numbers=st.lists(st.integers(0, 11), min_size=8, max_size=8))
def test_iou_is_what_counting_cells_gives(numbers: list[int]) -> None:
    pair = corners_of(np.array(numbers, dtype=np.float64).reshape(2, 4), "xyxy")

    found = intersection_over_union(pair[:1], pair[1:])[0, 0]

    is_equal = bool((pair[0] == pair[1]).all())
    assert found == pytest.approx(1.0 if is_equal else _naive_iou(pair[0], pair[1]))


def test_corners_in_another_order_are_another_box() -> None:
    expected = _outputs(0)
    turned = {**expected, "boxes": expected["boxes"][..., [2, 3, 0, 1]]}

    found = _matched(turned, expected)

    assert _statuses(found)["detections_matched"] == "fail"
    assert (found.matched, found.missing, found.extra) == (0, 12, 12)
    assert _statuses(_matched(turned, turned))["detections_matched"] == "pass"


@pytest.mark.parametrize("form", ["xywh", "cxcywh"])
def test_a_negative_size_is_another_box(form: str) -> None:
    assert is_turned(np.array([[4.0, 6.0, 4.0, -6.0]]), form).tolist() == [[False, True]]


def test_formats_of_one_box_are_the_same_corners() -> None:
    corners = np.array([[2.0, 3.0, 6.0, 9.0]])

    assert corners_of(np.array([[2.0, 3.0, 4.0, 6.0]]), "xywh").tolist() == corners.tolist()
    assert corners_of(np.array([[4.0, 6.0, 4.0, 6.0]]), "cxcywh").tolist() == corners.tolist()
    assert corners_of(np.array([[6.0, 9.0, 2.0, 3.0]]), "xyxy").tolist() == corners.tolist()


def test_as_many_pairs_as_there_can_be_and_of_equal_boxes_the_nearest_scores() -> None:
    def of(boxes: list[list[float]], scores: list[float]) -> Detections:
        array = np.array(boxes)
        return Detections(
            boxes=array,
            corners=array,
            is_turned=is_turned(array, "xyxy"),
            scores=np.array(scores),
            classes=np.zeros(len(scores)),
            others=np.zeros((len(scores), 0)),
        )

    # The best pair alone would leave the other two without a partner.
    first = of([[0, 0, 10, 10], [0, 1, 10, 11]], [0.9, 0.8])
    second = of([[0, 0.9, 10, 10.9], [0, 2.2, 10, 12.2]], [0.9, 0.8])
    rows, columns, overlap = match_detections(first, second, iou=0.78)
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 0), (1, 1)]
    assert overlap.min() >= 0.78

    twice = of([[0, 0, 10, 10], [0, 0, 10, 10]], [0.9, 0.4])
    again = of([[0, 0, 10, 10], [0, 0, 10, 10]], [0.4, 0.9])
    rows, columns, _ = match_detections(twice, again, iou=0.9)
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 1), (1, 0)]


def test_a_rule_is_read_as_written_and_written_as_read() -> None:
    text = "detections:boxes=a,b,scores=s,classes=dense:0,num=n,iou=0.5,score_tolerance=0.1,score_floor=0.3,format=xywh"

    rule = parse_match_rule(text)

    assert rule == MatchRule(
        name="detections",
        boxes="a,b",
        scores="s",
        classes="dense:0",
        num="n",
        iou=0.5,
        score_tolerance=0.1,
        score_floor=0.3,
        format="xywh",
    )
    assert parse_match_rule(str(rule)) == rule
    assert from_data(MatchRule, to_data(rule)) == rule
    assert str(parse_match_rule("d:boxes=b,scores=s")) == "d:boxes=b,scores=s"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("detections", "is not of the form NAME:boxes=OUTPUT"),
        (":boxes=b,scores=s", "is not of the form NAME:boxes=OUTPUT"),
        ("d:boxes=b,colour=s", "names no output for scores"),
        ("d:color=b", "is not of the form NAME:boxes=OUTPUT"),
        ("d:boxes=b", "names no output for scores"),
        ("d:boxes=b,scores=s,boxes=c", "has boxes twice"),
        ("d:boxes=b,scores=b", "names one output twice"),
        ("d:boxes=b,scores=s,iou=often", "iou=often is not a number"),
        ("d:boxes=b,scores=s,iou=0", "iou=0 is not an intersection over union"),
        ("d:boxes=b,scores=s,iou=nan", "iou=nan is not an intersection over union"),
        ("d:boxes=b,scores=s,score_tolerance=-1", "score_tolerance=-1 is not allowed"),
        ("d:boxes=b,scores=s,max_box_diff=inf", "max_box_diff=inf is not allowed"),
        ("d:boxes=b,scores=s,score_floor=nan", "score_floor=nan is not finite"),
        ("d:boxes=b,scores=s,format=polar", r"format 'polar' is not known \(allowed: xyxy, xywh, cxcywh\)"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_match_rule(text)


def test_an_output_is_asked_for_one_thing() -> None:
    rule = make_match_rule("d", boxes="b", scores="s")
    known = ("b", "s", "logits")

    check_match_rules((rule,), known, {"logits": "decision logits:argmax"})
    with pytest.raises(UsageError, match="match 'd' names 'b', which is not an output that is compared"):
        check_match_rules((rule,), ("s",), {})
    with pytest.raises(UsageError, match="match 'd' names 's', which decision s:argmax uses already"):
        check_match_rules((rule,), known, {"s": "decision s:argmax"})
    with pytest.raises(UsageError, match="matches 'd' and 'e' both name 'b'"):
        check_match_rules((rule, make_match_rule("e", boxes="b", scores="logits")), known, {})
    with pytest.raises(UsageError, match="match 'a:b' has no name that can be written before a colon"):
        make_match_rule("a:b", boxes="b", scores="s")
    with pytest.raises(UsageError, match="two matches have the same name"):
        check_match_rules((rule, rule), known, {})


def test_where_nothing_matched_there_is_no_iou_and_no_difference() -> None:
    found = _matched({**_outputs(0), "labels": _outputs(0)["labels"] + 5}, _outputs(0))

    assert (found.min_iou, found.max_box_diff, found.max_score_diff) == (None, None, None)
