"""Run the serving signature of a TensorFlow SavedModel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paritygate.machine import device_name
from paritygate.models.loading import LoadedModel
from paritygate.models.tensorflow.savedmodel import SavedFunction, load_savedmodel
from paritygate.models.weights import WeightTally
from paritygate.precision import Precision
from paritygate.signature import Signature, rename_signature
from paritygate.validate.runners.runner import RuntimeFacts
from paritygate.validate.runners.tensorflow.device import (
    TensorflowRunner,
    add_variables,
    is_tf32_allowed,
    own_array,
    precision_of_operations,
    prepare_device,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SavedModelRunner", "open_model"]

# Where the arithmetic of a model is: the dtype of these says what the model computes in.
_OPERATORS = frozenset(
    {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "Einsum", "MatMul"}
)


def open_model(loaded: LoadedModel) -> SavedModelRunner:
    """Return the SavedModel, its serving signature ready to be called.

    Reads all variables and constants, to find their precision.

    Raises:
        MissingBackendError: TensorFlow is not installed.
        InputFileError: The folder is no SavedModel, or has no serving signature.
        BackendError: TensorFlow does not load it, or not on the device asked for.
        UsageError: A name to be renamed is not in the model.
    """
    tf = prepare_device(loaded.device)
    function = load_savedmodel(loaded.ref.path)
    facts = RuntimeFacts(
        runtime="tensorflow",
        version=tf.__version__,
        device=device_name(loaded.device),
        precision_found=_precision_found(function),
        tf32=is_tf32_allowed(loaded.device),
    )
    return SavedModelRunner(
        function=function, signature=rename_signature(function.signature, loaded.ref.rename), facts=facts
    )


def _precision_found(function: SavedFunction) -> Precision | None:
    import tensorflow as tf

    tally = WeightTally()
    add_variables(tally, function.function.variables)
    dtypes = set()
    for node in _nodes(function.function):
        if node.op == "Const" and tf.dtypes.as_dtype(node.attr["dtype"].type).is_floating:
            tally.add(tf.make_ndarray(node.attr["value"].tensor))
        elif node.op in _OPERATORS:
            dtypes.add(tf.dtypes.as_dtype(node.attr["T"].type).name)
    return precision_of_operations(tally.precision_of_parameters(), dtypes)


def _nodes(function: Any) -> Iterator[Any]:  # noqa: ANN401 - TensorFlow ships no types
    graph = function.graph.as_graph_def()
    yield from graph.node
    for called in graph.library.function:
        yield from called.node_def


class SavedModelRunner(TensorflowRunner):
    """The serving signature of one SavedModel."""

    _what = "tensorflow failed"
    _hint = "check that the samples are within what the model was exported for"

    def __init__(self, *, function: SavedFunction, signature: Signature, facts: RuntimeFacts) -> None:
        super().__init__(signature, facts, function.signature)
        self._function = function

    def _call(self, feed: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        found = self._function(feed)
        return [own_array(found[spec.name], self._device) for spec in self._own.outputs]
