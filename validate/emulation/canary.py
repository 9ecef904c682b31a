"""The canary: a computation in the emulated graph that comes out differently if nothing is rounded there.

A runtime that removed the pairs of Casts would make every model look as good as in float32. The canary is an input and
an output of every batch, so no optimisation can compute it once. A graph of canaries alone shows it before the first
batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paritygate.errors import BackendError
from paritygate.models.onnx.graph import UniqueNames
from paritygate.models.onnx.weights import ELEMENT_TYPES, FLOAT
from paritygate.precision import Precision

if TYPE_CHECKING:
    import onnx

# Squared, the first is 90000: beyond float16, and between two bfloat16 numbers. The square of the second is
# 1 + 2^-5 + 2^-12, whose last bit neither has room for; the third's, 2^-26, float16 rounds to 0.
VALUES: NDArray[np.float32] = np.array([300.0, 1.0 + 2.0**-6, 2.0**-13], dtype=np.float32)
VALUES.flags.writeable = False
_OPSET, _IR_VERSION = 13, 8
_SQUARES: Mapping[Precision, tuple[float, float, float]] = {
    Precision.FP16: (np.inf, 1.03125, 0.0),
    Precision.BF16: (90112.0, 1.03125, 2.0**-26),
}


def add_canary(
    graph: onnx.GraphProto, names: UniqueNames, precisions: Iterable[Precision]
) -> tuple[str, dict[Precision, str]]:
    """Add the canary to the graph in place, and return its input and, for each precision, its output."""
    import onnx

    fed = names.new("paritygate_canary")
    shape = [len(VALUES)]
    graph.input.append(onnx.helper.make_tensor_value_info(fed, FLOAT, shape))
    outputs = {}
    for precision in precisions:
        square, low, rounded = (names.new(f"{fed}_{precision}_{step}") for step in ("square", "low", "found"))
        graph.node.append(onnx.helper.make_node("Mul", [fed, fed], [square]))
        graph.node.append(onnx.helper.make_node("Cast", [square], [low], to=ELEMENT_TYPES[precision]))
        graph.node.append(onnx.helper.make_node("Cast", [low], [rounded], to=FLOAT))
        graph.output.append(onnx.helper.make_tensor_value_info(rounded, FLOAT, shape))
        outputs[precision] = rounded
    return fed, outputs


def canary_alone(precisions: Iterable[Precision]) -> tuple[onnx.ModelProto, str, dict[Precision, str]]:
    """Return a model of nothing but the canary, its input, and its output for each precision."""
    import onnx

    model = onnx.helper.make_model(
        onnx.GraphProto(name="canary"), opset_imports=[onnx.helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )
    fed, outputs = add_canary(model.graph, UniqueNames(()), precisions)
    return model, fed, outputs


def check_canary(found: NDArray[np.generic], precision: Precision) -> None:
    """Raise BackendError if the canary's values are not rounded to the precision."""
    if tuple(found.tolist()) != _SQUARES[precision]:
        msg = (
            f"the session does not round to {precision}: the squares of {VALUES.tolist()} came out as "
            f"{found.tolist()}, not {list(_SQUARES[precision])}"
        )
        raise BackendError(msg, hint="install another version of ONNX Runtime to emulate this precision")
