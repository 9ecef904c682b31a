"""Models of many kinds: what their inputs are taken for, and that what is asked of them is what they take."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.validate.probes import record
from paritygate.validate.probes.catalogue import PROBES
from paritygate.validate.probes.input_stats import Surveyor
from paritygate.validate.probes.inputs.probe import ProbeBatch, ProbeContext
from paritygate.validate.probes.inputs.roles import DeclaredRole, Role
from paritygate.validate.probes.inputs.survey import Survey
from paritygate.validate.probes.probe_budget import Allowance, SamplesCost
from paritygate.validate.probes.skip_reasons import DropKind

if TYPE_CHECKING:
    from conftest import Asked, ProbeDesk

Array = NDArray[Any]
Samples = list[dict[str, Array]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A model of one kind, ordinary samples, and what its inputs are."""

    text: str
    samples: Samples
    roles: Mapping[str, str]
    weights: Mapping[str, Array] = field(default_factory=dict)
    dims: Mapping[str, Dim] = field(default_factory=dict)


def _normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _whole(seed: int, low: int, high: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape)


def _as(dtype: type, seed: int, low: int, high: int, *shape: int) -> Array:
    return _whole(seed, low, high, *shape).astype(dtype)


_as_int8, _as_uint8, _as_uint16, _as_int32 = (
    functools.partial(_as, dtype) for dtype in (np.int8, np.uint8, np.uint16, np.int32)
)
_TABLE = {"t": _normal(0, 50, 4)}
_SUM = "  y = ReduceSum<keepdims=0>(e, one)\n"
_ONE = {"one": np.array([1], dtype=np.int64)}


def _rows(count: int, **arrays: tuple[Any, ...]) -> Samples:
    """Return batches of what each maker makes from a seed."""
    return [{name: maker(seed, *rest) for name, (maker, *rest) in arrays.items()} for seed in range(count)]


@functools.cache
def _kinds() -> dict[str, Kind]:
    ids = (_whole, 0, 50, 4, 7)
    return {
        "ids alone": Kind(
            text="(int64[N,S] x) => (float[N,4] y) {\n e = Gather(t, x)\n" + _SUM + "}",
            weights={**_TABLE, **_ONE},
            samples=_rows(3, x=ids),
            roles={"x": "id"},
        ),
        "ids of int32 with a misleading name": Kind(
            text="(int32[N,S] image_mask) => (float[N,4] y) {\n e = Gather(t, image_mask)\n" + _SUM + "}",
            weights={**_TABLE, **_ONE},
            samples=_rows(3, image_mask=(_as_int32, 0, 50, 4, 7)),
            roles={"image_mask": "id"},
        ),
        "ids within a declared range of sizes": Kind(
            text="(int64[N,S] x) => (float[N,4] y) {\n e = Gather(t, x)\n" + _SUM + "}",
            weights={**_TABLE, **_ONE},
            samples=_rows(3, x=ids),
            roles={"x": "id"},
            dims={"N": Dim(min=2, opt=4, max=6), "S": Dim(min=3, opt=7, max=9)},
        ),
        "a one-hot category": Kind(
            text="(int64[N] x) => (float[N,9] y) {\n y = OneHot(x, depth, values)\n}",
            weights={"depth": np.array(9, dtype=np.int64), "values": np.array([0, 1], dtype=np.float32)},
            samples=_rows(3, x=(_whole, 0, 5, 6)),
            roles={"x": "id"},
        ),
        "a float mask": Kind(
            text="(float[N,S,2] x, float[N,S] padding_mask) => (float[N,2] y) {\n"
            " m = Unsqueeze(padding_mask, two)\n e = Mul(x, m)\n" + _SUM + "}",
            weights={"two": np.array([2], dtype=np.int64), **_ONE},
            samples=[
                {"x": _normal(s, 4, 6, 2), "padding_mask": (np.arange(24).reshape(4, 6) % 6 < 4).astype(np.float32)}
                for s in range(3)
            ],
            roles={"x": "number", "padding_mask": "mask"},
        ),
        "a mask of bool without a name": Kind(
            text="(float[N,S,2] x, bool[N,S] b) => (float[N,2] y) {\n m0 = Unsqueeze(b, two)\n m = Cast<to=1>(m0)\n"
            " e = Mul(x, m)\n" + _SUM + "}",
            weights={"two": np.array([2], dtype=np.int64), **_ONE},
            samples=[{"x": _normal(s, 4, 6, 2), "b": _whole(s, 0, 2, 4, 6).astype(bool)} for s in range(3)],
            roles={"x": "number", "b": "mask"},
        ),
        "a mask alone in its name": Kind(
            text="(float[N,3] mask) => (float[N,3] y) {\n y = Tanh(mask)\n}",
            samples=_rows(3, mask=(_normal, 4, 3)),
            roles={"mask": "number"},
        ),
        "pictures of fixed size, channels last, as bytes": Kind(
            text="(uint8[N,5,5,3] pixels) => (float[N,75] y) {\n f = Cast<to=1>(pixels)\n y = Flatten<axis=1>(f)\n}",
            samples=_rows(3, pixels=(_as_uint8, 0, 255, 4, 5, 5, 3)),
            roles={"pixels": "image"},
        ),
        "pictures of open size": Kind(
            text="(float[N,3,H,W] x) => (float[N,3,1,1] y) {\n p = MaxPool<kernel_shape=[2,2]>(x)\n"
            " y = GlobalAveragePool(p)\n}",
            samples=_rows(3, x=(_normal, 2, 3, 9, 7)),
            roles={"x": "image"},
        ),
        "two float inputs": Kind(
            text="(float[N,3] a, float[N,3] b) => (float[N,3] y) {\n y = Sub(a, b)\n}",
            samples=[{"a": _normal(s, 4, 3), "b": _normal(9 + s, 4, 3)} for s in range(3)],
            roles={"a": "number", "b": "number"},
        ),
        "flags": Kind(
            text="(bool[N] on, float[N] x) => (float[N] y) {\n f = Cast<to=1>(on)\n y = Mul(f, x)\n}",
            samples=[{"on": _whole(s, 0, 2, 5).astype(bool), "x": _normal(s, 5)} for s in range(3)],
            roles={"on": "number", "x": "number"},
        ),
        "float16": Kind(
            text="(float16[N,3] x) => (float16[N,3] y) {\n y = Tanh(x)\n}",
            samples=[{"x": _normal(s, 4, 3).astype(np.float16)} for s in range(3)],
            roles={"x": "number"},
        ),
        "float64": Kind(
            text="(double[N,3] x) => (double[N,3] y) {\n y = Neg(x)\n}",
            samples=[{"x": _normal(s, 4, 3).astype(np.float64)} for s in range(3)],
            roles={"x": "number"},
        ),
        "bfloat16": Kind(
            text="(bfloat16[N,3] x) => (float[N,3] y) {\n y = Cast<to=1>(x)\n}",
            samples=[{"x": _normal(s, 4, 3).astype(ml_dtypes.bfloat16)} for s in range(3)],
            roles={"x": "number"},
        ),
        "small whole numbers": Kind(
            text="(int8[N,3] a, uint8[N,3] b, uint16[N] c) => (float[N,3] y) {\n f = Cast<to=1>(a)\n g = Cast<to=1>(b)"
            "\n h0 = Cast<to=1>(c)\n h = Unsqueeze(h0, one)\n s = Add(f, g)\n y = Add(s, h)\n}",
            weights=_ONE,
            samples=_rows(3, a=(_as_int8, -5, 5, 4, 3), b=(_as_uint8, 0, 9, 4, 3), c=(_as_uint16, 0, 9, 4)),
            roles={"a": "number", "b": "number", "c": "number"},
        ),
        "a scalar beside rows": Kind(
            text="(float[N,3] x, float temperature) => (float[N,3] y) {\n y = Div(x, temperature)\n}",
            samples=[{"x": _normal(s, 4, 3), "temperature": np.array(2.0, dtype=np.float32)} for s in range(3)],
            roles={"x": "number", "temperature": "number"},
        ),
        "a table beside rows, as many as rows": Kind(
            text="(float[N,3] x, float[4,3] weights) => (float[N,4] y) {\n w = Transpose(weights)\n"
            " y = MatMul(x, w)\n}",
            samples=[{"x": _normal(s, 4, 3), "weights": _normal(1, 4, 3)} for s in range(3)],
            roles={"x": "number", "weights": "number"},
        ),
        "a fixed batch": Kind(
            text="(float[4,3] x) => (float[4,3] y) {\n y = Tanh(x)\n}",
            samples=_rows(3, x=(_normal, 4, 3)),
            roles={"x": "number"},
        ),
        "a fixed batch of ids with a mask": Kind(
            text="(int64[3,5] x, int64[3,5] mask) => (float[3,4] y) {\n g = Gather(t, x)\n f = Cast<to=1>(mask)\n"
            " m = Unsqueeze(f, two)\n e = Mul(g, m)\n" + _SUM + "}",
            weights={**_TABLE, **_ONE, "two": np.array([2], dtype=np.int64)},
            samples=[{"x": _whole(s, 0, 50, 3, 5), "mask": np.tile([1, 1, 1, 1, 0], (3, 1))} for s in range(3)],
            roles={"x": "id", "mask": "mask"},
        ),
        "a series of open length": Kind(
            text="(float[N,T,3] series, int64[N] lengths) => (float[N,3] y) {\n e = Mul(series, series)\n"
            " s = ReduceSum<keepdims=0>(e, one)\n l = Cast<to=1>(lengths)\n l2 = Unsqueeze(l, one)\n y = Div(s, l2)\n}",
            weights=_ONE,
            samples=[{"series": _normal(s, 4, 6, 3), "lengths": np.array([6, 5, 4, 3])} for s in range(3)],
            roles={"series": "number", "lengths": "length"},
        ),
        "outputs without rows": Kind(
            text="(float[N,3] x) => (float[N,3] y, float[3] middle, int64[N] label) {\n y = Tanh(x)\n"
            " middle = ReduceMean<axes=[0], keepdims=0>(x)\n label = ArgMax<axis=1, keepdims=0>(x)\n}",
            samples=_rows(3, x=(_normal, 4, 3)),
            roles={"x": "number"},
        ),
        "all rows of a batch in each answer": Kind(
            text="(float[N,3] x) => (float[N,3] y) {\n y = Softmax<axis=0>(x)\n}",
            samples=_rows(3, x=(_normal, 4, 3)),
            roles={"x": "number"},
        ),
        "missing values": Kind(
            text="(float[N,3] x) => (float[N,3] y) {\n n = IsNaN(x)\n y = Where(n, zero, x)\n}",
            weights={"zero": np.array(0, dtype=np.float32)},
            samples=[
                {"x": np.where(_normal(s, 4, 3) > 1, np.nan, _normal(s, 4, 3)).astype(np.float32)} for s in range(3)
            ],
            roles={"x": "number"},
        ),
        "a batch of one row": Kind(
            text="(float[N,3] x) => (float[N,3] y) {\n y = Tanh(x)\n}",
            samples=_rows(3, x=(_normal, 1, 3)),
            roles={"x": "number"},
        ),
    }


def _asked(kind: str, desk: ProbeDesk, max_rows: int = 64) -> Asked:
    made = _kinds()[kind]
    return desk.ask(desk.model(made.text, made.weights), made.samples, dims=made.dims, max_rows=max_rows)


def _derived(context: ProbeContext) -> list[ProbeBatch]:
    modules = [importlib.import_module(probe.module) for probe in PROBES.values()]
    return [batch for module in modules if hasattr(module, "derive") for batch in module.derive(context)]


@pytest.mark.parametrize("kind", _kinds())
def test_inputs_are_taken_for_what_they_are(kind: str, desk: ProbeDesk) -> None:
    assert _asked(kind, desk).roles == _kinds()[kind].roles


@pytest.mark.parametrize("kind", _kinds())
def test_what_is_asked_fits_the_signature(kind: str, desk: ProbeDesk) -> None:
    context = _asked(kind, desk).context
    batches = _derived(context)
    assert batches
    for batch in batches:
        sizes: dict[str, set[int]] = {}
        assert set(batch.inputs) == {spec.name for spec in context.signature.inputs}
        for spec in context.signature.inputs:
            array = batch.inputs[spec.name]
            assert array.dtype.name == spec.dtype
            assert len(spec.shape or ()) == array.ndim
            for dim, size in zip(spec.shape or (), array.shape, strict=True):
                if isinstance(dim, int):
                    assert dim == size, batch.about
                else:
                    sizes.setdefault(str(dim), set()).add(size)
        for name, found in sizes.items():
            assert len(found) == 1, batch.about
            declared = context.dims.get(name)
            assert declared is None or declared.min <= min(found) <= declared.max, batch.about
        rows = [batch.inputs[name].shape[0] for name, seen in context.survey.inputs.items() if seen.has_rows]
        assert set(rows) <= {batch.rows}, batch.about


@pytest.mark.parametrize("kind", _kinds())
def test_the_same_seed_asks_the_same(kind: str, desk: ProbeDesk) -> None:
    first, again = (_asked(kind, desk).context for _ in range(2))
    for one, two in zip(_derived(first), _derived(again), strict=True):
        assert (one.about, one.rows, one.is_beyond_seen) == (two.about, two.rows, two.is_beyond_seen)
        for name, array in one.inputs.items():
            assert array.tobytes() == two.inputs[name].tobytes()


@pytest.mark.parametrize("kind", _kinds())
def test_no_probe_uses_more_than_eight_times_its_rows(kind: str, desk: ProbeDesk) -> None:
    asked = _asked(kind, desk)
    assert all(probe.asked_rows <= 8 * asked.context.max_rows for probe in asked.probes.probes)
    assert asked.probes.rows == sum(probe.rows for probe in asked.probes.probes)


@pytest.mark.parametrize("kind", _kinds())
def test_a_copy_of_any_kind_fails_no_probe(kind: str, desk: ProbeDesk) -> None:
    made = _kinds()[kind]
    answered = desk.answer(_asked(kind, desk), desk.model(made.text, made.weights))
    assert answered.failed == {}
    assert sum(outcome.rows for outcome in answered.outcomes) > 0


def test_a_declared_role_stands_and_what_it_leaves_open_is_inferred(desk: ProbeDesk) -> None:
    made = _kinds()["ids alone"]
    model = desk.model(made.text, made.weights)
    same = desk.ask(model, made.samples, declared={"x": DeclaredRole(role=Role.ID, high=30)})
    other = desk.ask(model, made.samples, declared={"x": DeclaredRole(role=Role.NUMBER)})
    role = same.context.roles["x"]
    assert (role.role, role.why, role.low, role.high) == (Role.ID, "the spec declares this", 0, 30)
    assert other.roles == {"x": "number"}


def test_what_the_reference_refuses_is_dropped_and_named(desk: ProbeDesk) -> None:
    asked = _asked("ids alone", desk)
    dropped = {item.about: item.reason for probe in asked.probes.probes for item in probe.dropped}
    assert "the reference does not answer" in dropped["the value 16777217 in x"]


def test_what_the_reference_answers_without_a_number_is_dropped_and_named(desk: ProbeDesk) -> None:
    asked = _asked("flags", desk)
    dropped = {item.about: item.reason for probe in asked.probes.probes for item in probe.dropped}
    assert "with NaN or infinity" in dropped["x: nan everywhere"]


def test_rows_beyond_those_a_probe_may_use_are_named(desk: ProbeDesk) -> None:
    asked = _asked("two float inputs", desk, max_rows=4)
    reasons = {item.reason for probe in asked.probes.probes for item in probe.dropped}
    assert "the probe may use 32 rows" in reasons


def test_an_answer_that_hangs_on_the_last_digit_is_dropped_and_named(desk: ProbeDesk) -> None:
    text = """(float[N,4] x) => (float[N,4] y) {
      m = ReduceMean<axes=[1], keepdims=1>(x)
      d = Sub(x, m)
      y = Mul(d, large)
    }"""
    model = desk.model(text, {"large": np.array(3e4, dtype=np.float32)})
    samples = [{"x": 1e-4 * _normal(seed, 4, 4)} for seed in range(3)]
    asked = desk.ask(model, samples)
    reasons = {item.about: item.reason for probe in asked.probes.probes for item in probe.dropped}
    assert "depends on the last digits of its inputs" in reasons["x: ones"]


@pytest.mark.parametrize("farthest", [3, -3])
def test_which_of_equal_places_is_the_best_is_asked_of_no_flat_picture(desk: ProbeDesk, farthest: float) -> None:
    # The place of the largest score is the answer, as where a detector chooses what it looks at. The scores of a flat
    # picture are equal at all places but for rounding, which is another in the candidate.
    text = """(float[N,6,2] x) => (float[N,1] y) {
      scores = MatMul(x, w)
      more = Add(scores, bias)
      best = %s
      place = ArgMax<axis=1, keepdims=0>(best)
      y = Cast<to=1>(place)
    }"""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((2, 1)).astype(np.float32),
        "bias": np.float32(0.1),
        "last": np.float32([0, 0, 0, 0, 0, 2e-8]).reshape(1, 6, 1),
    }
    drawn = random.standard_normal((8, 6, 2)).astype(np.float32).clip(-2, 2)
    drawn[0, 0] = farthest
    samples = [{"x": drawn}]
    asked = desk.ask(desk.model(text % "Identity(more)", weights), samples, names=["values"])

    answered = desk.answer(asked, desk.model(text % "Add(more, last)", weights))

    reasons = {item.about: item.reason for probe in asked.probes.probes for item in probe.dropped}
    assert {
        "x: zeros",
        "x: the mean, everywhere",
        "x: each row constant",
        "x: the smallest value seen, everywhere",
        "x: the largest value seen, everywhere",
    } <= {about for about, reason in reasons.items() if "depends on the last digits of its inputs" in reason}
    assert answered.gate == ()
    assert answered.failed == {}


def _choice_that_few_draws_show() -> tuple[str, dict[str, Array], list[dict[str, Array]]]:
    """Return a model that jumps where two of four neighbours exceed the others, and hangs on the digits of FP16."""
    text = """(float[N,3,4] x) => (float[N,1] y) {
      flat = Flatten<axis=1>(x)
      higher = Gather<axis=1>(flat, high)
      lower = Gather<axis=1>(flat, low)
      gap = Sub(higher, lower)
      positive = Greater(gap, zero)
      counted = Cast<to=1>(positive)
      both = ReduceMin<axes=[1], keepdims=1>(counted)
      sum = ReduceSum<keepdims=1>(gap, axis)
      far = Mul(sum, large)
      y = Add(far, both)
    }"""
    weights = {
        "high": np.array([0, 6]),
        "low": np.array([1, 7]),
        "zero": np.float32(0),
        "axis": np.array([1]),
        "large": np.float32(40),
    }
    near = _normal(1, 32, 3, 1) + 0.1 * _normal(2, 32, 3, 4)
    return text, weights, [{"x": near}]


def test_a_choice_that_few_draws_show_is_asked_of_no_flat_picture(
    desk: ProbeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, weights, samples = _choice_that_few_draws_show()

    def unsteady(allowance: Allowance | None = None) -> set[str]:
        asked = desk.ask(desk.model(text, weights), samples, names=["values"], allowance=allowance)
        (probe,) = asked.probes.probes
        return {item.about for item in probe.dropped if item.kind is DropKind.UNSTEADY}

    flat = {"x: ones", "x: the mean, everywhere", "x: each row constant"}
    assert flat <= unsteady()
    # Each draw is counted among what probes may cost.
    counted: list[int] = []
    whole = Allowance(SamplesCost(rows=32, values=384, seconds=1e-6))
    takes = whole.takes
    monkeypatch.setattr(
        whole, "takes", lambda inputs, **asked: counted.append(asked["times"]) or takes(inputs, **asked)
    )
    assert flat <= unsteady(allowance=whole)
    assert counted.count(1) >= len(flat)
    monkeypatch.setattr(record, "_DRAWS_OF_FLAT", 0)
    assert not flat <= unsteady()


def test_where_every_value_beyond_the_samples_is_unsteady_that_is_said(desk: ProbeDesk) -> None:
    text = """(float[N,4] x) => (float[N,4] y) {
      m = Abs(x)
      beyond = Sub(m, three)
      more = Relu(beyond)
      odd = Mul(more, large)
      wave = Sin(odd)
      z = Tanh(x)
      y = Add(z, wave)
    }"""
    model = desk.model(text, {"three": np.float32(3), "large": np.float32(1e7)})
    samples = [{"x": _normal(seed, 16, 4).clip(-2.9, 2.9)} for seed in range(2)]
    (probe,) = desk.ask(model, samples, names=["values"]).probes.probes
    assert len(probe.notes) == 1
    assert probe.notes[0].startswith(
        "values of x beyond those seen are not compared, because the reference's outputs for "
    )

    tame = desk.model(text, {"three": np.float32(3), "large": np.float32(1)})
    (probe,) = desk.ask(tame, samples, names=["values"]).probes.probes
    assert probe.notes == ()


def test_a_zero_of_a_table_says_something_of_its_own(desk: ProbeDesk) -> None:
    text = """(float[N,4] x) => (float[N,4] y) {
      size = Abs(x)
      more = Add(size, epsilon)
      y = Sqrt(more)
    }"""
    reference = desk.model(text, {"epsilon": np.float32(0)})
    asked = desk.ask(reference, [{"x": np.abs(_normal(0, 32, 4))}], names=["values"])

    answered = desk.answer(asked, desk.model(text, {"epsilon": np.float32(1e-7)}))

    assert "x: zeros" in answered.failed["values"]


def test_texts_stand_beside_other_rows_and_none_is_made_up(desk: ProbeDesk) -> None:
    model = desk.model("(string[N] word, string[N] other, float[N] x) => (string[N] u, float[N] y) {\n"
                       " u = Identity(word)\n v = Identity(other)\n y = Neg(x)\n}", {})  # fmt: skip
    words = np.array(["a", "bird", "c"])
    asked = desk.ask(
        model, [{"word": words, "other": np.array(["d", "e", "fish"]), "x": _normal(seed, 3)} for seed in range(2)]
    )
    assert asked.roles["word"] == "text"
    assert asked.probes.skipped == ""
    assert {probe.name for probe in asked.probes.probes if probe.batches} >= {"batches", "values", "sensitivity"}
    for probe in asked.probes.probes:
        for batch in asked.probes.batches(probe):
            assert set(batch.inputs["word"].tolist()) <= set(words.tolist())
            assert batch.outputs["u"].tolist() == batch.inputs["word"].tolist()


def test_a_probe_without_batches_leaves_no_folder(desk: ProbeDesk) -> None:
    asked = _asked("two float inputs", desk)
    folders = {path.name for path in asked.probes.folder.iterdir() if path.is_dir()}
    assert folders == {probe.name for probe in asked.probes.probes if probe.batches}


def test_a_share_of_a_large_vocabulary_is_said(desk: ProbeDesk) -> None:
    text = "(int64[N,S] x) => (float[N,4] y) {\n e = Gather(t, x)\n" + _SUM + "}"
    model = desk.model(text, {"t": _normal(0, 20000, 4), **_ONE})
    asked = desk.ask(model, _rows(3, x=(_whole, 0, 50, 4, 16)), dims={"S": Dim(min=1, opt=16, max=128)})
    found = next(outcome for outcome in desk.answer(asked, model).outcomes if outcome.name == "ids")
    assert "8064 of 20000 ids of x asked" in found.detail


def _survey(seed: int, cuts: list[int]) -> Survey:
    signature = Signature(
        inputs=(
            TensorSpec(name="x", dtype="float32", shape=("N", 3)),
            TensorSpec(name="k", dtype="int64", shape=("N",)),
            TensorSpec(name="t", dtype="float32", shape=(2,)),
        ),
        outputs=(),
    )
    surveyor = Surveyor(signature, seed=0)
    x, k = _normal(seed, 40, 3), _whole(seed, 0, 9, 40)
    x[seed % 40, 1] = np.nan
    edges = [0, *sorted(cuts), 40]
    for first, last in itertools.pairwise(edges):
        if last > first:
            ids = [str(row) for row in range(first, last)]
            inputs = {"x": x[first:last], "k": k[first:last], "t": np.ones(2, dtype=np.float32)}
            surveyor.add(Batch(inputs=inputs, ids=ids), inputs)
    return surveyor.finish()


@given(seed=st.integers(0, 1000), cuts=st.lists(st.integers(1, 39), max_size=6))
def test_a_survey_does_not_hang_on_how_rows_are_cut_into_batches(seed: int, cuts: list[int]) -> None:
    whole, parts = _survey(seed, []), _survey(seed, cuts)
    for name in whole.inputs:
        one, two = whole.inputs[name], parts.inputs[name]
        assert (one.low, one.high, one.has_nan, one.distinct) == (two.low, two.high, two.has_nan, two.distinct)
        assert (one.feature_lows, one.feature_highs) == (two.feature_lows, two.feature_highs)
        assert one.has_rows == two.has_rows
    assert whole.groups[0].ids == parts.groups[0].ids
    assert whole.rows == parts.rows


def test_rows_of_large_pictures_are_kept_within_a_few_megabytes() -> None:
    signature = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("N", 3, 256, 256)),),
        outputs=(),
    )
    surveyor = Surveyor(signature, seed=0)
    for at in range(4):
        inputs = {"x": np.zeros((8, 3, 256, 256), dtype=np.float32)}
        surveyor.add(Batch(inputs=inputs, ids=[f"{at}/{row}" for row in range(8)]), inputs)
    kept = surveyor.finish().groups[0]
    assert sum(array.nbytes for array in kept.inputs.values()) <= 4 << 20
    assert len(kept.ids) >= 2


@pytest.mark.parametrize(
    ("values", "reach"),
    [
        pytest.param([[0.5, 50.0]], (False, False), id="within both"),
        pytest.param([[50.0, 50.0]], (True, True), id="what the other feature holds"),
        pytest.param([[-0.5, 50.0]], (True, False), id="outside, and no larger"),
        pytest.param([[np.nan, 50.0]], (True, False), id="missing"),
        pytest.param([[np.inf, 50.0]], (True, True), id="infinite"),
    ],
)
def test_the_range_seen_is_that_of_the_feature(values: list[list[float]], reach: tuple[bool, bool]) -> None:
    signature = Signature(inputs=(TensorSpec(name="x", dtype="float32", shape=("N", 2)),), outputs=())
    surveyor = Surveyor(signature, seed=0)
    inputs = {"x": np.array([[0.0, 0.0], [1.0, 100.0]], dtype=np.float32)}
    surveyor.add(Batch(inputs=inputs, ids=["a", "b"]), inputs)
    assert surveyor.finish().inputs["x"].reach(np.array(values, dtype=np.float32)) == reach


def test_the_sizes_seen_are_those_of_the_rows_before_padding() -> None:
    signature = Signature(inputs=(TensorSpec(name="ids", dtype="int64", shape=("N", "L")),), outputs=())
    surveyor = Surveyor(signature, seed=0)
    for lengths in ([9, 5], [7, 12]):
        inputs = {"ids": np.ones((2, max(lengths)), np.int64)}
        surveyor.add(Batch(inputs=inputs, ids=list(map(str, lengths)), lengths={"ids": lengths}), inputs)

    seen = surveyor.finish().inputs["ids"]
    assert (seen.least_sizes, seen.largest_sizes) == ((2, 5), (2, 12))
