"""What lies outside of every table and every number: asked where an answer is right or wrong, and not elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray
    from tests.validate.probes.conftest import ProbeDesk

_LOOKUP = (
    "(int64[B, S] ids) => (float[B, 4] out) "
    "{ rows = Gather(table, ids) out = ReduceMean<axes = [1], keepdims = 0>(rows) }"
)
_RANDOM = np.random.default_rng(5)
_TABLE = _RANDOM.normal(size=(100, 4)).astype(np.float32)


def _ids() -> list[dict[str, NDArray[Any]]]:
    return [{"ids": _RANDOM.integers(0, 20, size=(4, 6))} for _ in range(6)]


def _features() -> list[dict[str, NDArray[Any]]]:
    return [{"x": _RANDOM.normal(size=(4, 3)).astype(np.float32)} for _ in range(6)]


def _lookup(desk: ProbeDesk, rows: int) -> onnx.ModelProto:
    return desk.model(_LOOKUP, {"table": _TABLE[:rows]})


def test_a_table_that_was_cut_is_found_though_only_the_cut_one_is_looked_at(desk: ProbeDesk) -> None:
    cut = _lookup(desk, 30)
    asked = desk.ask(_lookup(desk, 100), _ids(), graph=cut, names=["ids"])

    answered = desk.answer(asked, cut)

    assert answered.gate == ()
    assert set(answered.failed) == {"ids"}
    # The reference refuses what no table holds, so that these are ids of its own: they are no edge.
    assert set(desk.answer(asked, cut, edge="warn").failed) == {"ids"}
    assert desk.answer(asked, _lookup(desk, 100)).failed == {}


def test_unknown_ids_of_a_reference_that_has_a_default_for_them_are_findings(desk: ProbeDesk) -> None:
    tolerant = _LOOKUP.replace("rows = Gather(table, ids)", "known = Clip(ids, zero, last) rows = Gather(table, known)")
    weights = {"table": _TABLE, "zero": np.int64(0), "last": np.int64(99)}
    asked = desk.ask(desk.model(tolerant, weights), _ids(), names=["ids"])

    answered = desk.answer(asked, _lookup(desk, 100), edge="warn")

    assert (answered.gate, answered.failed, answered.found) == ((), {}, {"ids": {"ids"}})
    assert desk.answer(asked, desk.model(tolerant, weights)).found == {}


# Numbers of any size are hashed into the rows of a table, so that no table says which of them are ids.
_HASHED = """(int64[B, S] ids) => (float[B, 4] out) {{
  hashed = Mul(ids, prime)
  at = Mod(hashed, size)
  rows = Gather(table, at)
  {own}
  out = ReduceMean<axes = [1], keepdims = 0>({rows})
}}"""


def test_the_id_after_the_last_one_seen_is_asked_where_no_table_says_which_there_are(desk: ProbeDesk) -> None:
    samples = [{"ids": _RANDOM.integers(0, 20, size=(4, 6))} for _ in range(6)]
    samples[0]["ids"][0, :2] = 0, 19
    next_one = """is = Equal(ids, next)
  isf = Cast<to = 1>(is)
  column = Unsqueeze(isf, two)
  more = Add(rows, column)"""
    weights = {"table": _TABLE, "prime": np.int64(31), "size": np.int64(100)}
    right = desk.model(_HASHED.format(own="", rows="rows"), weights)
    faulty = desk.model(
        _HASHED.format(own=next_one, rows="more"), {**weights, "next": np.int64(20), "two": np.array([2])}
    )
    asked = desk.ask(right, samples, names=["ids"])

    answered = desk.answer(asked, faulty, edge="warn")

    assert (answered.gate, answered.failed) == ((), {})
    assert [finding.about for finding in answered.outcomes[0].findings] == ["the value 20 in ids"]


_CLEARED = "(float[B, 3] x) => (float[B, 3] out) { gone = IsNaN(x) out = Where(gone, fill, x) }"


@pytest.mark.parametrize(("runtime", "is_held"), [("onnxruntime", True), ("another", False)])
def test_infinity_that_nobody_looks_for_is_asked_of_the_same_runtime_alone(
    desk: ProbeDesk, runtime: str, *, is_held: bool
) -> None:
    reference = desk.model("(float[B, 3] x) => (float[B, 3] out) { out = Tanh(x) }", {})
    faulty = desk.model(
        "(float[B, 3] x) => (float[B, 3] out) { far = IsInf(x) some = Tanh(x) out = Where(far, zero, some) }",
        {"zero": np.float32(0)},
    )
    asked = desk.ask(reference, _features(), names=["values"])

    answered = desk.answer(asked, faulty, runtime=runtime, edge="warn")

    (outcome,) = answered.outcomes
    assert answered.failed == {}
    assert ("infinity in x" in [finding.edge for finding in outcome.findings]) is is_held
    assert (
        any("another may treat NaN and infinity differently from onnxruntime" in why for why in outcome.unfit)
        is not is_held
    )


def test_what_is_quantized_is_not_held_to_infinity(desk: ProbeDesk) -> None:
    reference = desk.model("(float[B, 3] x) => (float[B, 3] out) { out = Tanh(x) }", {})
    asked = desk.ask(reference, _features(), names=["values"])

    (outcome,) = desk.answer(asked, reference, precision="int8").outcomes

    assert any("what is quantized holds no NaN and no infinity" in why for why in outcome.unfit)


@pytest.mark.parametrize("runtime", ["onnxruntime", "another"])
def test_nan_that_the_model_looks_for_is_asked_of_every_runtime(desk: ProbeDesk, runtime: str) -> None:
    asked = desk.ask(desk.model(_CLEARED, {"fill": np.float32(0)}), _features(), names=["values"])

    answered = desk.answer(asked, desk.model(_CLEARED, {"fill": np.float32(1)}), runtime=runtime, edge="warn")

    assert answered.gate == ()
    assert answered.failed == {}
    assert [finding.edge for finding in answered.outcomes[0].findings] == ["NaN in x"]
    assert asked.context.roles["x"].takes_missing


@pytest.mark.parametrize(("share", "failing"), [(1.5, ["fp32"]), (3.0, ["fp32", "fp16", "bf16"])])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_below_fp32_a_row_of_equal_values_is_held_to_twice_the_limit(
    desk: ProbeDesk, precision: str, share: float, failing: list[str]
) -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((256, 1)).astype(np.float32) / 16
    # Their sum is 0, so that a row of equal values is answered with 0, to which the limits of a typical row apply.
    weight -= weight.mean()
    samples = [{"x": random.standard_normal((32, 256)).astype(np.float32)}]
    asked = desk.ask(desk.model("(float[B, 256] x) => (float[B, 1] y) { y = MatMul(x, w) }", {"w": weight}), samples)
    # Real rows have a mean near 0, so that the candidate differs by 0 there and by `off` where all values are large.
    candidate = desk.model(
        """(float[B, 256] x) => (float[B, 1] y) {
          right = MatMul(x, w)
          mean = ReduceMean<axes=[1], keepdims=1>(x)
          more = Clip(mean, half, one)
          above = Sub(more, half)
          off = Mul(above, factor)
          y = Add(right, off)
        }""",
        {
            "w": weight,
            "half": np.float32(0.5),
            "one": np.float32(1),
            "factor": np.float32(2 * share * {"fp32": 1e-4, "fp16": 1e-2, "bf16": 5e-2}[precision]),
        },
    )

    answered = desk.answer(asked, candidate, precision=precision)

    assert answered.gate == ()
    assert ("values" in answered.failed) is (precision in failing)
