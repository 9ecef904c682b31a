"""Rows with one value all over: lost guards are found, and right conversions of what normalises them are spared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.validate.probes.skip_reasons import DropKind

if TYPE_CHECKING:
    from conftest import Answered, Asked, ProbeDesk
    from numpy.typing import NDArray

Array = Any
_WIDTH = 24


def _series() -> list[dict[str, NDArray[np.float32]]]:
    random = np.random.default_rng(0)
    return [{"x": random.uniform(16.0, 82.0, (8, _WIDTH)).astype(np.float32)} for _ in range(5)]


def _weights() -> dict[str, Array]:
    return {
        "w": np.random.default_rng(1).normal(0, 0.3, (_WIDTH, 3)).astype(np.float32),
        "b": np.float32([0.4, -0.7, 0.2]),
        "along": np.int64([1]),
        "n": np.float32(_WIDTH),
        "share": np.float32(1 / _WIDTH),
        "small": np.float32(1e-6),
        "eps": np.float32(1e-2),
        "one": np.float32(1),
        "a": np.float32(0.37),
        "c": np.float32(0.1),
        "c_over_a": np.float32(0.1 / 0.37),
    }


_GUARD = "low = Less(spread, small) scale = Where(low, one, spread)"
_EPSILON = "more = Add(variance, eps) scale = Sqrt(more)"
_NO_GUARD = "scale = Identity(spread)"
_MEAN = "mean = ReduceMean<axes=[1]>(z)"
_MEAN_BY_SHARE = "sum = ReduceSum(z, along) mean = Mul(sum, share)"
_VARIANCE = "square = Mul(d, d) variance = ReduceMean<axes=[1]>(square)"
_VARIANCE_OF_SUM = "total = ReduceSumSquare<axes=[1]>(d) variance = Div(total, n)"


def _model(
    desk: ProbeDesk,
    *,
    before: str = "z = Identity(x)",
    mean: str = _MEAN,
    variance: str = _VARIANCE,
    guard: str = _GUARD,
    back: str = "scale",
) -> Any:  # noqa: ANN401 - a model of ONNX
    """Return a forecaster that normalises each series and undoes it afterwards by `back`."""
    text = f"""(float[N,{_WIDTH}] x) => (float[N,3] y) {{
        {before} {mean} d = Sub(z, mean) {variance} spread = Sqrt(variance) {guard}
        normal = Div(d, scale) h = MatMul(normal, w) biased = Add(h, b) t = Tanh(biased)
        wide = Mul(t, {back}) y = Add(wide, mean)
    }}"""
    used = {name: array for name, array in _weights().items() if f"{name})" in text or f"{name}," in text}
    return desk.model(text, used)


def _asked(desk: ProbeDesk, **reference: str) -> Asked:
    return desk.ask(_model(desk, **reference), _series(), names=["flat"])


def _answered(desk: ProbeDesk, asked: Asked, **candidate: str) -> Answered:
    return desk.answer(asked, _model(desk, **candidate))


@pytest.mark.parametrize("guard", [_GUARD, _EPSILON])
@pytest.mark.parametrize("fault", [{"back": "spread"}, {"guard": _NO_GUARD}])
def test_a_lost_guard_fails_by_flat_rows_alone(desk: ProbeDesk, guard: str, fault: dict[str, str]) -> None:
    asked = _asked(desk, guard=guard)

    answered = _answered(desk, asked, **{"guard": guard, **fault})

    (flat,) = asked.probes.probes
    assert answered.gate == ()
    assert set(answered.failed) == {"flat"}
    assert flat.rows == 4
    # Inside: no finding at the edge.
    assert all(not batch.edges for batch in flat.batches)


@pytest.mark.parametrize("guard", [_GUARD, _EPSILON])
@pytest.mark.parametrize(
    "change",
    [{"mean": _MEAN_BY_SHARE}, {"variance": _VARIANCE_OF_SUM}, {"mean": _MEAN_BY_SHARE, "variance": _VARIANCE}],
)
def test_sums_in_another_form_are_spared(desk: ProbeDesk, guard: str, change: dict[str, str]) -> None:
    asked = _asked(desk, guard=guard)

    answered = _answered(desk, asked, guard=guard, **change)

    assert sum(probe.rows for probe in asked.probes.probes) == 4
    assert (answered.gate, answered.failed) == ((), {})


def test_a_row_whose_spread_is_what_rounding_leaves_is_left_out_and_counted(desk: ProbeDesk) -> None:
    asked = _asked(desk, before="scaled = Mul(x, a) z = Add(scaled, c)")

    answered = _answered(desk, asked, before="moved = Add(x, c_over_a) z = Mul(moved, a)", mean=_MEAN_BY_SHARE)

    (flat,) = asked.probes.probes
    assert flat.dropped_counts[DropKind.UNSTEADY] > 0
    assert (answered.gate, answered.failed) == ((), {})


def test_a_row_that_the_reference_answers_with_nan_is_left_out_and_counted(desk: ProbeDesk) -> None:
    asked = _asked(desk, guard=_NO_GUARD)

    (flat,) = asked.probes.probes
    assert (flat.rows, flat.dropped_counts) == (0, {DropKind.NOT_ANSWERED: 4})


_GROUP_NORM = """(float[N,4,6,6] x) => (float[N,4] y) {
    groups = Reshape(x, shape) mean = ReduceMean<axes=[2]>(groups) d = Sub(groups, mean) square = Mul(d, d)
    variance = ReduceMean<axes=[2]>(square) more = Add(variance, eps) scale = Sqrt(more)
    normal = Div(d, scale) z = Reshape(normal, back) h = Conv<pads=[1,1,1,1]>(z, w, b) r = Relu(h)
    y = ReduceMean<axes=[2,3], keepdims=0>(r)
}"""


@pytest.mark.parametrize("eps", [1e-5, 0.0])
def test_a_blank_picture_finds_a_lost_epsilon(desk: ProbeDesk, eps: float) -> None:
    random = np.random.default_rng(2)
    weights = {
        "shape": np.int64([0, 2, -1]), "back": np.int64([0, 4, 6, 6]),
        "eps": np.float32(1e-5), "b": np.float32([0.1, 0.2, -0.1, 0.3]),
        "w": random.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32),
    }  # fmt: skip
    samples = [{"x": random.uniform(0, 1, (8, 4, 6, 6)).astype(np.float32)} for _ in range(4)]
    asked = desk.ask(desk.model(_GROUP_NORM, weights), samples, names=["flat"])

    answered = desk.answer(asked, desk.model(_GROUP_NORM, {**weights, "eps": np.float32(eps)}))

    assert asked.roles == {"x": "image"}
    assert set(answered.failed) == (set() if eps else {"flat"})


def test_features_of_a_series_are_constant_each_in_its_own_range(desk: ProbeDesk) -> None:
    random = np.random.default_rng(3)
    scales = np.float32([1.0, 100.0])
    samples = [{"x": (random.uniform(1, 2, (8, 12, 2)) * scales).astype(np.float32)} for _ in range(4)]
    text = """(float[N,12,2] x) => (float[N,2] y) {
        mean = ReduceMean<axes=[1]>(x) d = Sub(x, mean) square = Mul(d, d) variance = ReduceMean<axes=[1]>(square)
        more = Add(variance, eps) scale = Sqrt(more) normal = Div(d, scale) t = Mul(normal, w)
        y = ReduceSum<keepdims=0>(t, along)
    }"""
    weights = {
        "along": np.int64([1]), "eps": np.float32(1e-5), "w": random.normal(size=(12, 2)).astype(np.float32)
    }  # fmt: skip
    asked = desk.ask(desk.model(text, weights), samples, names=["flat"])

    answered = desk.answer(asked, desk.model(text, {**weights, "eps": np.float32(0)}))

    assert set(answered.failed) == {"flat"}
    (flat,) = asked.probes.probes
    assert all(not batch.edges for batch in flat.batches)


def test_no_probe_is_made_of_features_that_share_no_value(desk: ProbeDesk) -> None:
    random = np.random.default_rng(4)
    samples = [{"x": (random.uniform(1, 2, (8, 2)) * np.float32([1, 100])).astype(np.float32)} for _ in range(4)]
    asked = desk.ask(desk.model("(float[N,2] x) => (float[N,2] y) { y = Relu(x) }", {}), samples, names=["flat"])

    (flat,) = asked.probes.probes
    assert (flat.rows, flat.dropped_counts) == (0, {})
