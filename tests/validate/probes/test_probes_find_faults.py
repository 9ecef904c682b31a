"""Faults planted one at a time: ordinary samples do not show them, and the right probe does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.signature import Dim

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Asked, ProbeDesk

Array = NDArray[Any]
Weights = dict[str, Array]
Index = int | slice | list[int]
Samples = list[dict[str, Array]]


def _normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _whole(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A model of one kind, and ordinary samples for it."""

    text: str
    weights: Weights
    samples: Samples
    dims: Mapping[str, Dim] = field(default_factory=dict)


def _padded(seed: int, lengths: tuple[int, ...], *, rows: int, ids: int, size: int) -> Samples:
    """Return texts, padded on the right with 0; in one batch all are of one length."""
    random = np.random.default_rng(seed)
    found = []
    for length in lengths:
        tokens = np.stack([random.permutation(np.arange(1, ids))[:size] for _ in range(rows)])
        mask = np.broadcast_to(np.arange(size) < length, tokens.shape).astype(np.int64)
        found.append({"input_ids": tokens * mask, "attention_mask": mask})
    return found


_TEXT = """(int64[N,S] input_ids, int64[N,S] attention_mask) => (float[N,2] logits) {
  clean = Identity(input_ids)
  emb = Gather(table, clean)
  shape = Shape(input_ids)
  size = Slice(shape, one, two)
  pos = Slice(position, zero, size, zero)
  x = Add(emb, pos)
  m = Cast<to=1>(attention_mask)
  m3 = Unsqueeze(m, two)
  kept = Mul(x, m3)
  total = ReduceSum<keepdims=0>(kept, one)
  count = ReduceSum<keepdims=1>(m, one)
  safe = Max(count, onef)
  mean = Div(total, safe)
  scaled = Identity(mean)
  h = Tanh(scaled)
  out = Gemm(h, w, b)
  logits = Identity(out)
}"""
_TEXT_WEIGHTS: Weights = {
    "table": _normal(0, 200, 8), "position": _normal(1, 16, 8), "w": _normal(2, 8, 2), "b": _normal(3, 2),
    "zero": _whole(0), "one": _whole(1), "two": _whole(2), "onef": np.array([[1.0]], dtype=np.float32),
}  # fmt: skip
_ATTENTION = """(int64[N,S] input_ids, int64[N,S] attention_mask) => (float[N,2] logits) {
  x = Gather(table, input_ids)
  raw = MatMul(x, q)
  flat = Squeeze(raw, two)
  m = Cast<to=1>(attention_mask)
  gap = Sub(onef, m)
  far = Mul(gap, minus)
  masked = Add(flat, far)
  p = Softmax<axis=1>(masked)
  p3 = Unsqueeze(p, two)
  part = Mul(x, p3)
  h = ReduceSum<keepdims=0>(part, one)
  logits = Gemm(h, w, b)
}"""
_ATTENTION_WEIGHTS: Weights = {
    **_TEXT_WEIGHTS, "q": _normal(4, 8, 1), "minus": np.array(-1e9, dtype=np.float32),
}  # fmt: skip
_IDS_ONLY = """(int64[N,S] tokens, int64[N,S] kinds) => (float[N,2] logits) {
  e = Gather(table, tokens)
  k = Gather(types, kinds)
  x = Add(e, k)
  pad = Equal(tokens, nought)
  real = Not(pad)
  m = Cast<to=1>(real)
  m3 = Unsqueeze(m, two)
  kept = Mul(x, m3)
  total = ReduceSum<keepdims=0>(kept, one)
  count = ReduceSum<keepdims=1>(m, one)
  safe = Max(count, onef)
  h = Div(total, safe)
  logits = Gemm(h, w, b)
}"""
_IDS_ONLY_WEIGHTS: Weights = {
    **_TEXT_WEIGHTS, "types": _normal(5, 3, 8), "nought": np.array(0, dtype=np.int64),
}  # fmt: skip
_TABLE = """(float[N,4] x, int64[N,1] offset, int64[N] category) => (float[N,2] scores, int64[N] label) {
  lacks = IsNaN(x)
  known = Where(lacks, fill, x)
  calm = Clip(known, lowest, highest)
  centre = ReduceMean<axes=[1], keepdims=1>(calm)
  away = Sub(calm, centre)
  square = Mul(away, away)
  spread = ReduceMean<axes=[1], keepdims=1>(square)
  sure = Add(spread, epsilon)
  root = Sqrt(sure)
  ratio = Div(away, root)
  pos = Relu(calm)
  days = Cast<to=1>(offset)
  weeks = Div(days, seven)
  whole = Floor(weeks)
  season = Mul(whole, half)
  cat = Gather(cats, category)
  a = MatMul(calm, w)
  c = MatMul(pos, v)
  r = MatMul(ratio, u)
  one = Add(a, c)
  oner = Add(one, r)
  two = Add(oner, cat)
  scores = Add(two, season)
  label = ArgMax<axis=1, keepdims=0>(known)
}"""
_TABLE_WEIGHTS: Weights = {
    "fill": np.array([0.1, -0.2, 0.3, 0.5], dtype=np.float32), "cats": _normal(6, 40, 2), "w": _normal(7, 4, 2),
    "v": _normal(8, 4, 2), "u": _normal(9, 4, 2), "seven": np.array(7, dtype=np.float32),
    "half": np.array(0.5, dtype=np.float32), "epsilon": np.array(1e-6, dtype=np.float32),
    "lowest": np.array(-50.0, dtype=np.float32), "highest": np.array(50.0, dtype=np.float32),
}  # fmt: skip
_IMAGE = """(float[N,3,H,W] image) => (float[N,2] scores) {
  wh = Shape(image)
  high = Slice(wh, two, three)
  wide = Slice(wh, three, four)
  picture = Slice(image, zero, wide, three)
  c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(picture, k, kb)
  r = Relu(c)
  p = AveragePool<kernel_shape=[2,2], strides=[2,2]>(r)
  top = ReduceMax<axes=[2,3], keepdims=0>(p)
  avg = ReduceMean<axes=[2,3], keepdims=0>(p)
  both = Add(top, avg)
  scores = Gemm(both, w, b)
}"""
_IMAGE_WEIGHTS: Weights = {
    "k": _normal(10, 4, 3, 3, 3), "kb": _normal(11, 4), "w": _normal(12, 4, 2), "b": _normal(13, 2),
    "zero": _whole(0), "two": _whole(2), "three": _whole(3), "four": _whole(4),
}  # fmt: skip
_SERIES = """(float[N,T,3] series, int64[N] length) => (float[N,2] scores) {
  shape = Shape(series)
  steps = Slice(shape, one, two)
  stepsq = Squeeze(steps, zero)
  at = Range(nought, stepsq, step)
  at2 = Unsqueeze(at, zero)
  len2 = Unsqueeze(length, one)
  within = Less(at2, len2)
  m = Cast<to=1>(within)
  m3 = Unsqueeze(m, two)
  kept = Mul(series, m3)
  total = ReduceSum<keepdims=0>(kept, one)
  lenf = Cast<to=1>(len2)
  safe = Max(lenf, onef)
  h = Div(total, safe)
  scores = Gemm(h, w, b)
}"""
_SERIES_WEIGHTS: Weights = {
    "zero": _whole(0), "one": _whole(1), "two": _whole(2), "nought": np.array(0, dtype=np.int64),
    "step": np.array(1, dtype=np.int64), "onef": np.array([[1.0]], dtype=np.float32), "w": _normal(14, 3, 2),
    "b": _normal(15, 2),
}  # fmt: skip
_PAIR = """(float[N,3] left, float[N,3] right, bool[N] flag, float temperature) => (float[N,2] scores) {
  a = MatMul(left, w)
  c = MatMul(right, v)
  s = Sub(a, c)
  f = Cast<to=1>(flag)
  f2 = Unsqueeze(f, one)
  t = Add(s, f2)
  scores = Div(t, temperature)
}"""
_PAIR_WEIGHTS: Weights = {"w": _normal(16, 3, 2), "v": _normal(17, 3, 2), "one": _whole(1)}
_HASHED = """(int64[N,S] key) => (float[N,2] scores) {
  slot = Mod(key, size)
  e = Gather(table, slot)
  h = ReduceMean<axes=[1], keepdims=0>(e)
  scores = Gemm(h, w, b)
}"""
_HASHED_WEIGHTS: Weights = {
    "size": np.array(97, dtype=np.int64), "table": _normal(18, 97, 8), "w": _normal(2, 8, 2), "b": _normal(3, 2),
}  # fmt: skip
_PIXELS = """(uint8[N,4,4,3] pixels) => (float[N,2] scores) {
  f = Cast<to=1>(pixels)
  s = Div(f, scale)
  flat = Flatten<axis=1>(s)
  scores = Gemm(flat, w, b)
}"""
_PIXELS_WEIGHTS: Weights = {
    "scale": np.array(255, dtype=np.float32), "w": _normal(19, 48, 2), "b": _normal(20, 2),
}  # fmt: skip
_VOCABULARY = """(int64[N,S] ids) => (float[N,2] scores) {
  clean = Identity(ids)
  e = Gather(table, clean)
  h = ReduceMean<axes=[1], keepdims=0>(e)
  scores = Gemm(h, w, b)
}"""
_VOCABULARY_WEIGHTS: Weights = {"table": _normal(21, 50000, 4), "w": _normal(22, 4, 2), "b": _normal(23, 2)}
_WIDE = """(float[N,100] x) => (float[N,2] scores) {
  clean = Identity(x)
  scores = Gemm(clean, w, b)
}"""
_WIDE_WEIGHTS: Weights = {"w": _normal(24, 100, 2), "b": _normal(25, 2)}


def _tables() -> Samples:
    random = np.random.default_rng(30)
    found = []
    for _ in range(5):
        x = np.abs(random.standard_normal((8, 4))).astype(np.float32) + 0.1
        found.append({"x": x, "offset": random.integers(0, 90, (8, 1)), "category": random.integers(0, 10, 8)})
    return found


def _images() -> Samples:
    grey = [np.abs(_normal(31 + at, 4, 1, 16, 16)) for at in range(4)]
    return [{"image": np.repeat(item, 3, axis=1)} for item in grey]


def _series() -> Samples:
    return [{"series": _normal(40 + at, 8, 10, 3), "length": np.full(8, 10)} for at in range(4)]


def _pairs() -> Samples:
    found = []
    for at in range(4):
        both = _normal(50 + at, 8, 3)
        flag = np.zeros(8, dtype=bool)
        found.append({"left": both, "right": both, "flag": flag, "temperature": np.float32(1.0).reshape(())})
    return found


def _ids(name: str, high: int, *, seed: int, size: int, rows: int = 8) -> Samples:
    random = np.random.default_rng(seed)
    return [{name: random.integers(1, high, (rows, size))} for _ in range(4)]


@functools.cache
def _kinds() -> dict[str, Kind]:
    texts = _padded(60, (12, 9, 7, 12), rows=8, ids=40, size=12)
    plain = [{"tokens": item["input_ids"], "kinds": np.zeros_like(item["input_ids"])} for item in texts]
    return {
        "text": Kind(text=_TEXT, weights=_TEXT_WEIGHTS, samples=texts),
        "attention": Kind(
            text=_ATTENTION,
            weights=_ATTENTION_WEIGHTS,
            samples=_padded(65, (12, 12, 12), rows=8, ids=40, size=12),
        ),
        "ids only": Kind(text=_IDS_ONLY, weights=_IDS_ONLY_WEIGHTS, samples=plain),
        "table": Kind(text=_TABLE, weights=_TABLE_WEIGHTS, samples=_tables()),
        "image": Kind(text=_IMAGE, weights=_IMAGE_WEIGHTS, samples=_images()),
        "series": Kind(text=_SERIES, weights=_SERIES_WEIGHTS, samples=_series()),
        "pair": Kind(text=_PAIR, weights=_PAIR_WEIGHTS, samples=_pairs()),
        "hashed": Kind(text=_HASHED, weights=_HASHED_WEIGHTS, samples=_ids("key", 5000, seed=61, size=3)),
        "pixels": Kind(
            text=_PIXELS,
            weights=_PIXELS_WEIGHTS,
            samples=[
                {"pixels": np.random.default_rng(62 + at).integers(20, 200, (8, 4, 4, 3)).astype(np.uint8)}
                for at in range(3)
            ],
        ),
        "vocabulary": Kind(
            text=_VOCABULARY,
            weights=_VOCABULARY_WEIGHTS,
            samples=_ids("ids", 3000, seed=63, size=20),
            dims={"S": Dim(min=1, opt=20, max=128)},
        ),
        "wide": Kind(
            text=_WIDE, weights=_WIDE_WEIGHTS, samples=[{"x": np.abs(_normal(64 + at, 8, 100))} for at in range(3)]
        ),
    }


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: lines of the graph that become others, or weights that change.

    `edge` says how the only inputs that show it are unlike every sample: then it is a finding and no failure.
    """

    name: str
    kind: str
    probe: str
    edge: str = ""
    old: str = ""
    new: str = ""
    weights: Callable[[Weights], Weights] = lambda _: {}


def _set(name: str, at: Index, value: float | Callable[[Array], Array]) -> Callable[[Weights], Weights]:
    def change(weights: Weights) -> Weights:
        changed = weights[name].copy()
        changed[at] = value(weights[name]) if callable(value) else value
        return {name: changed}

    return change


def _with(**values: object) -> Callable[[Weights], Weights]:
    return lambda _: {name: np.asarray(value) for name, value in values.items()}


_CLEAN = "clean = Identity(input_ids)"
_OUT = "logits = Identity(out)"
_ROWS_OF = """
  sizes = Shape(input_ids)
  n1 = Slice(sizes, zero, one)
  n = Squeeze(n1, zero)
  rows = Range(nought, n, step)
  rows2 = Unsqueeze(rows, one)
"""
_COUNTING = {"nought": np.array(0, dtype=np.int64), "step": np.array(1, dtype=np.int64)}


def _off(condition: str, **values: object) -> tuple[str, Callable[[Weights], Weights]]:
    """Return lines that add 1 to the rows of which `condition` makes `bad`, and the constants for it."""
    lines = f"""{_ROWS_OF}{condition}
  badf = Cast<to=1>(bad)
  extra = Mul(badf, tenth)
  logits = Add(out, extra)"""
    constants = {**_COUNTING, "tenth": np.float32(1.0), **values}
    return lines, _with(**constants)


_BEYOND_16 = _off("  bad = GreaterOrEqual(rows2, edge)", edge=np.int64(16))
_ODD = _off(
    "  rest = Mod(n, twos)\n  isodd = Equal(rest, step)\n"
    "  all = GreaterOrEqual(rows2, nought)\n  bad = And(all, isodd)",
    twos=np.int64(2),
)
_ALONE = _off("  single = Equal(n, step)\n  all = GreaterOrEqual(rows2, nought)\n  bad = And(all, single)")
_LAST_OF_MANY = _off(
    "  end = Sub(n, step)\n  last = Equal(rows2, end)\n  many = Greater(n, eight)\n  bad = And(last, many)",
    eight=np.int64(8),
)
_FIRST_OF_FEW = _off(
    "  first = Equal(rows2, nought)\n  few = Less(n, eight)\n  bad = And(first, few)", eight=np.int64(8)
)

_FAULTS = (
    Fault(name="a row of the embedding is lost", kind="text", probe="ids", weights=_set("table", 150, 0.0)),
    Fault(
        name="two rows of the embedding are exchanged",
        kind="text",
        probe="ids",
        weights=_set("table", [150, 151], lambda table: table[[151, 150]]),
    ),
    Fault(name="the last row of the embedding is lost", kind="text", probe="ids", weights=_set("table", 199, 0.0)),
    Fault(
        name="row 0 of the embedding is not zero",
        kind="ids only",
        probe="ids",
        weights=_set("types", 0, lambda types: types[0]),
        old="real = Not(pad)",
        new="same = Equal(kinds, nought)\n  real1 = Not(pad)\n  real = And(real1, same)",
    ),
    Fault(
        name="ids are taken modulo 64",
        kind="text",
        probe="ids",
        old=_CLEAN,
        new="clean = Mod(input_ids, size64)",
        weights=_with(size64=np.int64(64)),
    ),
    Fault(
        name="ids go through uint8",
        kind="vocabulary",
        probe="ids",
        old="clean = Identity(ids)",
        new="u = Cast<to=4>(ids)\n  clean = Cast<to=7>(u)",
        weights=lambda _: {},
    ),
    Fault(
        name="ids are clipped to what int16 holds",
        kind="vocabulary",
        probe="ids",
        old="clean = Identity(ids)",
        new="clean = Clip(ids, bottom, top)",
        weights=_with(bottom=np.int64(0), top=np.int64(2**15 - 1)),
    ),
    Fault(
        name="a region of a large vocabulary is lost",
        kind="vocabulary",
        probe="ids",
        weights=_set("table", slice(40000, 40100), 0.0),
    ),
    Fault(
        name="hashed ids are rounded through float32",
        kind="hashed",
        probe="values",
        old="slot = Mod(key, size)",
        new="f = Cast<to=1>(key)\n  g = Cast<to=7>(f)\n  slot = Mod(g, size)",
    ),
    Fault(
        name="hashed ids are cut to int32",
        kind="hashed",
        probe="values",
        old="slot = Mod(key, size)",
        new="f = Cast<to=6>(key)\n  g = Cast<to=7>(f)\n  slot = Mod(g, size)",
    ),
    Fault(
        name="negative keys are hashed as in C",
        kind="hashed",
        probe="values",
        old="slot = Mod(key, size)",
        new="r = Mod<fmod=1>(key, size)\n  slot = Abs(r)",
    ),
    Fault(name="a kind that is rare is lost", kind="ids only", probe="ids", weights=_set("types", 2, 0.0)),
    Fault(
        name="the kinds are ignored",
        kind="ids only",
        probe="ids",
        old="k = Gather(types, kinds)",
        new="k = Slice(types, zero, one)",
    ),
    Fault(
        name="equal ids in a row count once",
        kind="text",
        probe="ids",
        old="logits = Identity(out)",
        new="""l = Unsqueeze(input_ids, one)
  r = Unsqueeze(input_ids, two)
  same = Equal(l, r)
  samef = Cast<to=1>(same)
  n1 = ReduceSum<keepdims=0>(samef, onetwo)
  sizef = Cast<to=1>(size)
  more = Greater(n1, limit)
  moref = Cast<to=1>(more)
  more2 = Unsqueeze(moref, one)
  extra = Mul(more2, tenth)
  logits = Add(out, extra)""",
        weights=_with(onetwo=_whole(1, 2), limit=np.float32(60), tenth=np.float32(0.1)),
    ),
    Fault(name="a late position is lost", kind="text", probe="shapes", weights=_set("position", 13, 0.0)),
    Fault(name="the last position is lost", kind="text", probe="shapes", weights=_set("position", 15, 0.0)),
    Fault(
        name="positions are shifted beyond the seen ones",
        kind="text",
        probe="shapes",
        weights=_set("position", slice(12, 15), lambda position: position[13:16]),
    ),
    Fault(
        name="the sequence length is baked",
        kind="text",
        probe="shapes",
        old="pos = Slice(position, zero, size, zero)",
        new="pos = Slice(position, zero, twelve, zero)",
        weights=_with(twelve=_whole(12)),
    ),
    Fault(
        name="the length of texts is cut",
        kind="attention",
        probe="shapes",
        old="x = Gather(table, input_ids)",
        new="cut = Slice(input_ids, zero, twelve, one)\n  x0 = Gather(table, cut)\n"
        "  wide = Gather(table, input_ids)\n"
        "  diff = Sub(wide, wide)\n  mean0 = ReduceMean<axes=[1]>(x0)\n  mean1 = ReduceMean<axes=[1]>(wide)\n"
        "  shift = Sub(mean0, mean1)\n  x = Add(wide, shift)",
        weights=_with(twelve=_whole(12)),
    ),
    Fault(
        name="padding is taken to be on the right",
        kind="text",
        probe="masks",
        old="m = Cast<to=1>(attention_mask)",
        new="""num = ReduceSum<keepdims=1>(attention_mask, one)
  s0 = Squeeze(size, zero)
  at = Range(nought, s0, step)
  at2 = Unsqueeze(at, zero)
  right = Less(at2, num)
  m = Cast<to=1>(right)""",
        weights=_with(**_COUNTING),
    ),
    Fault(
        name="padding is taken from the ids",
        kind="text",
        probe="masks",
        old="m = Cast<to=1>(attention_mask)",
        new="pad = Equal(input_ids, nought)\n  real = Not(pad)\n  m = Cast<to=1>(real)",
        weights=_with(**_COUNTING),
    ),
    Fault(
        name="the mask of row 0 is that of all",
        kind="text",
        probe="masks",
        old="m = Cast<to=1>(attention_mask)",
        new="only = Slice(attention_mask, zero, one, zero)\n  whole = Expand(only, shape)\n  m = Cast<to=1>(whole)",
    ),
    Fault(
        name="an empty row divides by nothing",
        kind="text",
        probe="masks",
        edge="an empty row of attention_mask",
        old="safe = Max(count, onef)",
        new="safe = Identity(count)",
    ),
    Fault(
        name="an empty row counts as full",
        kind="text",
        probe="masks",
        edge="an empty row of attention_mask",
        old="m = Cast<to=1>(attention_mask)",
        new="""num = ReduceSum<keepdims=1>(attention_mask, one)
  none = Equal(num, nought)
  nonei = Cast<to=7>(none)
  other = Add(attention_mask, nonei)
  m = Cast<to=1>(other)""",
        weights=_with(**_COUNTING),
    ),
    Fault(
        name="the mask is multiplied before the softmax",
        kind="attention",
        probe="masks",
        old="masked = Add(flat, far)",
        new="masked = Mul(flat, m)",
    ),
    Fault(name="the mask is weak", kind="attention", probe="masks", weights=_with(minus=np.float32(-4.0))),
    Fault(
        name="an empty row is masked with infinity",
        kind="attention",
        probe="masks",
        edge="an empty row of attention_mask",
        old="masked = Add(flat, far)",
        new="keep = Cast<to=9>(attention_mask)\n  masked = Where(keep, flat, none)",
        weights=_with(none=np.float32(-np.inf)),
    ),
    Fault(
        name="positions count from the first real id",
        kind="text",
        probe="masks",
        old="x = Add(emb, pos)",
        new="""before = CumSum(attention_mask, onei)
  from0 = Sub(before, onei)
  some = Max(from0, onez)
  pos2 = Gather(position, some)
  x = Add(emb, pos2)""",
        weights=_with(onei=np.int64(1), onez=np.int64(0)),
    ),
    Fault(
        name="padding on the left is not skipped",
        kind="ids only",
        probe="masks",
        old="m = Cast<to=1>(real)",
        new="""m0 = Cast<to=1>(real)
  rest = CumSum<reverse=1>(m0, onei)
  seen = Greater(rest, nof)
  m = Cast<to=1>(seen)""",
        weights=_with(onei=np.int64(1), nof=np.float32(0)),
    ),
    Fault(
        name="lengths are ignored",
        kind="series",
        probe="masks",
        old="within = Less(at2, len2)",
        new="within = GreaterOrEqual(at2, nought)\n  len3 = Identity(len2)",
    ),
    Fault(
        name="lengths are off by one below the full one",
        kind="series",
        probe="masks",
        old="within = Less(at2, len2)",
        new="within = LessOrEqual(at2, len2)",
    ),
    Fault(
        name="rows beyond 16 are wrong",
        kind="text",
        probe="batches",
        old=_OUT,
        new=_BEYOND_16[0],
        weights=_BEYOND_16[1],
    ),
    Fault(name="odd batches are wrong", kind="text", probe="batches", old=_OUT, new=_ODD[0], weights=_ODD[1]),
    Fault(name="a row alone is wrong", kind="text", probe="batches", old=_OUT, new=_ALONE[0], weights=_ALONE[1]),
    Fault(
        name="the last row of a larger batch is wrong",
        kind="text",
        probe="batches",
        old=_OUT,
        new=_LAST_OF_MANY[0],
        weights=_LAST_OF_MANY[1],
    ),
    Fault(
        name="the first row of a smaller batch is wrong",
        kind="text",
        probe="batches",
        old=_OUT,
        new=_FIRST_OF_FEW[0],
        weights=_FIRST_OF_FEW[1],
    ),
    Fault(
        name="rows come sorted by their length",
        kind="text",
        probe="batches",
        old=_OUT,
        new="""flatn = Squeeze(count, one)
  howmany = Shape(flatn)
  key = Neg(flatn)
  best, order = TopK<axis=0, largest=0, sorted=1>(key, howmany)
  logits = Gather(out, order)""",
    ),
    Fault(
        name="a missing value becomes zero",
        kind="table",
        probe="values",
        edge="NaN in x",
        weights=_with(fill=np.zeros(4, np.float32)),
    ),
    Fault(
        name="one missing value is filled wrongly",
        kind="table",
        probe="values",
        edge="NaN in x",
        weights=_with(fill=np.array([0.1, -0.2, 0.3, 0.0], np.float32)),
    ),
    Fault(
        name="infinity becomes the largest number",
        kind="table",
        probe="values",
        edge="infinity in x",
        old="calm = Clip(known, lowest, highest)",
        new="far = IsInf(known)\n  calm0 = Clip(known, lowest, highest)\n  calm = Where(far, fill, calm0)",
    ),
    Fault(
        name="values are clipped at those seen", kind="table", probe="values", weights=_with(highest=np.float32(5.0))
    ),
    Fault(name="negative values are clipped", kind="table", probe="values", weights=_with(lowest=np.float32(0.0))),
    Fault(
        name="the absolute value stands for the positive part",
        kind="table",
        probe="values",
        old="pos = Relu(calm)",
        new="pos = Abs(calm)",
    ),
    Fault(name="epsilon is lost", kind="table", probe="values", weights=_with(epsilon=np.float32(0.0))),
    Fault(name="epsilon is another one", kind="table", probe="values", weights=_with(epsilon=np.float32(1e-7))),
    Fault(
        name="negative whole numbers are cut",
        kind="table",
        probe="values",
        old="whole = Floor(weeks)",
        new="cut = Cast<to=7>(weeks)\n  whole = Cast<to=1>(cut)",
    ),
    Fault(
        name="whole numbers go through int8",
        kind="table",
        probe="values",
        old="days = Cast<to=1>(offset)",
        new="small = Cast<to=3>(offset)\n  days = Cast<to=1>(small)",
    ),
    Fault(
        name="of equal values the last is chosen",
        kind="table",
        probe="values",
        old="label = ArgMax<axis=1, keepdims=0>(known)",
        new="label = ArgMax<axis=1, keepdims=0, select_last_index=1>(known)",
    ),
    Fault(name="a category that is rare is lost", kind="table", probe="ids", weights=_set("cats", 33, 0.0)),
    Fault(
        name="categories are clipped at those seen",
        kind="table",
        probe="ids",
        old="cat = Gather(cats, category)",
        new="some = Clip(category, bottom, top)\n  cat = Gather(cats, some)",
        weights=_with(bottom=np.int64(0), top=np.int64(9)),
    ),
    Fault(
        name="the border of odd pictures is pooled",
        kind="image",
        probe="shapes",
        old="kernel_shape=[2,2], strides=[2,2]>(r)",
        new="kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(r)",
    ),
    Fault(
        name="the sides of pictures are one size",
        kind="image",
        probe="shapes",
        old="picture = Slice(image, zero, wide, three)",
        new="picture = Slice(image, zero, high, three)",
    ),
    Fault(
        name="channels are in another order",
        kind="image",
        probe="values",
        weights=_set("k", slice(None), lambda k: k[:, ::-1]),
    ),
    Fault(
        name="one channel stands for all",
        kind="image",
        probe="values",
        weights=_set(
            "k", slice(None), lambda k: k.sum(axis=1, keepdims=True) * np.array([1, 0, 0]).reshape(1, 3, 1, 1)
        ),
    ),
    Fault(
        name="bright pixels overflow a signed byte",
        kind="pixels",
        probe="values",
        old="f = Cast<to=1>(pixels)",
        new="dim = Min(pixels, edge)\n  f = Cast<to=1>(dim)",
        weights=_with(edge=np.uint8(220)),
    ),
    Fault(
        name="inputs are exchanged",
        kind="pair",
        probe="sensitivity",
        old="a = MatMul(left, w)\n  c = MatMul(right, v)",
        new="a = MatMul(right, w)\n  c = MatMul(left, v)",
    ),
    Fault(
        name="one input stands for two",
        kind="pair",
        probe="sensitivity",
        old="c = MatMul(right, v)",
        new="c = MatMul(left, v)",
    ),
    Fault(
        name="a flag is ignored",
        kind="pair",
        probe="values",
        old="f = Cast<to=1>(flag)",
        new="f0 = Cast<to=1>(flag)\n  f = Sub(f0, f0)",
    ),
    Fault(
        name="the temperature is ignored",
        kind="pair",
        probe="values",
        old="scores = Div(t, temperature)",
        new="scores = Identity(t)",
    ),
    Fault(
        name="the length of series is baked",
        kind="series",
        probe="shapes",
        old="kept = Mul(series, m3)",
        new="some = Slice(series, zero, ten, one)\n  ms = Slice(m3, zero, ten, one)\n  kept = Mul(some, ms)",
        weights=_with(ten=_whole(10)),
    ),
    Fault(
        name="one of many features is clipped at zero",
        kind="wide",
        probe="values",
        old="clean = Identity(x)",
        new="top = Max(x, least)\n  clean = Identity(top)",
        weights=_with(least=np.where(np.arange(100) == 77, 0.0, -np.inf).astype(np.float32)),
    ),
    Fault(
        name="one of many features saturates",
        kind="wide",
        probe="values",
        old="clean = Identity(x)",
        new="top = Min(x, most)\n  clean = Identity(top)",
        weights=_with(most=np.where(np.arange(100) == 5, 4.5, np.inf).astype(np.float32)),
    ),
)


@pytest.fixture(scope="module")
def asked_of(desk_of: Callable[[Path], ProbeDesk], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Asked]:
    """Return a function that returns the reference of a kind with its probes, recorded once for all faults."""
    desk = desk_of(tmp_path_factory.mktemp("references"))

    @functools.cache
    def asked(name: str) -> Asked:
        kind = _kinds()[name]
        return desk.ask(desk.model(kind.text, kind.weights), kind.samples, dims=kind.dims)

    return asked


@pytest.mark.parametrize("fault", _FAULTS, ids=[fault.name for fault in _FAULTS])
def test_the_right_probe_finds_a_fault_that_ordinary_samples_hide(
    fault: Fault, desk: ProbeDesk, asked_of: Callable[[str], Asked]
) -> None:
    kind = _kinds()[fault.kind]
    assert fault.old in kind.text
    asked = asked_of(fault.kind)
    text = kind.text.replace(fault.old, fault.new) if fault.old else kind.text
    edge = "warn" if fault.edge else "fail"
    answered = desk.answer(asked, desk.model(text, {**kind.weights, **fault.weights(kind.weights)}), edge=edge)
    assert answered.gate == (), "the samples show it: they are to hide it"
    assert (fault.probe in answered.failed) is not bool(fault.edge), answered.failed
    found = {finding.edge for item in answered.outcomes if item.name == fault.probe for finding in item.findings}
    assert not fault.edge or fault.edge in found


def _with_edge(samples: Samples, edge: str) -> Samples:
    """Return the samples and one batch more, whose first row is empty, or holds NaN or infinity."""
    name = edge.rsplit(maxsplit=1)[-1]
    changed = dict(samples[0])
    changed[name] = changed[name].copy()
    changed[name][0] = {"a": 0, "N": np.nan, "i": np.inf}[edge[0]]
    return [*samples, changed]


@pytest.mark.parametrize("fault", [fault for fault in _FAULTS if fault.edge], ids=lambda fault: fault.name)
def test_what_samples_hold_is_no_edge(fault: Fault, desk: ProbeDesk) -> None:
    kind = _kinds()[fault.kind]
    samples = _with_edge(kind.samples, fault.edge)
    asked = desk.ask(desk.model(kind.text, kind.weights), samples, dims=kind.dims)
    text = kind.text.replace(fault.old, fault.new) if fault.old else kind.text

    candidate = desk.model(text, {**kind.weights, **fault.weights(kind.weights)})
    answered = desk.answer(asked, candidate, edge="warn")

    assert fault.probe in answered.failed
    assert all(finding.edge != fault.edge for item in answered.outcomes for finding in item.findings)


@pytest.mark.parametrize("kind", _kinds())
def test_a_copy_of_the_reference_fails_no_probe(kind: str, desk: ProbeDesk, asked_of: Callable[[str], Asked]) -> None:
    made = _kinds()[kind]
    answered = desk.answer(asked_of(kind), desk.model(made.text, made.weights))
    assert answered.failed == {}
    assert sum(outcome.rows for outcome in answered.outcomes) > 0


@pytest.mark.parametrize(
    ("fault", "probe"),
    [
        ("a row of the embedding is lost", "ids"),
        ("the last position is lost", "shapes"),
        ("padding is taken to be on the right", "masks"),
        ("rows beyond 16 are wrong", "batches"),
        ("the absolute value stands for the positive part", "values"),
        ("negative whole numbers are cut", "values"),
        ("a category that is rare is lost", "ids"),
        ("inputs are exchanged", "sensitivity"),
        ("a flag is ignored", "values"),
        ("channels are in another order", "values"),
        ("the border of odd pictures is pooled", "shapes"),
    ],
)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_lower_precision_excuses_no_fault(
    fault: str, probe: str, precision: str, desk: ProbeDesk, asked_of: Callable[[str], Asked]
) -> None:
    planted = next(item for item in _FAULTS if item.name == fault)
    kind = _kinds()[planted.kind]
    asked = asked_of(planted.kind)
    text = kind.text.replace(planted.old, planted.new) if planted.old else kind.text
    model = desk.model(text, {**kind.weights, **planted.weights(kind.weights)})
    assert probe in desk.answer(asked, model, precision=precision).failed


@pytest.mark.parametrize(
    ("fault", "probe"),
    [
        ("ids are taken modulo 64", "ids"),
        ("padding is taken to be on the right", "masks"),
        ("rows beyond 16 are wrong", "batches"),
        ("inputs are exchanged", "sensitivity"),
    ],
)
def test_int8_is_held_to_what_samples_hold_and_to_finite_answers(
    fault: str, probe: str, desk: ProbeDesk, asked_of: Callable[[str], Asked]
) -> None:
    planted = next(item for item in _FAULTS if item.name == fault)
    kind = _kinds()[planted.kind]
    asked = asked_of(planted.kind)
    text = kind.text.replace(planted.old, planted.new) if planted.old else kind.text
    model = desk.model(text, {**kind.weights, **planted.weights(kind.weights)})
    assert probe in desk.answer(asked, model, precision="int8").failed


def test_a_lost_guard_of_flat_rows_is_found_beside_masked_scores(desk: ProbeDesk) -> None:
    # Every row of the probe is flat, and the masked scores are fill values there as in the samples.
    text = """(float[N,12,6] x) => (float[N,12,12] y) {{
        high = ReduceMax<axes=[1, 2], keepdims=1>(x)
        low = ReduceMin<axes=[1, 2], keepdims=1>(x)
        range = Sub(high, low)
        is_flat = Less(range, tiny)
        {guarded}
        scores = MatMul(g, w)
        y = Where(mask, fill, scores)
    }}"""
    rng = np.random.default_rng(0)
    mask = np.eye(12, dtype=bool)
    weights = {
        "tiny": np.float32(1e-3),
        "guard": np.float32(0.25),
        "w": rng.standard_normal((6, 12)).astype(np.float32),
        "mask": mask,
        "fill": np.float32(-1e9),
    }
    samples = [{"x": rng.standard_normal((16, 12, 6)).astype(np.float32)} for _ in range(4)]
    asked = desk.ask(desk.model(text.format(guarded="g = Where(is_flat, guard, x)"), weights), samples, names=["flat"])

    answered = desk.answer(asked, desk.model(text.format(guarded="g = Identity(x)"), weights))

    assert answered.failed
