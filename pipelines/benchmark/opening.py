"""Opening a model to be timed, in a worker: as it is when it serves.

A Keras model is called eagerly where it is the reference, because tracing it could hide a fault that a converter
makes as well. Nobody serves it so: on small models most of an eager call is Python. A speed-up over that would be
none, so here it is a graph, as in TensorFlow Serving and in `predict`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paritygate.convert.tensorflow.function import tensor_spec
from paritygate.errors import BackendError
from paritygate.models.source import SourceKind
from paritygate.models.tensorflow.keras_model import as_named_function, load_keras_file
from paritygate.pipelines.compare.job import Side
from paritygate.pipelines.compare.loading import LoadedModel, load_model
from paritygate.pipelines.compare.opening import open_side
from paritygate.validate.runners.interface import check_inputs, describe_arrays
from paritygate.validate.runners.runner import ModelToRun, Runner, RuntimeFacts, open_runner
from paritygate.validate.runners.tensorflow.device import own_array, tensorflow_reason

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.signature import Signature

__all__ = ["COMPILED", "EAGER", "open_to_time"]

COMPILED = "Keras is called as a compiled graph, as it is served; as the reference it answered eagerly"
EAGER = "Keras is called eagerly, which is slower than it is served, because it could not be compiled as a graph"


def open_to_time(
    side: Side, kind: SourceKind, device: str, check: Callable[[LoadedModel], None] = lambda _: None
) -> tuple[Runner, tuple[str, ...]]:
    """Return the runner of a model, and what is to be known of how it is called.

    Args:
        side: The model.
        kind: Its kind; of a `module:callable` what it will turn out to be, or CALLABLE where that is not known.
        device: Where it runs: `cpu`, or `cuda`.
        check: Called with what was loaded, before it is called or traced: Keras may make parameters only then.

    Raises:
        ParitygateError: As `open_side`, or what `check` raised.
    """
    if kind not in {SourceKind.KERAS, SourceKind.CALLABLE} or side.model is None:
        runner, loaded = open_side(side, device)
        check(loaded)
        return runner, ()
    loaded = load_model(side.model)
    model = loaded.model
    if loaded.source.kind is SourceKind.KERAS and model is None:
        model = load_keras_file(loaded.source.path)
    eager = open_runner(
        ModelToRun(source=loaded.source, model=model, signature=side.signature, rename=side.rename, device=device)
    )
    # A file is described as a file, whatever was read from it.
    check(loaded)
    if loaded.source.kind is not SourceKind.KERAS:
        return eager, ()
    function = as_named_function(model, eager.signature, side.rename)
    try:
        graph = _graph(function, eager.signature)
    except Exception as err:  # noqa: BLE001 - whatever Python does in a call, tracing it may raise
        return eager, (f"{EAGER}: {tensorflow_reason(err)}",)
    return _GraphRunner(graph, eager), (COMPILED,)


def _graph(function: Any, signature: Signature) -> Any:  # noqa: ANN401 - a function of TensorFlow, which has no types
    """Return the function traced, for all sizes that the signature leaves open."""
    import tensorflow as tf

    specs = [tensor_spec(spec.shape, spec.dtype, spec.name) for spec in signature.inputs]
    return tf.function(lambda *tensors: tuple(function(*tensors))).get_concrete_function(*specs)


class _GraphRunner:
    """A Keras model as a graph."""

    def __init__(self, graph: Any, eager: Runner) -> None:  # noqa: ANN401 - a concrete function of TensorFlow
        self._graph = graph
        self._signature = eager.signature
        self._facts = replace(eager.facts, optimisation="graph")
        self._device = eager.facts.device.partition(":")[0]

    @property
    def signature(self) -> Signature:
        """Inputs and outputs under the names served."""
        return self._signature

    @property
    def facts(self) -> RuntimeFacts:
        """What runs."""
        return self._facts

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name for one batch; the arrays belong to the caller.

        Raises:
            BackendError: The inputs are not those of the model, or TensorFlow failed.
        """
        import tensorflow as tf

        check_inputs(self._signature, inputs)
        try:
            tensors = [tf.convert_to_tensor(inputs[spec.name]) for spec in self._signature.inputs]
            arrays = [own_array(tensor, self._device) for tensor in self._graph(*tensors)]
        except Exception as err:
            msg = f"keras failed on {describe_arrays(inputs)}: {tensorflow_reason(err)}"
            raise BackendError(msg, hint="check that the samples are within what the model takes") from err
        return {spec.name: array for spec, array in zip(self._signature.outputs, arrays, strict=True)}
