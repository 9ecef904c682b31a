"""Run a Keras model, given as an object or as a `.keras` file, in inference mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paritygate.machine import device_name
from paritygate.models.loading import LoadedModel
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

__all__ = ["KerasRunner", "open_model"]


def open_model(loaded: LoadedModel) -> KerasRunner:
    """Return the Keras model, ready to be called.

    Reads all weights, to find their precision.

    Raises:
        MissingBackendError: TensorFlow is not installed.
        InputFileError: The file is corrupt or holds code.
        BackendError: The device asked for cannot be had, or Keras runs on another backend.
        UsageError: The model does not say its signature and none is given, or the one given does not fit.
    """
    prepare_device(loaded.device)
    keras = import_keras()
    rename = loaded.ref.rename
    model = load_keras_file(loaded.ref.path) if loaded.model is None else loaded.model
    signature = loaded.ref.signature or signature_of_keras(model, rename, loaded.example)
    facts = RuntimeFacts(
        runtime="keras",
        version=f"{keras.__version__} on tensorflow {_tensorflow_version()}",
        device=device_name(loaded.device),
        precision_found=_precision_found(model),
        tf32=is_tf32_allowed(loaded.device),
        notes=notes_on_names(model, signature, rename),
    )
    return KerasRunner(
        function=as_named_function(model, signature, rename),
        signature=signature,
        facts=facts,
        second_names=second_names(model),
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


class KerasRunner(TensorflowRunner):
    """One Keras model, called eagerly.

    Why not as a compiled function? Tracing bakes in what Python decides, and a converter traces as well: a
    reference that was traced would share that fault and hide it.

    Attributes:
        second_names: By the model's own name of an output, the one by its order, under which it can be asked for too.
        function: What is called with one tensor for each input, in the order of the signature.
    """

    _what = "keras failed"

    def __init__(
        self,
        *,
        function: NamedKerasModel,
        signature: Signature,
        facts: RuntimeFacts,
        second_names: Mapping[str, str],
        graph: Any = None,  # noqa: ANN401 - a concrete function of TensorFlow
    ) -> None:
        super().__init__(signature, facts)
        self.second_names = second_names
        self.function = function
        self._called = function if graph is None else graph

    @property
    def facts(self) -> RuntimeFacts:
        """What runs, read back; after the first batch also which outputs the signature leaves out."""
        unused = self.function.unused_outputs
        if not unused:
            return self._facts
        note = f"the model also returns {', '.join(unused)}, which the signature does not have"
        return replace(self._facts, notes=(*self._facts.notes, note))

    def _call(self, feed: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        import tensorflow as tf

        tensors = [tf.convert_to_tensor(array) for array in feed.values()]
        return [own_array(tensor, self._device) for tensor in self._called(*tensors)]

    def compiled(self, graph: Any) -> KerasRunner:  # noqa: ANN401 - a concrete function of TensorFlow
        """Return a runner that calls the model as a graph, which was traced from `function`."""
        facts = replace(self._facts, optimisation="graph")
        return KerasRunner(
            function=self.function, signature=self._served, facts=facts, second_names=self.second_names, graph=graph
        )
