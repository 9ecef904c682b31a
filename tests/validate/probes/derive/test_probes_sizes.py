"""Sizes far from those seen: rows that go on with others, cuts far away, batches of every size, dims that are sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.signature import Dim
from paritygate.validate.probes.derive import batches, shapes
from paritygate.validate.probes.derive.shapes import resized
from paritygate.validate.probes.derive.sizes import more_batch_sizes, open_dims
from paritygate.validate.probes.derive.summed_dims import sums_of

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray
    from tests.validate.probes.conftest import ProbeDesk

    Samples = list[dict[str, NDArray[Any]]]

_POOLED = "(int64[B, S] ids) => (float[B, 8] out) {{ {cut} rows = Gather(table, kept) out = {pool}(rows) }}"
_MAX, _MEAN = "ReduceMax<axes = [1], keepdims = 0>", "ReduceMean<axes = [1], keepdims = 0>"
_CUT = "kept = Slice(ids, zero, most, one)"


def _texts(*lengths: int, rows: int = 4) -> Samples:
    random = np.random.default_rng(3)
    return [{"ids": random.integers(0, 200, size=(rows, length))} for length in lengths]


def _pooled(desk: ProbeDesk, pool: str, most: int | None = None) -> onnx.ModelProto:
    weights = {
        "table": np.random.default_rng(1).normal(size=(200, 8)).astype(np.float32),
        "zero": np.array([0]),
        "one": np.array([1]),
        "most": np.array([most or 1]),
    }
    return desk.model(_POOLED.format(cut=_CUT if most else "kept = Identity(ids)", pool=pool), weights)


@pytest.mark.parametrize("pool", [_MAX, _MEAN], ids=["max", "mean"])
@pytest.mark.parametrize("most", [34, 48, 64, 100, 128, 256, 512])
def test_a_cut_is_found_however_far_it_is(pool: str, most: int, desk: ProbeDesk) -> None:
    asked = desk.ask(_pooled(desk, pool), _texts(30, 12, 20), names=["shapes"])

    answered = desk.answer(asked, _pooled(desk, pool, most))

    assert answered.gate == ()
    assert set(answered.failed) == {"shapes"}
    assert desk.answer(asked, _pooled(desk, pool)).failed == {}


def test_a_cut_is_found_where_a_call_has_no_rows(desk: ProbeDesk) -> None:
    text = """(float[1] scale, int64[S] ids) => (float[8] out) {
      kept = Slice(ids, zero, most)
      rows = Gather(table, kept)
      best = ReduceMax<axes = [0], keepdims = 0>(rows)
      out = Mul(best, scale)
    }"""
    weights = {"table": np.random.default_rng(1).normal(size=(200, 8)).astype(np.float32), "zero": np.array([0])}
    random = np.random.default_rng(3)
    samples = [
        {"scale": random.normal(size=1).astype(np.float32), "ids": random.integers(0, 200, size=length)}
        for length in (9, 15, 12, 9, 15)
    ]
    asked = desk.ask(desk.model(text, {**weights, "most": np.array([10**6])}), samples, names=["shapes"])

    answered = desk.answer(asked, desk.model(text, {**weights, "most": np.array([20])}))

    assert answered.gate == ()
    assert set(answered.failed) == {"shapes"}


def test_longer_rows_go_on_with_other_rows_and_all_inputs_of_a_row_with_the_same(desk: ProbeDesk) -> None:
    model = desk.model(
        "(int64[B, S] ids, int64[B, S] twin) => (float[B, S] out) { s = Add(ids, twin) out = Cast<to = 1>(s) }", {}
    )
    ids = np.arange(40).reshape(5, 8)
    context = desk.ask(model, [{"ids": ids, "twin": 1000 + ids}], names=["batches"]).context
    rows = context.survey.groups[0]
    (dim,) = open_dims(context, rows)

    longer = resized(context, rows, [2, 2, 4], {dim: 40})

    for row, at in zip(longer["ids"], (2, 2, 4), strict=True):
        np.testing.assert_array_equal(row[:8], rows.inputs["ids"][at])
        assert set(row.tolist()) == set(range(40))
    np.testing.assert_array_equal(longer["twin"], 1000 + longer["ids"])


def test_far_sizes_are_asked_last_of_few_rows_and_within_bytes_and_work(desk: ProbeDesk) -> None:
    asked = desk.ask(_pooled(desk, _MEAN), _texts(30, 12, 20), names=["shapes"])
    sizes = [(batch.rows, batch.inputs["ids"].shape[1]) for batch in shapes.derive(asked.context)]
    assert sizes[-3:] == [(1, 160), (1, 320), (1, 640)]

    picture = "(float[B, 3, H, W] x) => (float[B, 3, 1, 1] out) { out = GlobalAveragePool(x) }"
    random = np.random.default_rng(0)
    samples = [{"x": random.normal(size=(2, 3, 200, 200)).astype(np.float32)} for _ in range(2)]
    large = desk.ask(desk.model(picture, {}), samples, names=["shapes"])
    far = [batch for batch in shapes.derive(large.context) if batch.rows == 1]
    assert {batch.inputs["x"].size for batch in far} == {4 * 3 * 200 * 200}
    assert all(batch.inputs["x"].nbytes <= 4 << 20 for batch in far)


def test_nothing_beyond_the_declared_sizes_is_asked(desk: ProbeDesk) -> None:
    dims = {"S": Dim(min=2, opt=12, max=40), "B": Dim(min=2, opt=4, max=8)}
    context = desk.ask(_pooled(desk, _MAX), _texts(30, 12, 20), names=["shapes"], dims=dims).context
    asked = [*shapes.derive(context), *batches.derive(context)]
    assert {batch.inputs["ids"].shape[1] for batch in asked} <= {2, 12, 13, 20, 21, 30, 31, 40}
    assert {batch.rows for batch in asked} == set(range(2, 9))


_SHIFTED = """(float[B, 4] x) => (float[B, 4] out) {
  shape = Shape<start = 0, end = 1>(x)
  is = Equal(shape, wrong)
  off = Cast<to = 1>(is)
  out = Add(x, off)
}"""


@pytest.mark.parametrize("wrong", [4, 5, 6, 7, 8, 9])
def test_a_batch_of_any_small_size_is_asked(wrong: int, desk: ProbeDesk) -> None:
    random = np.random.default_rng(0)
    samples = [{"x": random.normal(size=(16, 4)).astype(np.float32)} for _ in range(4)]
    asked = desk.ask(desk.model(_SHIFTED, {"wrong": np.array([-1])}), samples, names=["batches"])

    assert set(desk.answer(asked, desk.model(_SHIFTED, {"wrong": np.array([wrong])})).failed) == {"batches"}


@pytest.mark.parametrize("most", [40, 64, 128, 256])
def test_rows_beyond_a_large_number_are_asked_where_rows_are_few_numbers(most: int, desk: ProbeDesk) -> None:
    text = """(float[B, 4] x) => (float[B, 4] out) {
      shape = Shape<start = 0, end = 1>(x)
      count = Squeeze(shape)
      at = Range(zero, count, one)
      is = Less(at, most)
      kept = Cast<to = 1>(is)
      column = Unsqueeze(kept, axis)
      out = Mul(x, column)
    }"""
    weights = {"zero": np.array(0), "one": np.array(1), "axis": np.array([1])}
    random = np.random.default_rng(0)
    samples = [{"x": random.normal(size=(16, 4)).astype(np.float32)} for _ in range(4)]
    asked = desk.ask(desk.model(text, {**weights, "most": np.array(10**6)}), samples, names=["batches"])

    assert set(desk.answer(asked, desk.model(text, {**weights, "most": np.array(most)})).failed) == {"batches"}


def test_more_batches_cost_no_more_rows_than_there_are(desk: ProbeDesk) -> None:
    context = desk.ask(_pooled(desk, _MAX), _texts(30, 12, 20), names=["batches"]).context
    assert more_batch_sizes(context, rows=40) == (4, 5, 6, 7, 8, 9)
    assert more_batch_sizes(context, rows=25) == (4, 5, 6, 7)
    assert sum(more_batch_sizes(context, rows=10_000)) <= 512
    assert sum(batch.rows for batch in batches.derive(context)) <= 8 * context.max_rows


def _cached(desk: ProbeDesk, most: int | None = None) -> onnx.ModelProto:
    """Return one step of a decoder: what it looks at is the cache and the new rows, under a mask over both."""
    text = f"""(float[B, S, 4] x, float[B, P, 4] past, float[B, T] mask) => (float[B, 4] out) {{
      seen = Concat<axis = 1>(past, x)
      column = Unsqueeze(mask, two)
      some = Mul(seen, column)
      kept = {"Slice(some, zero, most, one)" if most else "Identity(some)"}
      out = ReduceSum<keepdims = 0>(kept, one)
    }}"""
    weights = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "most": np.array([most or 1])}
    return desk.model(text, weights)


def _steps(*steps: tuple[int, int]) -> Samples:
    random = np.random.default_rng(0)
    return [
        {
            "x": random.normal(size=(2, new, 4)).astype(np.float32),
            "past": random.normal(size=(2, past, 4)).astype(np.float32),
            "mask": np.ones((2, past + new), dtype=np.float32),
        }
        for past, new in steps
    ]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(0, 8), (0, 5), (0, 8)], id="always empty"),
        pytest.param([(0, 8)] * 3, id="always empty and of one shape"),
        pytest.param([(6, 1), (8, 1), (0, 7)], id="of many shapes"),
        pytest.param([(6, 1)] * 3, id="of one shape"),
    ],
)
def test_a_mask_grows_with_the_cache_that_it_covers(steps: list[tuple[int, int]], desk: ProbeDesk) -> None:
    asked = desk.ask(_cached(desk), _steps(*steps), names=["shapes"])
    (probe,) = asked.probes.probes

    grown = [stored.inputs for stored in asked.probes.batches(probe)]
    grown = [one for one in grown if one["past"].shape[1] >= 32 and np.abs(one["past"]).min() > 0]
    assert grown
    assert all(one["mask"].shape[1] == one["past"].shape[1] + one["x"].shape[1] for one in grown)
    answered = desk.answer(asked, _cached(desk, most=17))
    assert answered.gate == ()
    assert set(answered.failed) == {"shapes"}
    assert desk.answer(asked, _cached(desk)).failed == {}


def test_a_dim_is_the_sum_that_its_name_says() -> None:
    ids, past, mask = (("ids", 1),), (("past", 2),), (("mask", 1),)
    named = sums_of({ids: ("seq", (1,)), past: ("past_length", (5,)), mask: ("past_length + 1", (9,))})
    assert named[mask].parts == (past,)
    assert (named[mask].plus, named[mask].is_sure) == (1, True)

    both = sums_of({ids: ("seq", (4,)), past: ("past_length", (5,)), mask: ("past_length + seq", (9,))})
    assert both[mask].parts == (past, ids)


def test_sizes_that_are_no_sum_in_one_sample_are_none() -> None:
    one, two, three = (("a", 1),), (("b", 1),), (("c", 1),)
    assert sums_of({one: ("A", (2, 3)), two: ("B", (3, 3)), three: ("C", (5, 6))})[three].is_sure
    assert sums_of({one: ("A", (2, 3)), two: ("B", (3, 3)), three: ("C", (5, 7))}) == {}
    assert not sums_of({one: ("A", (2,)), two: ("B", (3,)), three: ("C", (5,))})[three].is_sure
