"""What the graph says of inputs is asked: each column's own table, ids from 1 on, numbers compared with, buckets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.codec import from_data, to_data
from paritygate.validate.probes.inputs.roles import Form, InputRole, Role
from paritygate.validate.probes.inputs.thresholds import Buckets, Threshold

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx
    from conftest import Answered, Asked, ProbeDesk
    from numpy.typing import NDArray

Array = Any


def _normal(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _features(*, low: float = 0.05, high: float = 9.95, width: int = 3) -> list[dict[str, Array]]:
    random = np.random.default_rng(3)
    return [{"x": random.uniform(low, high, (5, width)).astype(np.float32)} for _ in range(8)]


def _whole(low: int, high: int, *shape: int, name: str = "x") -> list[dict[str, Array]]:
    random = np.random.default_rng(4)
    return [{name: random.integers(low, high, shape)} for _ in range(8)]


def _int(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A reference, a faulty candidate that differs where samples are not, and the probe that finds it."""

    text: str
    samples: list[dict[str, Array]]
    probe: str
    weights: Mapping[str, Array] = field(default_factory=dict)
    fault: tuple[str, str] = ("", "")
    faulty: Mapping[str, Array] = field(default_factory=dict)


_COLUMNS = """(int64[N,2] x) => (float[N,4] y) {
  first = Gather<axis=1>(x, nought)
  second = Gather<axis=1>(x, one)
  a = Gather(small, first)
  b = Gather(large, second)
  y = Add(a, b)
}"""
_SLICED = """(int64[N,2] x) => (float[N,1,4] y) {
  first = Slice(x, ends0, ends1, ends1)
  second = Slice(x, ends1, far, ends1)
  a = Gather(small, first)
  b = Gather(large, second)
  y = Add(a, b)
}"""
_SPLIT = """(int64[N,2] x) => (float[N,1,4] y) {
  first, second = Split<axis=1>(x)
  a = Gather(small, first)
  b = Gather(large, second)
  y = Add(a, b)
}"""
_OFFSETS = """(int64[N,2] x) => (float[N,4] y) {
  at = Add(x, starts)
  e = Gather(both, at)
  y = ReduceSum<keepdims=0>(e, ends1)
}"""
_SMALL, _LARGE = _normal(1, 20, 4), _normal(2, 300, 4)
_TABLES = {
    "small": _SMALL, "large": _LARGE, "both": np.concatenate([_SMALL, _LARGE]), "nought": np.int64(0),
    "one": np.int64(1), "ends0": _int(0), "ends1": _int(1), "far": _int(2**62), "starts": _int(0, 20),
}  # fmt: skip


def _lost(table: NDArray[np.float32], row: int) -> NDArray[np.float32]:
    changed = table.copy()
    changed[row] += 1
    return changed


_GUARDED = """(int64[N,2] x) => (float[N,4] y) {
  first = Gather<axis=1>(x, nought)
  second = Gather<axis=1>(x, one)
  below = Less(second, nought)
  above = GreaterOrEqual(second, rows)
  outside = Or(below, above)
  known = Where(outside, one, second)
  a = Gather(small, first)
  b = Gather(large, known)
  y = Add(a, b)
}"""
_SHIFTED = "(int64[N] x) => (float[N,4] y) {\n  at = Sub(x, one)\n  y = Gather(small, at)\n}"
_SENTINEL = """(float[N,3] x) => (float[N,2] y) {
  gone = Equal(x, code)
  known = Where(gone, fill, x)
  h = Tanh(known)
  y = MatMul(h, w)
}"""
_BANDS = """(float[N,3] x) => (float[N,3] y) {
  column = Gather<axis=1>(x, one)
  flat = Unsqueeze(column, ends1)
  above = GreaterOrEqual(flat, edges)
  y = Cast<to=1>(above)
}"""
_ROUNDED = "(float[N,3] x) => (float[N,3] y) {\n  y = Round(x)\n}"
_FLOORED = "(float[N,3] x) => (float[N,3] y) {\n  y = Floor(x)\n}"
_MODE = """(float[N,3] x, int64 mode) => (float[N,3] y) {
  is_other = Equal(mode, code)
  turned = Neg(x)
  y = Where(is_other, turned, x)
}"""
_BUCKETS = """(float[N] x) => (float[N,4] y) {
  scaled = Mul(x, four)
  low = Floor(scaled)
  kept = Clip(low, none, most)
  at = Cast<to=7>(kept)
  y = Gather(large, at)
}"""
_COUNTS = "(float[N] x) => (float[N,4] y) {\n  at = Cast<to=7>(x)\n  y = Gather(large, at)\n}"
_F = {
    "code": np.float32(-999), "fill": np.float32(0.5), "w": _normal(5, 3, 2),
    "edges": np.array([3, 25, 4.5], dtype=np.float32), "one": np.int64(1), "ends1": _int(1),
}  # fmt: skip
_FOUR = {"four": np.float32(4), "none": np.float32(0), "most": np.float32(299), "large": _LARGE}


def _narrow() -> list[dict[str, Array]]:
    random = np.random.default_rng(6)
    return [{"x": random.uniform(0, 20, 6).astype(np.float32)} for _ in range(8)]


def _counts() -> list[dict[str, Array]]:
    random = np.random.default_rng(7)
    return [{"x": random.integers(0, 30, 6).astype(np.float32)} for _ in range(8)]


_PLANTED = {
    "a row of the larger of two tables": Planted(
        text=_COLUMNS, weights=_TABLES, samples=_whole(0, 20, 4, 2), probe="ids", faulty={"large": _lost(_LARGE, 211)}
    ),
    "the same behind slices": Planted(
        text=_SLICED, weights=_TABLES, samples=_whole(0, 20, 4, 2), probe="ids", faulty={"large": _lost(_LARGE, 211)}
    ),
    "the same behind a split": Planted(
        text=_SPLIT, weights=_TABLES, samples=_whole(0, 20, 4, 2), probe="ids", faulty={"large": _lost(_LARGE, 211)}
    ),
    "the same with all tables in one": Planted(
        text=_OFFSETS,
        weights=_TABLES,
        samples=_whole(0, 20, 4, 2),
        probe="ids",
        faulty={"both": _lost(_TABLES["both"], 20 + 211)},
    ),
    "the last row of ids from 1 on": Planted(
        text=_SHIFTED, weights=_TABLES, samples=_whole(1, 10, 4), probe="ids", faulty={"small": _lost(_SMALL, 19)}
    ),
    "what becomes of unknown ids": Planted(
        text=_GUARDED,
        weights={**_TABLES, "rows": np.int64(300), "last": np.int64(299)},
        samples=_whole(0, 20, 4, 2),
        probe="ids",
        fault=("Where(outside, one, second)", "Clip(second, nought, last)"),
    ),
    "a code for what is missing": Planted(
        text=_SENTINEL, weights=_F, samples=_features(), probe="values", fault=("Where(gone, fill, x)", "Identity(x)")
    ),
    "an edge that counts below": Planted(
        text=_BANDS, weights=_F, samples=_features(), probe="values", fault=("GreaterOrEqual", "Greater")
    ),
    "an edge beyond what was seen": Planted(
        text=_BANDS,
        weights=_F,
        samples=_features(),
        probe="values",
        faulty={"edges": np.array([3, 25.0001, 4.5], dtype=np.float32)},
    ),
    "halves rounded up": Planted(
        text=_ROUNDED, weights={"half": np.float32(0.5)}, samples=_features(), probe="values",
        fault=("y = Round(x)", "up = Add(x, half)\n  y = Floor(up)"),
    ),
    "a rest that is lost": Planted(
        text=_FLOORED, weights={"little": np.float32(1e-5)}, samples=_features(), probe="values",
        fault=("y = Floor(x)", "up = Add(x, little)\n  y = Floor(up)"),
    ),
    "a mode that is ignored": Planted(
        text=_MODE,
        weights={"code": np.int64(7)},
        samples=[{**item, "mode": np.int64(0).reshape(())} for item in _features()],
        probe="values",
        fault=("Where(is_other, turned, x)", "Identity(x)"),
    ),
    "buckets beyond what was seen": Planted(
        text=_BUCKETS, weights=_FOUR, samples=_narrow(), probe="values", faulty={"large": _lost(_LARGE, 287)}
    ),
    "counts beyond what was seen": Planted(
        text=_COUNTS, weights={"large": _LARGE}, samples=_counts(), probe="values", faulty={"large": _lost(_LARGE, 287)}
    ),
}  # fmt: skip


def _asked(desk: ProbeDesk, planted: Planted) -> Asked:
    return desk.ask(desk.model(planted.text, planted.weights), planted.samples, names=["ids", "values", "sensitivity"])


def _answered(desk: ProbeDesk, asked: Asked, planted: Planted) -> Answered:
    text = planted.text.replace(*planted.fault) if planted.fault[0] else planted.text
    return desk.answer(asked, desk.model(text, {**planted.weights, **planted.faulty}))


@pytest.mark.parametrize("planted", [pytest.param(item, id=name) for name, item in _PLANTED.items()])
def test_what_only_the_graph_says_is_asked(planted: Planted, desk: ProbeDesk) -> None:
    asked = _asked(desk, planted)

    answered = _answered(desk, asked, planted)

    assert answered.gate == ()
    assert planted.probe in answered.failed
    assert desk.answer(asked, desk.model(planted.text, planted.weights)).failed == {}


_INNOCENT = {
    # Below 1 a Gather takes rows from the end, and a product with one-hot rows none: neither means anything.
    "ids from 1 on as one-hot": Planted(
        text=_SHIFTED,
        weights={**_TABLES, "depth": np.int64(20), "ends": np.array([0, 1], dtype=np.float32)},
        samples=_whole(1, 10, 4),
        probe="ids",
        fault=("y = Gather(small, at)", "hot = OneHot(at, depth, ends)\n  y = MatMul(hot, small)"),
    ),
    "what is computed before it is compared": Planted(
        text="(float[N,3] x) => (float[N,3] y) {\n  a = Div(x, tenth)\n  c = Floor(a)\n  near = Less(x, edge)\n"
        "  y = Where(near, c, x)\n}",
        weights={"tenth": np.float32(0.1), "edge": np.float32(9.1), "ten": np.float32(10)},
        samples=_features(),
        probe="values",
        fault=("Div(x, tenth)", "Mul(x, ten)"),
    ),
    "buckets by a product": Planted(
        text=_BUCKETS.replace("Mul(x, four)", "Div(x, tenth)"),
        weights={**_FOUR, "tenth": np.float32(0.1), "ten": np.float32(10)},
        samples=_narrow(),
        probe="values",
        fault=("Div(x, tenth)", "Mul(x, ten)"),
    ),
    "a normalisation of constant rows": Planted(
        text="(float[N,3] x) => (float[N,3] y) {\n  k = Clip(x, low, high)\n"
        "  m = ReduceMean<axes=[1], keepdims=1>(k)\n  d = Sub(k, m)\n  q = Mul(d, d)\n"
        "  s = ReduceMean<axes=[1], keepdims=1>(q)\n  r = Sqrt(s)\n  y = Div(d, r)\n}",
        weights={"low": np.float32(0.1), "high": np.float32(9.7), "third": np.float32(1 / 3), "ends1": _int(1)},
        samples=_features(),
        probe="values",
        fault=("m = ReduceMean<axes=[1], keepdims=1>(k)", "t = ReduceSum<keepdims=1>(k, ends1)\n  m = Mul(t, third)"),
    ),
    "one place written once or added to": Planted(
        text="(float[N,3] x, int64[N,1] slot) => (float[32,3] y) {\n  y = ScatterND(grid, slot, x)\n}",
        weights={"grid": np.zeros((32, 3), dtype=np.float32)},
        samples=[
            {"x": _normal(seed, 8, 3), "slot": np.random.default_rng(seed).permutation(32)[:8, None]}
            for seed in range(4)
        ],
        probe="values",
        fault=("ScatterND(", 'ScatterND<reduction="add">('),
    ),
}


@pytest.mark.parametrize("planted", [pytest.param(item, id=name) for name, item in _INNOCENT.items()])
def test_what_a_right_conversion_may_answer_otherwise_is_not_asked(planted: Planted, desk: ProbeDesk) -> None:
    answered = _answered(desk, _asked(desk, planted), planted)

    assert answered.gate == ()
    assert "ids" not in answered.failed
    assert "values" not in answered.failed


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_a_step_beside_a_number_is_no_question_to_less_than_float32(precision: str, desk: ProbeDesk) -> None:
    asked = desk.ask(desk.model(_BANDS, _F), _features(), names=["values"])
    coarse = _BANDS.replace("column = ", "half = Cast<to=10>(x)\n  same = Cast<to=1>(half)\n  column = ").replace(
        "Gather<axis=1>(x", "Gather<axis=1>(same"
    )

    assert "values" in desk.answer(asked, desk.model(coarse, _F)).failed
    (outcome,) = desk.answer(asked, desk.model(coarse, _F), precision=precision).outcomes

    assert not [failure for failure in outcome.failures if "just" in failure.about]
    assert any("just below a value" in why for why in outcome.unfit)


# Three fields share one table, as in factorisation machines: a number added to each leads it to its own part.
_FIELDS = """(int64[N,3] x) => (float[N,4] out) {
  places = Add(x, starts)
  rows = Gather(shared, places)
  out = ReduceMean<axes=[1], keepdims=0>(rows)
}"""
# One field answers otherwise where it holds one id.
_ONE_ID_WRONG = _FIELDS.replace(
    "  rows =",
    """  of = Gather<axis=1>(x, field)
  is_it = Equal(of, wrong)
  hit = Cast<to=7>(is_it)
  up = Unsqueeze(hit, last)
  moved = Add(places, up)
  rows =""",
).replace("Gather(shared, places)", "Gather(shared, moved)")
_SHARED = {"starts": np.array([0, 5, 12]), "shared": _normal(9, 20, 4)}


@pytest.mark.parametrize(
    ("field", "wrong", "found"),
    [(0, 4, "failed"), (1, 6, "failed"), (2, 5, "failed"), (0, 5, "edge"), (1, 7, "edge"), (2, -1, "edge")],
)
def test_fields_that_share_a_table_are_asked_for_every_id_of_theirs_and_at_the_edge_for_those_of_others(
    desk: ProbeDesk, field: int, wrong: int, found: str
) -> None:
    planted = {**_SHARED, "field": np.int64(field), "wrong": np.int64(wrong), "last": np.array([1])}
    asked = desk.ask(desk.model(_FIELDS, _SHARED), _whole(0, 4, 4, 3), names=["ids"])

    answered = desk.answer(asked, desk.model(_ONE_ID_WRONG, planted), edge="warn")

    assert answered.gate == ()
    assert set(answered.failed) == ({"ids"} if found == "failed" else set())
    told = [finding.edge for outcome in answered.outcomes for finding in outcome.findings]
    assert bool(told) is (found == "edge")
    assert desk.answer(asked, desk.model(_FIELDS, _SHARED)).failed == {}


def test_a_shared_table_is_not_divided_where_samples_hold_what_lies_beyond_a_part(desk: ProbeDesk) -> None:
    asked = desk.ask(desk.model(_FIELDS, _SHARED), _whole(0, 7, 4, 3), names=["ids"])

    role = asked.context.roles["x"]

    assert (role.columns, role.reach) == (((0, 19), (-5, 14), (-12, 7)), ())


def test_a_matrix_of_categories_is_asked_by_column_and_the_report_says_how_many(desk: ProbeDesk) -> None:
    weights = {**_TABLES, "large": _normal(8, 3000, 4)}
    asked = desk.ask(desk.model(_COLUMNS, weights), _whole(0, 20, 4, 2), names=["ids"])

    role = asked.context.roles["x"]
    (probe,) = asked.probes.probes
    held = [stored.inputs["x"] for stored in asked.probes.batches(probe)]

    assert role.columns == ((0, 19), (0, 2999))
    assert role.why == "its columns index tables of 20, 3000 rows"
    assert any("of 3000 ids of x in columns 1 asked" in note for note in probe.notes)
    assert max(ids[:, 1].max() for ids in held) == 2999
    assert max(ids[:, 0].max() for ids in held) == 19


def test_roles_come_back_from_the_recording(desk: ProbeDesk) -> None:
    asked = desk.ask(desk.model(_BANDS, _F), _features(), names=["values"])
    again = asked.probes.roles

    assert again == asked.context.roles
    assert [item.value for item in again["x"].thresholds] == [3, 25, 4.5]
    role = InputRole(
        role=Role.NUMBER,
        why="",
        form=Form.FIXED,
        columns=((1, 2), None),
        thresholds=(Threshold(value=1.5, columns=(2,)),),
        buckets=(Buckets(rows=4, columns=(1,)),),
    )
    assert from_data(InputRole, to_data(role)) == role


def _trees(desk: ProbeDesk, mode: str) -> onnx.ModelProto:
    import onnx
    from onnx import helper

    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2], nodes_featureids=[1, 0, 0], nodes_modes=[mode, "LEAF", "LEAF"],
        nodes_values=[4.5, 0.0, 0.0], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[1.0, 2.0],
    )  # fmt: skip
    model = desk.parsed("(float[N,3] x) => (float[N,1] y) {\n}", {})
    model.graph.node.append(node)
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    onnx.checker.check_model(model)
    return model


def test_what_trees_compare_with_is_asked(desk: ProbeDesk) -> None:
    asked = desk.ask(_trees(desk, "BRANCH_LEQ"), _features(), names=["values"])

    answered = desk.answer(asked, _trees(desk, "BRANCH_LT"))

    assert answered.gate == ()
    assert "a value that the model compares with (4.5) in feature 1" in answered.failed["values"]
    assert asked.context.roles["x"].thresholds == (Threshold(value=4.5, columns=(1,)),)
