"""INT8 cuts off what goes beyond its calibration: a correct variant is not failed for it, a wrong one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx
    from conftest import Asked, ProbeDesk

Array = NDArray[Any]

_POOLED = """(int64[N,S] tokens) => (float[N,2] logits) {
  x = Gather(table, tokens)
  mean = ReduceMean<axes=[1], keepdims=0>(x)
  h = MatMul(mean, w1)
  r = Relu(h)
  logits = MatMul(r, w2)
}"""
# The samples hold the even ones below.
_IDS, _UNSEEN, _ANOTHER = 120, 61, 97


def _normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _weights(table: Array) -> dict[str, Array]:
    return {"table": table, "w1": 0.4 * _normal(2, 16, 16), "w2": _normal(3, 16, 2)}


def _asked(desk: ProbeDesk, table: Array) -> tuple[Asked, onnx.ModelProto]:
    """Return the reference, asked, and an honest INT8 variant of it."""
    random = np.random.default_rng(4)
    samples = [{"tokens": 2 * random.integers(0, _IDS // 2, (16, 8))} for _ in range(8)]
    model = desk.model(_POOLED, _weights(table))
    return desk.ask(model, samples, names=["ids"]), desk.quantized(model, samples)


def _with_table(model: onnx.ModelProto, change: Callable[[Array, int], None]) -> onnx.ModelProto:
    """Return the variant with another table of INT8; what changes it is given the number that stands for zero."""
    by_name = {tensor.name: tensor for tensor in model.graph.initializer}
    rows = numpy_helper.to_array(by_name["table_quantized"]).copy()
    change(rows, int(numpy_helper.to_array(by_name["table_zero_point"])))
    by_name["table_quantized"].CopyFrom(numpy_helper.from_array(rows, "table_quantized"))
    return model


def test_what_an_honest_variant_cuts_off_is_a_finding_even_where_the_edge_fails(desk: ProbeDesk) -> None:
    table = _normal(1, _IDS, 16)
    # What the samples do not hold is larger: sums of it go beyond what the calibration saw.
    table[1::2] *= 2.5
    asked, variant = _asked(desk, table)

    answered = desk.answer(asked, variant, precision="int8", edge="fail")

    assert (answered.gate, answered.failed) == ((), {})
    assert answered.found == {"ids": {"calibration"}}


def _zeroed(rows: Array, zero: int) -> None:
    rows[_UNSEEN] = zero


def _exchanged(rows: Array, _: int) -> None:
    rows[[_UNSEEN, _ANOTHER]] = rows[[_ANOTHER, _UNSEEN]]


def _moved(rows: Array, _: int) -> None:
    rows[1::2] = np.roll(rows[1::2], 1, axis=0)


@pytest.mark.parametrize("change", [_zeroed, _exchanged, _moved])
@pytest.mark.parametrize("larger", [1.0, 2.5], ids=["within the ranges", "beyond the ranges"])
def test_a_wrong_row_of_a_quantized_table_fails(
    change: Callable[[Array, int], None], larger: float, desk: ProbeDesk
) -> None:
    table = _normal(1, _IDS, 16)
    table[1::2] *= larger
    asked, variant = _asked(desk, table)

    answered = desk.answer(asked, _with_table(variant, change), precision="int8", edge="warn")

    # No sample shows it.
    assert answered.gate == ()
    assert set(answered.failed) == {"ids"}
