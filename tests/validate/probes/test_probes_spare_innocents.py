"""What computes the same otherwise, or honestly in the precision declared, is failed by no probe."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnx
    from conftest import ProbeDesk

Array = NDArray[Any]
Samples = list[dict[str, Array]]


def _normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _whole(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A model of one kind, and ordinary samples for it."""

    text: str
    weights: dict[str, Array]
    samples: Samples


# Ages, incomes and shares, normalised by row: a constant row is divided by next to nothing.
_NORMED = """(float[N,12] x) => (float[N,3] scores, int64[N] label) {
  centre = ReduceMean<axes=[1], keepdims=1>(x)
  away = Sub(x, centre)
  square = Mul(away, away)
  spread = ReduceMean<axes=[1], keepdims=1>(square)
  sure = Add(spread, epsilon)
  root = Sqrt(sure)
  ratio = Div(away, root)
  scaled = Mul(ratio, gamma)
  normed = Add(scaled, beta)
  h = Gemm(normed, w1, b1)
  r = Relu(h)
  scores = Gemm(r, w2, b2)
  label = ArgMax<axis=1, keepdims=0>(scores)
}"""
_FUSED = """(float[N,12] x) => (float[N,3] scores, int64[N] label) {
  normed = LayerNormalization<axis=1, epsilon=1e-5>(x, gamma, beta)
  h = Gemm(normed, w1, b1)
  r = Relu(h)
  scores = Gemm(r, w2, b2)
  label = ArgMax<axis=1, keepdims=0>(scores)
}"""
_UNFUSED_GEMM = """(float[N,12] x) => (float[N,3] scores, int64[N] label) {
  centre = ReduceMean<axes=[1], keepdims=1>(x)
  away = Sub(x, centre)
  square = Mul(away, away)
  spread = ReduceMean<axes=[1], keepdims=1>(square)
  sure = Add(spread, epsilon)
  root = Sqrt(sure)
  inverse = Reciprocal(root)
  ratio = Mul(away, inverse)
  scaled = Mul(ratio, gamma)
  normed = Add(scaled, beta)
  h0 = MatMul(normed, w1)
  h = Add(h0, b1)
  r = Relu(h)
  s0 = MatMul(r, w2)
  scores = Add(b2, s0)
  label = ArgMax<axis=1, keepdims=0>(scores)
}"""
_REORDERED = _NORMED.replace("(float[N,3] scores, int64[N] label)", "(int64[N] label, float[N,3] scores)")
_REASSOCIATED = _NORMED.replace(
    "scores = Gemm(r, w2, b2)",
    """r1 = Slice(r, zero, four, one)
  r2 = Slice(r, four, eight, one)
  w21 = Slice(w2, zero, four, zero)
  w22 = Slice(w2, four, eight, zero)
  p2 = MatMul(r2, w22)
  p1 = MatMul(r1, w21)
  p = Add(p2, p1)
  scores = Add(p, b2)""",
)
_NORMED_WEIGHTS = {
    "epsilon": np.float32(1e-5), "gamma": 1 + 0.1 * _normal(0, 12), "beta": 0.1 * _normal(1, 12),
    "w1": 0.4 * _normal(2, 12, 8), "b1": 0.1 * _normal(3, 8), "w2": 0.4 * _normal(4, 8, 3), "b2": _normal(5, 3),
    "zero": _whole(0), "one": _whole(1), "four": _whole(4), "eight": _whole(8),
}  # fmt: skip
_PICTURE = """(float[N,3,H,W] image) => (float[N,4] scores) {
  c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, k)
  n = BatchNormalization<epsilon=1e-5>(c, gamma, beta, mean, variance)
  r = Relu(n)
  p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
  c2 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(p, k2)
  g = GlobalAveragePool(c2)
  flat = Flatten<axis=1>(g)
  scores = Gemm(flat, w, b)
}"""
_FOLDED = """(float[N,3,H,W] image) => (float[N,4] scores) {
  c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, folded, shift)
  r = Relu(c)
  p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
  c2 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(p, k2)
  g = ReduceMean<axes=[2,3], keepdims=0>(c2)
  s = MatMul(g, w)
  scores = Add(s, b)
}"""
_GAMMA, _VARIANCE = 1 + 0.1 * _normal(10, 8), np.abs(_normal(11, 8)) + 0.5
_FACTOR = (_GAMMA / np.sqrt(_VARIANCE + np.float32(1e-5))).astype(np.float32)
_KERNEL, _MEAN, _BETA = 0.3 * _normal(12, 8, 3, 3, 3), 0.1 * _normal(13, 8), 0.1 * _normal(14, 8)
_PICTURE_WEIGHTS = {
    "k": _KERNEL, "gamma": _GAMMA, "beta": _BETA, "mean": _MEAN, "variance": _VARIANCE,
    "folded": _KERNEL * _FACTOR.reshape(8, 1, 1, 1), "shift": _BETA - _MEAN * _FACTOR,
    "k2": 0.2 * _normal(15, 8, 8, 3, 3), "w": _normal(16, 8, 4), "b": _normal(17, 4),
}  # fmt: skip
_TEXT = """(int64[N,S] input_ids, int64[N,S] attention_mask) => (float[N,2] logits, float[N,16] embedding) {
  emb = Gather(table, input_ids)
  shape = Shape(input_ids)
  size = Slice(shape, one, two)
  pos = Slice(position, zero, size, zero)
  x0 = Add(emb, pos)
  x = LayerNormalization<axis=2, epsilon=1e-5>(x0, gamma, beta)
  q = MatMul(x, wq)
  k = MatMul(x, wk)
  v = MatMul(x, wv)
  kt = Transpose<perm=[0,2,1]>(k)
  raw = MatMul(q, kt)
  calm = Mul(raw, quarter)
  m = Cast<to=1>(attention_mask)
  gap = Sub(onef, m)
  far = Mul(gap, minus)
  far3 = Unsqueeze(far, one)
  masked = Add(calm, far3)
  p = Softmax<axis=2>(masked)
  mixed = MatMul(p, v)
  y0 = Add(x, mixed)
  y = LayerNormalization<axis=2, epsilon=1e-5>(y0, gamma, beta)
  m3 = Unsqueeze(m, two)
  kept = Mul(y, m3)
  total = ReduceSum<keepdims=0>(kept, one)
  count = ReduceSum<keepdims=1>(m, one)
  safe = Max(count, onef)
  embedding = Div(total, safe)
  logits = Gemm(embedding, w, b)
}"""
_POOLED = """(int64[N,S] input_ids, int64[N,S] attention_mask) => (float[N,2] logits) {
  x = Gather(table, input_ids)
  m = Cast<to=1>(attention_mask)
  m3 = Unsqueeze(m, two)
  kept = Mul(x, m3)
  total = ReduceSum<keepdims=0>(kept, one)
  count = ReduceSum<keepdims=1>(m, one)
  safe = Max(count, onef)
  mean = Div(total, safe)
  h = MatMul(mean, wq)
  r = Tanh(h)
  logits = Gemm(r, w, b)
}"""
_REGROUPED = (
    _TEXT.replace("  q = MatMul(x, wq)", "  wq4 = Mul(wq, quarter)\n  q = MatMul(x, wq4)")
    .replace("  calm = Mul(raw, quarter)", "  calm = Identity(raw)")
    .replace("  embedding = Div(total, safe)", "  share = Reciprocal(safe)\n  embedding = Mul(share, total)")
)
_TEXT_WEIGHTS = {
    "table": _normal(20, 300, 16), "position": 0.3 * _normal(21, 40, 16), "gamma": 1 + 0.1 * _normal(22, 16),
    "beta": 0.1 * _normal(23, 16), "wq": 0.3 * _normal(24, 16, 16), "wk": 0.3 * _normal(25, 16, 16),
    "wv": 0.3 * _normal(26, 16, 16), "w": _normal(27, 16, 2), "b": _normal(28, 2), "quarter": np.float32(0.25),
    "onef": np.array([[1.0]], dtype=np.float32), "minus": np.float32(-1e4), "zero": _whole(0), "one": _whole(1),
    "two": _whole(2),
}  # fmt: skip


@functools.cache
def _kinds() -> dict[str, Kind]:
    random = np.random.default_rng(30)
    scale = np.array([40, 30000, 0.5, 1, 1, 10, 3, 0.1, 2, 5, 7, 1])
    rows = [{"x": (scale * (1 + 0.3 * random.standard_normal((8, 12)))).astype(np.float32)} for _ in range(6)]
    pictures = [{"image": np.abs(_normal(40 + at, 4, 3, 16, 16))} for at in range(4)]
    texts = []
    for length in (20, 14, 9, 20, 17, 12):
        tokens = random.integers(1, 250, (8, 20))
        mask = np.broadcast_to(np.arange(20) < length, tokens.shape).astype(np.int64)
        texts.append({"input_ids": tokens * mask, "attention_mask": mask})
    return {
        "normed": Kind(text=_NORMED, weights=_NORMED_WEIGHTS, samples=rows),
        "picture": Kind(text=_PICTURE, weights=_PICTURE_WEIGHTS, samples=pictures),
        "text": Kind(text=_TEXT, weights=_TEXT_WEIGHTS, samples=texts),
        "pooled": Kind(text=_POOLED, weights=_TEXT_WEIGHTS, samples=texts),
    }


def _newer(model: onnx.ModelProto) -> onnx.ModelProto:
    from onnx import version_converter

    return version_converter.convert_version(model, 21)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param("normed", _FUSED, id="a normalisation fused"),
        pytest.param("normed", _UNFUSED_GEMM, id="Gemm as MatMul and Add"),
        pytest.param("normed", _REORDERED, id="outputs reordered"),
        pytest.param("normed", _REASSOCIATED, id="sums in another order"),
        pytest.param("picture", _FOLDED, id="BatchNormalization folded"),
        pytest.param("text", _REGROUPED, id="a factor moved"),
    ],
)
def test_an_innocent_rewrite_fails_no_probe(kind: str, text: str, desk: ProbeDesk) -> None:
    made = _kinds()[kind]
    asked = desk.ask(desk.model(made.text, made.weights), made.samples)
    answered = desk.answer(asked, desk.model(text, made.weights))
    assert answered.gate == ()
    assert answered.failed == {}


@pytest.mark.parametrize("kind", _kinds())
def test_a_newer_opset_fails_no_probe(kind: str, desk: ProbeDesk) -> None:
    made = _kinds()[kind]
    model = desk.model(made.text, made.weights)
    assert desk.answer(desk.ask(model, made.samples), _newer(model)).failed == {}


@pytest.mark.parametrize("kind", _kinds())
def test_honest_float16_fails_no_probe_of_fp16(kind: str, desk: ProbeDesk) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    made = _kinds()[kind]
    asked = desk.ask(desk.model(made.text, made.weights), made.samples)
    half = convert_float_to_float16(desk.model(made.text, made.weights), keep_io_types=True)
    answered = desk.answer(asked, half, precision="fp16", argmax_of={"label": "scores"} if kind == "normed" else {})
    assert answered.gate == ()
    assert answered.failed == {}


@pytest.mark.parametrize("kind", _kinds())
def test_weights_rounded_to_bfloat16_fail_no_probe_of_bf16(kind: str, desk: ProbeDesk) -> None:
    made = _kinds()[kind]
    asked = desk.ask(desk.model(made.text, made.weights), made.samples)
    rounded = {
        name: value.astype(ml_dtypes.bfloat16).astype(np.float32) if np.asarray(value).dtype == np.float32 else value
        for name, value in ((name, np.asarray(value)) for name, value in made.weights.items())
    }
    answered = desk.answer(
        asked,
        desk.model(made.text, rounded),
        precision="bf16",
        argmax_of={"label": "scores"} if kind == "normed" else {},
    )
    assert answered.gate == ()
    assert answered.failed == {}


@pytest.mark.parametrize("kind", ["picture", "pooled"])
def test_honest_int8_fails_no_probe_of_int8(kind: str, desk: ProbeDesk) -> None:
    made = _kinds()[kind]
    model = desk.model(made.text, made.weights)
    answered = desk.answer(desk.ask(model, made.samples), desk.quantized(model, made.samples), precision="int8")
    assert answered.gate == ()
    assert answered.failed == {}


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), rewrite=st.sampled_from([_FUSED, _UNFUSED_GEMM, _REORDERED, _REASSOCIATED]))
def test_no_innocent_rewrite_of_any_weights_turns_pass_into_fail(seed: int, rewrite: str, desk: ProbeDesk) -> None:
    made = _kinds()["normed"]
    weights = {**made.weights, "w1": 0.4 * _normal(seed, 12, 8), "w2": 0.4 * _normal(seed + 1, 8, 3)}
    asked = desk.ask(desk.model(made.text, weights), made.samples, seed=seed)
    answered = desk.answer(asked, desk.model(rewrite, weights))
    if answered.gate == ():
        assert answered.failed == {}


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), kind=st.sampled_from(["pooled", "picture"]))
def test_a_larger_error_never_turns_fail_into_pass(seed: int, kind: str, desk: ProbeDesk) -> None:
    made = _kinds()[kind]
    asked = desk.ask(desk.model(made.text, made.weights), made.samples)
    error = _normal(seed, *made.weights["w"].shape)
    failed_before: set[str] = set()
    for size in (1e-6, 1e-4, 1e-3, 1e-1):
        weights = {**made.weights, "w": made.weights["w"] + size * error}
        failed = set(desk.answer(asked, desk.model(made.text, weights)).failed)
        assert failed_before <= failed
        failed_before = failed
    assert failed_before


def test_rows_that_are_asked_many_times_may_have_another_mean(desk: ProbeDesk) -> None:
    # Every other row is off by less than half the limit of a value: their mean is within its own on the samples, where
    # each row stands once, and beyond it where one of them fills a batch.
    text = """(float[N,4] x) => (float[N,4] y) {{
        first = Slice(x, zero, one, one)
        far = Greater(first, nought)
        step = Cast<to=1>(far)
        off = Mul(step, {size})
        y = Add(x, off)
    }}"""
    weights = {
        "zero": np.array([0]), "one": np.array([1]), "nought": np.array([0], np.float32),
        "right": np.array([0], np.float32), "wrong": np.array([3.8e-5], np.float32),
    }  # fmt: skip
    samples = [{"x": np.random.default_rng(20 + seed).uniform(-1, 1, (16, 4)).astype(np.float32)} for seed in range(8)]
    asked = desk.ask(desk.parsed(text.format(size="right"), weights), samples, names=["batches"])

    answered = desk.answer(asked, desk.parsed(text.format(size="wrong"), weights))

    assert (answered.gate, answered.failed) == ((), {})


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_a_large_answer_to_a_row_that_runs_many_times_is_no_fill_value(desk: ProbeDesk, shape: tuple[int, ...]) -> None:
    text = """(float[N,8] x) => (float[N,{size}] y) {{
        {steps}
        grown = Exp(sums)
        y = Reshape(grown, shape)
    }}"""
    weight = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)
    halves = {"low": weight * (np.arange(8) < 4)[:, None], "high": weight * (np.arange(8) >= 4)[:, None]}
    weights = {"w": weight, "shape": np.array([0, *shape]), **halves}
    size = ",".join(map(str, shape))
    samples = [{"x": 2 * _normal(seed, 16, 8)} for seed in range(12)]
    asked = desk.ask(desk.model(text.format(size=size, steps="sums = MatMul(x, w)"), weights), samples)
    steps = "first = MatMul(x, low)\n  second = MatMul(x, high)\n  sums = Add(first, second)"

    answered = desk.answer(asked, desk.model(text.format(size=size, steps=steps), weights))

    assert (answered.gate, answered.failed) == ((), {})


def test_a_large_answer_to_every_place_of_a_flat_signal_is_no_fill_value(desk: ProbeDesk) -> None:
    # Powers of a spectrum: that of the mean is far above the others where the signal is flat.
    text = """(float[N,20,64] x) => (float[N,20,33] y) {{
        {cast}
        a = MatMul(d, cosines)
        b = MatMul(d, sines)
        a2 = Mul(a, a)
        b2 = Mul(b, b)
        sums = Add(a2, b2)
        y = Cast<to=1>(sums)
    }}"""
    turns = 2 * np.pi * np.outer(np.arange(64), np.arange(33)) / 64
    waves = {"cosines": np.cos(turns) * np.hanning(64)[:, None], "sines": np.sin(turns) * np.hanning(64)[:, None]}
    samples = [{"x": _normal(seed, 8, 20, 64)} for seed in range(4)]
    weights = {name: wave.astype(np.float32) for name, wave in waves.items()}
    asked = desk.ask(desk.model(text.format(cast="d = Identity(x)"), weights), samples, names=["flat"])

    answered = desk.answer(asked, desk.model(text.format(cast="d = Cast<to=11>(x)"), waves))

    assert (answered.gate, answered.failed) == ((), {})
