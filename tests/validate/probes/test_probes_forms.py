"""What all values seen have in common is kept to; what no sample can be is not asked; and what may be, is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.validate.probes.inputs.roles import DeclaredRole, Form, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.validate.probes.conftest import ProbeDesk

    Array = NDArray[Any]
    Samples = list[dict[str, Array]]

_RANDOM = np.random.default_rng(11)
_WEIGHTS = {"w": _RANDOM.normal(size=(5, 3)).astype(np.float32), "half": np.float32(0.5), "one": np.float32(1)}


def _normal(*shape: int) -> Array:
    return _RANDOM.normal(size=shape).astype(np.float32)


def _classes() -> Samples:
    return [{"x": np.eye(5, dtype=np.float32)[_RANDOM.integers(0, 5, 4)]} for _ in range(6)]


def _shares() -> Samples:
    return [{"x": _RANDOM.dirichlet(np.ones(5), size=4).astype(np.float32)} for _ in range(6)]


def _counts() -> Samples:
    return [{"x": _RANDOM.integers(0, 9, (4, 5)).astype(np.float32)} for _ in range(6)]


def _set_or_not() -> Samples:
    return [{"x": 255 * _RANDOM.integers(0, 2, (4, 5)).astype(np.float32)} for _ in range(6)]


_OF_CLASSES = "(float[B,5] x) => (float[B,3] y) { y = MatMul(x, w) }"
_BY_INDEX = "(float[B,5] x) => (float[B,3] y) { at = ArgMax<axis=1, keepdims=0>(x) y = Gather(w, at) }"
_OF_COUNTS = "(float[B,5] x) => (float[B,5] y) { f = Floor(x) y = Sqrt(f) }"
_ROUNDED = "(float[B,5] x) => (float[B,5] y) { f = Round(x) y = Sqrt(f) }"
_OF_FLAGS = "(float[B,5] x) => (float[B,5] y) { s = Sign(x) y = Mul(s, half) }"
_AS_BOOL = "(float[B,5] x) => (float[B,5] y) { b = Cast<to=9>(x) f = Cast<to=1>(b) y = Mul(f, half) }"


@pytest.mark.parametrize(
    ("form", "samples", "reference", "candidate"),
    [
        (Form.ONE_HOT, _classes(), _OF_CLASSES, _BY_INDEX),
        (Form.WHOLE, _counts(), _OF_COUNTS, _ROUNDED),
        (Form.FLAG, _set_or_not(), _OF_FLAGS, _AS_BOOL),
    ],
)
def test_what_breaks_the_form_of_all_samples_is_not_asked(
    desk: ProbeDesk, form: Form, samples: Samples, reference: str, candidate: str
) -> None:
    asked = desk.ask(desk.model(reference, _WEIGHTS), samples, names=["values"])

    answered = desk.answer(asked, desk.model(candidate, _WEIGHTS))

    assert asked.context.roles["x"].form is form
    assert answered.gate == ()
    assert answered.failed == {}


def test_a_role_that_the_spec_says_sets_numbers_free(desk: ProbeDesk) -> None:
    free = {"x": DeclaredRole(role=Role.NUMBER)}
    asked = desk.ask(desk.model(_OF_CLASSES, _WEIGHTS), _classes(), names=["values"], declared=free)

    assert set(desk.answer(asked, desk.model(_BY_INDEX, _WEIGHTS)).failed) == {"values"}


def test_every_class_is_asked_though_no_sample_is_of_it(desk: ProbeDesk) -> None:
    samples = [{"x": np.eye(5, dtype=np.float32)[_RANDOM.integers(0, 4, 4)]} for _ in range(6)]
    lost = _WEIGHTS["w"].copy()
    lost[4] = 0
    asked = desk.ask(desk.model(_OF_CLASSES, _WEIGHTS), samples, names=["values"])

    answered = desk.answer(asked, desk.model(_OF_CLASSES, {"w": lost}))

    assert answered.gate == ()
    assert set(answered.failed) == {"values"}


def test_shares_stay_shares(desk: ProbeDesk) -> None:
    reference = "(float[B,5] x) => (float[B,3] y) { y = MatMul(x, w) }"
    divided = "(float[B,5] x) => (float[B,3] y) { s = ReduceSum(x, axis) d = Div(x, s) y = MatMul(d, w) }"
    asked = desk.ask(desk.model(reference, _WEIGHTS), _shares(), names=["values"])

    answered = desk.answer(asked, desk.model(divided, {**_WEIGHTS, "axis": np.array([1])}))

    assert asked.context.roles["x"].form is Form.SHARES
    assert (answered.gate, answered.failed) == ((), {})


_SPAN = "(int64[B] start, int64[B] end) => (float[B] y) { d = Sub(end, start) f = Cast<to=1>(d) y = Sqrt(f) }"
_SPAN_OF_ABS = (
    "(int64[B] start, int64[B] end) => (float[B] y) { d = Sub(end, start) a = Abs(d) f = Cast<to=1>(a) y = Sqrt(f) }"
)


def _spans() -> Samples:
    starts = [_RANDOM.integers(0, 40, 8) for _ in range(6)]
    return [{"start": start, "end": start + _RANDOM.integers(1, 20, 8)} for start in starts]


def test_a_beginning_is_not_asked_after_its_end(desk: ProbeDesk) -> None:
    # The reference is the one that answers: were it asked, the candidate would answer NaN.
    asked = desk.ask(desk.model(_SPAN_OF_ABS, {}), _spans(), names=["values", "sensitivity"])

    answered = desk.answer(asked, desk.model(_SPAN, {}))

    assert [str(order) for order in asked.context.survey.orders] == ["start < end"]
    assert (answered.gate, answered.failed) == ((), {})
    assert any("exchanged" in about for about in asked.dropped)


def test_inputs_in_no_order_are_exchanged(desk: ProbeDesk) -> None:
    samples = [{"start": _RANDOM.integers(0, 40, 8), "end": _RANDOM.integers(0, 40, 8)} for _ in range(6)]
    asked = desk.ask(desk.model(_SPAN_OF_ABS, {}), samples, names=["sensitivity"])

    assert asked.context.survey.orders == ()
    assert not any("exchanged" in about for about in asked.dropped)


_MEAN_OF_FIRST = """(float[B,S,2] x, int64[B] lengths) => (float[B,2] y) {
  shape = Shape(x) size = Gather(shape, at) places = Range(zero, size, step)
  wide = Unsqueeze(lengths, one) is_in = Less(places, wide) f = Cast<to=1>(is_in) m = Unsqueeze(f, two)
  kept = Mul(x, m) s = ReduceSum<keepdims=0>(kept, one) c = COUNT q = Unsqueeze(c, one) y = Div(s, q) }"""
_OF_LENGTHS = {
    "at": np.int64(1), "zero": np.int64(0), "step": np.int64(1), "one": np.array([1]), "two": np.array([2]),
}  # fmt: skip


def test_no_length_is_asked_beyond_the_positions_there_are(desk: ProbeDesk) -> None:
    samples = [{"x": _normal(4, 7, 2), "lengths": _RANDOM.integers(1, 8, 4)} for _ in range(6)]
    by_mask = _MEAN_OF_FIRST.replace("COUNT", "ReduceSum<keepdims=0>(f, one)")
    by_length = _MEAN_OF_FIRST.replace("COUNT", "Cast<to=1>(lengths)")
    asked = desk.ask(desk.model(by_mask, _OF_LENGTHS), samples)

    answered = desk.answer(asked, desk.model(by_length, _OF_LENGTHS))

    assert asked.roles == {"x": "number", "lengths": "length"}
    assert (answered.gate, answered.failed) == ((), {})


_SCORES = "(float[B,5] x) => (float[B,3] y) { y = MatMul(x, w) }"
_CLIPPED = "(float[B,5] x) => (float[B,3] y) { z = MatMul(x, w) y = Clip(z, low, high) }"


def test_a_clip_far_from_the_samples_is_found_in_float32_and_not_held_against_less(desk: ProbeDesk) -> None:
    samples = [{"x": _normal(4, 5)} for _ in range(6)]
    weights = {**_WEIGHTS, "low": np.float32(-300), "high": np.float32(300)}
    asked = desk.ask(desk.model(_SCORES, _WEIGHTS), samples, names=["values"])
    clipped = desk.model(_CLIPPED, weights)

    assert set(desk.answer(asked, clipped).failed) == {"values"}
    assert desk.answer(asked, clipped, precision="fp16").failed == {}


def test_an_epsilon_that_shows_on_small_rows_alone_is_found(desk: ProbeDesk) -> None:
    text = """(float[B,5] x) => (float[B,5] y) {
      s = Mul(x, x) t = ReduceSum(s, axis) u = Add(t, epsilon) r = Sqrt(u) y = Div(x, r) }"""
    samples = [{"x": 100 * _normal(4, 5)} for _ in range(6)]
    asked = desk.ask(desk.model(text, {"axis": np.array([1]), "epsilon": np.float32(1e-12)}), samples, names=["values"])

    answered = desk.answer(asked, desk.model(text, {"axis": np.array([1]), "epsilon": np.float32(1e-2)}))

    assert answered.gate == ()
    assert set(answered.failed) == {"values"}


_HASHED = """(int64[B] user_id, int64[B] item_id) => (float[B,4] y) {
  u = Mod(user_id, rows) i = Mod(item_id, rows) a = Gather(t, u) b = Gather(t, i) y = Add(a, b) }"""
_THROUGH_FLOAT = _HASHED.replace("i = Mod(item_id, rows)", "f = Cast<to=1>(item_id) g = Cast<to=7>(f) i = Mod(g, rows)")


def test_of_several_ids_each_is_asked_what_float32_does_not_hold(desk: ProbeDesk) -> None:
    weights = {"t": _normal(50, 4), "rows": np.int64(50)}
    samples = [{name: _RANDOM.integers(0, 90_000, 8) for name in ("user_id", "item_id")} for _ in range(6)]
    asked = desk.ask(desk.model(_HASHED, weights), samples, names=["ids"])

    answered = desk.answer(asked, desk.model(_THROUGH_FLOAT, weights))

    assert answered.gate == ()
    assert set(answered.failed) == {"ids"}
    assert asked.dropped == []


_SATURATED = """(int64[B] category, float[B,1] x) => (float[B,1] p) {
  e = Gather(t, category) u = Add(e, x) p = Sigmoid(u) }"""


def test_a_lost_category_is_found_though_a_quarter_of_the_rows_is_saturated(desk: ProbeDesk) -> None:
    # In a quarter of the rows, no category changes the probability by more than its limit.
    x = np.resize(np.float32([-30, 0, 0, 0]), (48, 1))
    samples = [{"category": _RANDOM.integers(0, 4, 12), "x": x[at : at + 12]} for at in range(0, 48, 12)]
    table = np.linspace(0.5, 2, 12, dtype=np.float32)[:, None]
    asked = desk.ask(desk.model(_SATURATED, {"t": table}), samples, names=["ids"])

    for lost in range(4, 12):
        answered = desk.answer(asked, desk.model(_SATURATED, {"t": np.where(table == table[lost], 0, table)}))

        assert answered.gate == ()
        assert set(answered.failed) == {"ids"}


_CACHE = """(float[B,1,2] x, float[B,P,2] past) => (float[B,2] y, float[B,Q,2] present) {
  present = Concat<axis=1>(past, x) y = ReduceMean<axes=[1], keepdims=0>(present) }"""


def test_a_cache_that_is_empty_in_all_samples_is_filled(desk: ProbeDesk) -> None:
    samples = [{"x": _normal(4, 1, 2), "past": np.zeros((4, 0, 2), dtype=np.float32)} for _ in range(6)]
    ignored = _CACHE.replace("ReduceMean<axes=[1], keepdims=0>(present)", "ReduceMean<axes=[1], keepdims=0>(x)")
    asked = desk.ask(desk.model(_CACHE, {}), samples, names=["shapes"])

    answered = desk.answer(asked, desk.model(ignored, {}))

    assert answered.gate == ()
    assert set(answered.failed) == {"shapes"}


_TURNED = """(int64[B,S] ids, int64[B,S] places) => (float[B,4] y) {
  e = Gather(t, ids) f = Cast<to=TYPE>(places) g = Mul(f, tiny) h = Cast<to=1>(g) i = Sin(h) j = Unsqueeze(i, last)
  k = Add(e, j) y = ReduceMean<axes=[1], keepdims=0>(k) }"""


def test_ids_in_place_of_positions_are_asked_of_float32_and_not_held_against_less(desk: ProbeDesk) -> None:
    weights = {"t": _normal(4000, 4), "last": np.array([-1])}
    samples = [{"ids": _RANDOM.integers(0, 4000, (4, 6)), "places": np.tile(np.arange(6), (4, 1))} for _ in range(6)]
    whole = desk.model(_TURNED.replace("TYPE", "1"), {**weights, "tiny": np.float32(0.9)})
    half = desk.model(_TURNED.replace("TYPE", "10"), {**weights, "tiny": np.float16(0.9)})
    asked = desk.ask(whole, samples, names=["sensitivity"])

    assert set(desk.answer(asked, half).failed) == {"sensitivity"}
    assert desk.answer(asked, half, precision="fp16").failed == {}
