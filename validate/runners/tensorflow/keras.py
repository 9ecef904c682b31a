"""Run a Keras model, given as an object or as a `.keras` file, in inference mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paritygate.errors import BackendError, ParitygateError
from paritygate.machine import device_name
from paritygate.models.tensorflow.importing import import_keras
from paritygate.models.tensorflow.keras_model import (
    NamedKerasModel,
    as_named_function,
    load_keras_file,
    notes_on_names,
    second_names,
    signature_of_keras,
)
from paritygate.models.weights import WeightTally
from paritygate.precision import Precision
from paritygate.signature import Signature
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

__all__ = ["KerasRunner", "open_model"]


def open_model(model: ModelToRun) -> KerasRunner:
    """Return the Keras model, ready to be called.

    Reads all weights, to find their precision.

    Raises:
        MissingBackendError: TensorFlow is not installed.
        InputFileError: The file is corrupt or holds code.
        BackendError: The device asked for cannot be had, or Keras runs on another backend.
        UsageError: The model does not say its signature and none is given, or the one given does not fit.
    """
    prepare_device(model.device)
    keras = import_keras()
    loaded = load_keras_file(model.source.path) if model.model is None else model.model
    signature = model.signature or signature_of_keras(loaded, model.rename, model.example)
    facts = RuntimeFacts(
        runtime="keras",
        version=f"{keras.__version__} on tensorflow {_tensorflow_version()}",
        device=device_name(model.device),
        precision_found=_precision_found(loaded),
        tf32=is_tf32_allowed(model.device),
        notes=notes_on_names(loaded, signature, model.rename),
    )
    return KerasRunner(
        function=as_named_function(loaded, signature, model.rename),
        signature=signature,
        facts=facts,
        second_names=second_names(loaded),
    )


def _tensorflow_version() -> str:
    import tensorflow as tf

    return str(tf.__version__)


def _precision_found(model: Any) -> Precision | None:  # noqa: ANN401 - a keras.Model, and Keras has no types
    tally = WeightTally()
    add_variables(tally, model.weights)
    # A mixed policy keeps weights in float32 and casts them for every call.
    return precision_of_operations(
        tally.precision_of_parameters(), {layer.compute_dtype for layer in _layers_with_weights(model)}
    )


def _layers_with_weights(layer: Any) -> Iterator[Any]:  # noqa: ANN401 - a keras.Layer
    parts = getattr(layer, "layers", None)
    if parts:
        for part in parts:
            yield from _layers_with_weights(part)
    elif layer.weights:
        yield layer


class KerasRunner:
    """One Keras model, called eagerly.

    Why not as a compiled function? Tracing bakes in what Python decides, and a converter traces as well: a
    reference that was traced would share that fault and hide it.

    Attributes:
        second_names: By the model's own name of an output, the one by its order, under which it can be asked for too.
    """

    def __init__(
        self,
        *,
        function: NamedKerasModel,
        signature: Signature,
        facts: RuntimeFacts,
        second_names: Mapping[str, str],
    ) -> None:
        self.second_names = second_names
        self._function = function
        self._signature = signature
        self._facts = facts
        self._device = facts.device.partition(":")[0]

    @property
    def signature(self) -> Signature:
        """Inputs and outputs under the names served."""
        return self._signature

    @property
    def facts(self) -> RuntimeFacts:
        """What runs, read back; after the first batch also which outputs the signature leaves out."""
        unused = self._function.unused_outputs
        if not unused:
            return self._facts
        note = f"the model also returns {', '.join(unused)}, which the signature does not have"
        return replace(self._facts, notes=(*self._facts.notes, note))

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name for one batch; the arrays belong to the caller.

        Raises:
            BackendError: The inputs are not those of the model, or TensorFlow failed.
            UsageError: The model does not return the outputs that the signature has.
        """
        import tensorflow as tf

        check_inputs(self._signature, inputs)
        try:
            tensors = [tf.convert_to_tensor(inputs[spec.name]) for spec in self._signature.inputs]
            arrays = [own_array(tensor, self._device) for tensor in self._function(*tensors)]
        except ParitygateError:
            raise
        except Exception as err:
            msg = f"keras failed on {describe_arrays(inputs)}: {tensorflow_reason(err)}"
            raise BackendError(msg, hint="check that the samples are within what the model takes") from err
        return {spec.name: array for spec, array in zip(self._signature.outputs, arrays, strict=True)}

    def on_one_thread(self) -> str:
        """Return why it does not answer on one thread."""
        return FIXED_BY_TENSORFLOW if self._device == "cpu" else ON_THE_GPU
