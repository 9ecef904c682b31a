"""Run an ONNX model on the CPU with the values of a device of lower precision, or with those of FP32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.models.onnx.graph import element_types, nodes_in
from paritygate.models.onnx.weights import ELEMENT_TYPES, FLOAT
from paritygate.precision import Precision
from paritygate.validate.emulation.canary import VALUES
from paritygate.validate.emulation.graph import emulate
from paritygate.validate.emulation.value_types import infer_all_types
from paritygate.validate.runners.emulated import open_rounding_session, widened
from paritygate.validate.tensors.onnx_values import OnnxValues
from paritygate.validate.tensors.tensor_graph import Arrays, Feed

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnxruntime
    from numpy.typing import NDArray

_LOW = frozenset(ELEMENT_TYPES.values())


class EmulatedValues(OnnxValues):
    """Runs a model whose tensors of FP16 and BF16 are rounded after every operator, or are FP32.

    ONNX Runtime itself computes most of them in FP32, and rounds some.
    """

    def __init__(self, model: onnx.ModelProto, path: Path, *, is_rounding: bool = True) -> None:
        """Take a model without local functions, which stays as it is, and its file.

        Raises:
            BackendError: It cannot be emulated.
            UsageError: It has no tensor of FP16 or BF16.
        """
        from onnx.helper import tensor_dtype_to_np_dtype

        copied = type(model)()
        copied.CopyFrom(model)
        infer_all_types(copied)
        types = element_types(copied.graph) if is_rounding else {}
        self._dtypes = {name: tensor_dtype_to_np_dtype(each) for name, each in types.items() if each in _LOW}
        emulated = emulate(copied, path.parent, Precision.MIXED)
        for node in nodes_in(emulated.model.graph) if not is_rounding else ():
            for item in node.attribute:
                # Without these Casts, nothing is rounded.
                if node.op_type == "Cast" and item.name == "to" and item.i in _LOW:
                    item.i = FLOAT
        self._weights, self._canary = emulated.weights, emulated.canary_input
        super().__init__(emulated.model, path)

    def open(self, names: Sequence[str], values: Mapping[str, Arrays]) -> Callable[[Feed], list[NDArray[np.generic]]]:
        """Return what computes these tensors; see `OnnxValues`."""
        wide = {name: [widened(array) for array in arrays] for name, arrays in values.items()}
        run = super().open(names, wide)

        def computed(feed: Feed) -> list[NDArray[np.generic]]:
            answers = run({**{name: widened(array) for name, array in feed.items()}, self._canary: VALUES})
            return [
                array.astype(self._dtypes[name]) if name in self._dtypes else array
                for name, array in zip(names, answers, strict=True)
            ]

        return computed

    def _session(self, model: onnx.ModelProto) -> onnxruntime.InferenceSession:
        return open_rounding_session(model, self._weights, str(self._path))
