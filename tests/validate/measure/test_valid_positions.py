"""Positions that do not count: what is wrong where the mask is set is found, and nothing else is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.codec import to_data
from paritygate.errors import UsageError
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.detections.measurement import MatchComparison
from paritygate.validate.detections.rule import make_match_rule
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.gold.measurement import GoldComparison
from paritygate.validate.gold.rule import parse_gold_rule
from paritygate.validate.measure.check import Status
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, Measurement, OutputComparison, repeat_difference
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.measure.valid_positions import ValidWhere, left_out_of, like, only_valid, valid_positions
from paritygate.validate.words.sentence import render

Array = NDArray[Any]

_ROWS, _WIDTH, _CLASSES = 40, 9, 3
_TOKENS = {"y": ValidWhere(input="mask", axes=((0,), (1,)))}


def _mask(seed: int = 0, rows: int = _ROWS) -> Array:
    """Return rows of 1 to 9 positions, padded with zeros on the right."""
    lengths = np.random.default_rng(seed).integers(1, _WIDTH + 1, rows)
    return (np.arange(_WIDTH) < lengths[:, None]).astype(np.int64)


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _profile(expected: Array, mask: Array, *, axis: int | None = None) -> Any:  # noqa: ANN401 - as it is returned
    counted = only_valid({"y": expected}, {"mask": mask}, _TOKENS)["y"]
    return profile_outputs(
        "y", [(counted[:7], 7), (counted[7:], len(counted) - 7)], axis=axis, dtype=expected.dtype.name
    )


def _measured(
    expected: Array, actual: Array, mask: Array, *, decision: str = "", axis: int | None = None
) -> tuple[Measurement, dict[str, Status]]:
    """Compare as the gate does, and return what was measured and what came of each check."""
    profile = _profile(expected, mask, axis=axis)
    tolerance = DEFAULT_TOLERANCES[Precision.FP32]
    limits = {"y": limits_for(tolerance, profile)}
    decisions = {"y": parse_decision(f"y:{decision}")} if decision else {}
    comparison = OutputComparison(ComparisonPlan(profiles={"y": profile}, limits=limits, decisions=decisions))
    for rows in (slice(0, 7), slice(7, None)):
        batch = Batch(inputs={"mask": mask[rows]}, ids=[str(row) for row in range(_ROWS)[rows]])
        wanted = only_valid({"y": expected[rows]}, batch.inputs, _TOKENS)
        comparison.add(batch, {"y": actual[rows]}, wanted)
    comparison.end_pass()
    measured = comparison.finish()
    plan = JudgePlan(rules=GateRules(tolerance=tolerance), limits=limits, profiles={"y": profile})
    return measured, {check.name: check.status for check in judge(measured, plan)}


def _failed(statuses: Mapping[str, Status]) -> set[str]:
    return {name for name, status in statuses.items() if status in {Status.FAIL, Status.ERROR}}


_ANY = st.sampled_from([0.0, 1.0, -1e9, 1e30, np.nan, np.inf, -np.inf])


@given(st.integers(0, 1000), _ANY, _ANY, st.sampled_from([None, 2]))
@settings(max_examples=40, deadline=None)
def test_what_either_side_holds_where_the_mask_is_not_set_changes_nothing(
    seed: int, expected_there: float, actual_there: float, axis: int | None
) -> None:
    mask = _mask(seed)
    expected = _normal(_ROWS, _WIDTH, _CLASSES, seed=seed)
    actual = expected + np.float32(1e-5) * _normal(_ROWS, _WIDTH, _CLASSES, seed=seed + 1)
    plain = _measured(expected, actual, mask, decision="argmax,axis=2", axis=axis)
    expected, actual = expected.copy(), actual.copy()
    expected[mask == 0], actual[mask == 0] = expected_there, actual_there

    changed = _measured(expected, actual, mask, decision="argmax,axis=2", axis=axis)

    assert _failed(changed[1]) == set()
    assert changed[1] == plain[1]
    assert to_data(changed[0].statistics) == to_data(plain[0].statistics)
    assert to_data(changed[0].decisions) == to_data(plain[0].decisions)


@given(st.integers(0, 1000), st.sampled_from([0.01, -0.3, 5.0, np.nan, np.inf]), st.booleans(), st.data())
@settings(max_examples=40, deadline=None)
def test_one_value_that_is_wrong_where_the_mask_is_set_always_fails(
    seed: int,
    error: float,
    is_noisy: bool,  # noqa: FBT001 - drawn
    data: st.DataObject,
) -> None:
    mask = _mask(seed)
    expected = _normal(_ROWS, _WIDTH, _CLASSES, seed=seed)
    if is_noisy:
        expected[mask == 0] = 1e20
    actual = expected.copy()
    places = np.argwhere(mask)
    row, at = places[data.draw(st.integers(0, len(places) - 1))]
    actual[row, at, seed % _CLASSES] += np.float32(error)

    measured, statuses = _measured(expected, actual, mask)

    assert _failed(statuses)
    assert measured.statistics["y"].worst_rows[0].row_id == str(row)
    assert measured.statistics["y"].worst_rows[0].index[0] == at


def test_means_are_over_the_positions_that_count_alone() -> None:
    mask = np.zeros((_ROWS, _WIDTH), np.int64)
    mask[:, 0] = 1
    expected = _normal(_ROWS, _WIDTH, _CLASSES)

    measured, _ = _measured(expected, expected + np.float32(5e-5), mask)

    found = measured.statistics["y"]
    # Over all positions it would be a ninth of that, and within the mean limit.
    assert found.mean_abs_diff == pytest.approx(5e-5, rel=0.01)
    assert (found.values, found.left_out, found.non_finite_matches) == (_ROWS * 3, _ROWS * 8 * 3, 0)


def test_values_that_do_not_count_are_in_no_scale() -> None:
    mask = _mask()
    expected = _normal(_ROWS, _WIDTH, _CLASSES)
    plain = _profile(expected, mask)
    for other in (1e9, np.nan, 0.0):
        expected[mask == 0] = other
        assert to_data(_profile(expected, mask)) == to_data(plain)
    assert (plain.non_finite, plain.values) == (0, 3 * int(mask.sum()))
    assert plain.row_norm < np.sqrt(_WIDTH * _CLASSES)


def test_an_output_that_varies_only_where_it_does_not_count_does_not_vary() -> None:
    mask = _mask()
    expected = _normal(_ROWS, _WIDTH, _CLASSES)
    expected[mask == 1] = 1.0

    assert _profile(expected, mask).varies is False
    expected[np.argwhere(mask)[5][0], 0] = 2.0
    assert _profile(expected, mask).varies is True


def test_a_mask_that_is_never_set_leaves_nothing_measured() -> None:
    expected = _normal(_ROWS, _WIDTH, _CLASSES)

    _, statuses = _measured(expected, expected.copy(), np.zeros((_ROWS, _WIDTH), np.int64))

    assert statuses["measured"] is Status.ERROR


@pytest.mark.parametrize("is_set", [True, False])
def test_integers_are_compared_exactly_where_they_count(*, is_set: bool) -> None:
    mask = _mask()
    expected = np.random.default_rng(0).integers(0, 9, (_ROWS, _WIDTH))
    actual = expected.copy()
    row, at = np.argwhere(mask == int(is_set))[3]
    actual[row, at] += 1

    measured, statuses = _measured(expected, actual, mask)

    assert statuses["exact"] is (Status.FAIL if is_set else Status.PASS)
    assert measured.statistics["y"].values == int(mask.sum())


def test_there_is_no_decision_where_nothing_counts() -> None:
    mask = _mask()
    expected = _normal(_ROWS, _WIDTH, _CLASSES)
    actual = expected.copy()
    actual[mask == 0] *= -1

    measured, statuses = _measured(expected, actual, mask, decision="argmax,axis=2")

    found = measured.decisions["y"]
    assert (found.decisions, found.mismatches, sum(found.classes.values())) == (mask.sum(), 0, mask.sum())
    assert _failed(statuses) == set()
    row, at = np.argwhere(mask)[-1]
    actual[row, at] = -10 * expected[row, at]
    assert _measured(expected, actual, mask, decision="argmax,axis=2")[1]["decision_mismatches"] is Status.FAIL


def test_a_position_that_does_not_count_is_never_chosen() -> None:
    # The start of an answer in a text: the argmax over its positions.
    mask = _mask()
    expected, actual = (_normal(_ROWS, _WIDTH) for _ in range(2))
    expected[:, -1], actual[:, 0] = np.where(mask[:, -1], expected[:, -1], 100), actual[:, 0]
    actual[mask == 0] = 50 + np.arange(np.count_nonzero(mask == 0))

    measured, statuses = _measured(expected, actual, mask, decision="argmax")

    assert _failed(statuses) == set()
    assert (measured.decisions["y"].decisions, measured.decisions["y"].mismatches) == (_ROWS, 0)
    best = np.where(mask, expected, -np.inf).argmax(axis=1)
    assert measured.decisions["y"].classes == dict(zip(*np.unique(best.astype(str), return_counts=True), strict=True))


def test_thresholds_are_crossed_where_it_counts() -> None:
    mask = _mask()
    expected = _normal(_ROWS, _WIDTH)
    actual = np.where(mask, expected, -expected)

    measured, _ = _measured(expected, actual, mask, decision="multilabel=0")

    assert measured.decisions["y"].mismatches == 0
    assert sum(measured.decisions["y"].classes.values()) == mask.sum()


def test_repeats_may_differ_where_nothing_counts() -> None:
    mask = _mask()
    expected = _normal(_ROWS, _WIDTH, _CLASSES)
    profile = _profile(expected, mask)
    limits = limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile)
    wanted = only_valid({"y": expected}, {"mask": mask}, _TOKENS)
    again = expected.copy()
    again[mask == 0] = np.nan

    assert repeat_difference(again, like({"y": expected}, wanted)["y"], limits) == (0, 0)
    again[0, 0, 0] += 1
    assert repeat_difference(again, like({"y": expected}, wanted)["y"], limits)[1] == pytest.approx(1)


def test_a_row_that_does_not_count_has_no_gold() -> None:
    rows = 60
    gold = np.random.default_rng(0).standard_normal(rows)
    mask = (np.arange(rows) % 3 > 0).astype(np.int64)
    answers = gold.astype(np.float32)[:, None]
    wrong = np.where(mask[:, None] == 1, answers, np.float32(77))
    batch = Batch(inputs={"mask": mask}, ids=[str(row) for row in range(rows)], gold=gold)
    expected = only_valid({"y": wrong}, batch.inputs, {"y": ValidWhere(input="mask", axes=((0,),))})
    comparison = GoldComparison(parse_gold_rule("pearson:y,ratio=0.99"), None)

    comparison.add(batch, {"y": -wrong * (1 - mask[:, None]) + answers * mask[:, None]}, expected)

    found = comparison.finish(seed=0)
    assert (found.rows, found.rows_without) == (40, 20)
    assert found.candidate == found.reference == pytest.approx(1)


@pytest.mark.parametrize("is_set", [True, False])
def test_a_detection_at_a_place_that_does_not_count_is_none(*, is_set: bool) -> None:
    boxes = np.zeros((2, 3, 4), np.float32)
    boxes[..., 2:] = 5
    boxes += 20 * np.arange(3, dtype=np.float32)[None, :, None]
    scores = np.full((2, 3), 0.9, np.float32)
    mask = np.array([[1, 1, int(is_set)], [1, 1, 1]])
    moved = boxes.copy()
    moved[0, 2] += 300
    where = {"scores": ValidWhere(input="mask", axes=((0,), (1,)))}
    comparison = MatchComparison(make_match_rule("d", boxes="boxes", scores="scores"))
    batch = Batch(inputs={"mask": mask}, ids=["0", "1"])

    expected = only_valid({"boxes": boxes, "scores": scores}, batch.inputs, where)
    comparison.add(batch, {"boxes": moved, "scores": scores}, expected)
    comparison.end_pass()

    found = comparison.finish()
    assert (found.matched, found.expected) == (5, 5 + is_set)


def test_detections_at_other_places_than_the_reference_has_break_the_contract() -> None:
    boxes, scores = np.zeros((1, 3, 4), np.float32), np.full((1, 3), 0.9, np.float32)
    where = {"scores": ValidWhere(input="mask", axes=((0,), (1,)))}
    comparison = MatchComparison(make_match_rule("d", boxes="boxes", scores="scores"))
    batch = Batch(inputs={"mask": np.array([[1, 1, 0]])}, ids=["0"])

    expected = only_valid({"boxes": boxes, "scores": scores}, batch.inputs, where)
    comparison.add(batch, {"boxes": boxes[:, :2], "scores": scores[:, :2]}, expected)
    comparison.end_pass()

    assert "2 places, and the reference has 3, of which some do not count" in render(comparison.finish().violations[0])


def _signature(mask: tuple[int | str | None, ...], output: tuple[int | str | None, ...] | None) -> Signature:
    return Signature(
        inputs=(
            TensorSpec(name="x", dtype="float32", shape=("batch", 4)),
            TensorSpec(name="mask", dtype="int64", shape=mask),
        ),
        outputs=(TensorSpec(name="y", dtype="float32", shape=output),),
    )


@pytest.mark.parametrize(
    ("mask", "output", "axes"),
    [
        (("batch", "sequence"), ("batch", "sequence", 768), ((0,), (1,))),
        (("batch", "sequence"), ("batch", 768, "sequence"), ((0,), (2,))),
        (("batch", "sequence"), ("sequence", "batch", 8), ((1,), (0,))),
        (("batch", 1, 1, "sequence"), ("batch", "sequence"), ((0,), (), (), (1,))),
        (("batch",), ("batch", 3), ((0,),)),
        (("sequence",), ("batch", "sequence"), ((1,),)),
        (("batch", "sequence"), ("batch", 12, "sequence", "sequence"), ((0,), (2, 3))),
    ],
)
def test_dims_are_matched_by_their_names(
    mask: tuple[int | str | None, ...], output: tuple[int | str | None, ...], axes: tuple[tuple[int, ...], ...]
) -> None:
    found = valid_positions({"y": "mask"}, [None, _signature(mask, output)])

    assert found == {"y": ValidWhere(input="mask", axes=axes)}
    sizes = {"batch": 2, "sequence": 5}
    array = np.random.default_rng(0).integers(0, 2, [sizes.get(str(dim), dim) for dim in mask])
    shape = tuple(sizes.get(str(dim), dim) for dim in output)
    left_out = found["y"].left_out({"mask": array}, "y", shape)  # type: ignore[arg-type]  # every dim has a size
    named = dict(zip((dim for dim in mask if dim != 1), range(9), strict=False))
    for place in np.ndindex(*shape):  # type: ignore[arg-type]
        keys = [[place[at] for at, own in enumerate(output) if own == dim] for dim in named]
        cells = [array.squeeze()[tuple(cell)] for cell in np.array(np.meshgrid(*keys)).reshape(len(keys), -1).T]
        assert left_out[place] == (not all(cells))


@pytest.mark.parametrize(
    ("mask", "output", "message"),
    [
        (("batch", "sequence"), ("rows", 768), r"they share no dim by name: mask: int64\[batch, sequence\] beside y"),
        (("batch", "sequence"), ("batch", 768), "dim 'sequence' of the mask is none of the output's"),
        (("batch", 128), ("batch", 128), "dim 128 of the mask is none of the output's"),
        (("batch", "batch"), ("batch", 128), "a dim occurs twice in the mask"),
        ((1, 1), ("batch", 128), "they share no dim by name"),
        (("batch", "sequence"), None, "neither side names the dims of both"),
    ],
)
def test_a_mask_without_the_dims_of_the_output_is_refused(
    mask: tuple[int | str | None, ...], output: tuple[int | str | None, ...] | None, message: str
) -> None:
    with pytest.raises(UsageError, match=f"valid_where y=mask.*{message}"):
        valid_positions({"y": "mask"}, [_signature(mask, output)])


def test_a_mask_of_texts_is_refused() -> None:
    texts = TensorSpec(name="mask", dtype="string", shape=("batch",))
    signature = Signature(inputs=(texts,), outputs=(TensorSpec(name="y", dtype="float32", shape=("batch",)),))

    with pytest.raises(UsageError, match="texts are no mask"):
        valid_positions({"y": "mask"}, [signature])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"y": "musk"}, r"'musk' is not an input \(inputs: x, mask\)"),
        ({"z": "mask"}, r"'z' is not an output \(outputs: y\)"),
    ],
)
def test_a_name_that_is_not_there_is_refused(asked: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        valid_positions(asked, [_signature(("batch",), ("batch",))])


def test_samples_without_the_mask_or_with_one_of_another_size_are_refused() -> None:
    with pytest.raises(UsageError, match=r"y counts where mask is set, but the samples hold no 'mask' .*hold: x"):
        only_valid({"y": _normal(2, 3)}, {"x": _normal(2, 3)}, _TOKENS)
    with pytest.raises(UsageError, match=r"their shapes do not fit: \[2, 4\] beside \[2, 3\] of the output"):
        only_valid({"y": _normal(2, 3)}, {"mask": np.ones((2, 4))}, _TOKENS)


def test_an_array_of_another_shape_has_no_positions_left_out() -> None:
    wanted = only_valid({"y": _normal(2, 3)}, {"mask": np.array([[1, 1, 0], [1, 0, 0]])}, _TOKENS)

    assert left_out_of(like({"y": _normal(2, 4)}, wanted)["y"]) is None
    assert left_out_of(_normal(2, 4)) is None
