"""Run the serving signature of a TensorFlow SavedModel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from paritygate.errors import BackendError
from paritygate.machine import device_name
from paritygate.models.tensorflow.savedmodel import SavedFunction, load_savedmodel
from paritygate.models.weights import WeightTally
from paritygate.precision import Precision
from paritygate.signature import Signature, rename_signature
from paritygate.validate.runners.interface import check_inputs, describe_arrays
from paritygate.validate.runners.one_thread import FIXED_BY_TENSORFLOW, ON_THE_GPU
from paritygate.validate.runners.runner import ModelToRun, RuntimeFacts
from paritygate.validate.runners.tensorflow.device import (
    add_variables,
    is_tf32_allowed,
    own_array,
    precision_of_operations,
    prepare_device,
    tensorflow_reason,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SavedModelRunner", "open_model"]

# Where the arithmetic of a model is: the dtype of these says what the model computes in.
_OPERATORS = frozenset(
    {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "Einsum", "MatMul"}
)


def open_model(model: ModelToRun) -> SavedModelRunner:
    """Return the SavedModel, its serving signature ready to be called.

    Reads all variables and constants, to find their precision.

    Raises:
        MissingBackendError: TensorFlow is not installed.
        InputFileError: The folder is no SavedModel, or has no serving signature.
        BackendError: TensorFlow does not load it, or not on the device asked for.
        UsageError: A name to be renamed is not in the model.
    """
    tf = prepare_device(model.device)
    function = load_savedmodel(model.source.path)
    facts = RuntimeFacts(
        runtime="tensorflow",
        version=tf.__version__,
        device=device_name(model.device),
        precision_found=_precision_found(function),
        tf32=is_tf32_allowed(model.device),
    )
    return SavedModelRunner(
        function=function, signature=rename_signature(function.signature, model.rename), facts=facts
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


class SavedModelRunner:
    """The serving signature of one SavedModel."""

    def __init__(self, *, function: SavedFunction, signature: Signature, facts: RuntimeFacts) -> None:
        self._function = function
        self._signature = signature
        self._facts = facts
        self._device = facts.device.partition(":")[0]
        own = function.signature
        self._own_inputs = {
            spec.name: of_model.name for spec, of_model in zip(signature.inputs, own.inputs, strict=True)
        }
        self._own_outputs = {
            spec.name: of_model.name for spec, of_model in zip(signature.outputs, own.outputs, strict=True)
        }

    @property
    def signature(self) -> Signature:
        """Inputs and outputs under the names served, sorted by their names in the model."""
        return self._signature

    @property
    def facts(self) -> RuntimeFacts:
        """What runs, read back from TensorFlow."""
        return self._facts

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name for one batch; the arrays belong to the caller.

        Raises:
            BackendError: The inputs are not those of the model, or TensorFlow failed.
        """
        check_inputs(self._signature, inputs)
        try:
            found = self._function({self._own_inputs[name]: array for name, array in inputs.items()})
            return {name: own_array(found[own], self._device) for name, own in self._own_outputs.items()}
        except Exception as err:
            msg = f"tensorflow failed on {describe_arrays(inputs)}: {tensorflow_reason(err)}"
            raise BackendError(msg, hint="check that the samples are within what the model was exported for") from err

    def on_one_thread(self) -> str:
        """Return why it does not answer on one thread."""
        return FIXED_BY_TENSORFLOW if self._device == "cpu" else ON_THE_GPU
