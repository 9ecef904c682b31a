"""Opening a model to be timed, in a worker: as it is when it serves.

A Keras model is called eagerly where it is the reference, because tracing it could hide a fault that a converter
makes as well. Nobody serves it so: on small models most of an eager call is Python. A speed-up over that would be
none, so here it is a graph, as in TensorFlow Serving and in `predict`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from paritygate.convert.tensorflow.function import tensor_spec
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef
from paritygate.validate.runners.opening import open_model
from paritygate.validate.runners.runner import Runner
from paritygate.validate.runners.tensorflow.device import tensorflow_reason
from paritygate.validate.runners.tensorflow.keras import KerasRunner

if TYPE_CHECKING:
    from paritygate.signature import Signature

__all__ = ["COMPILED", "EAGER", "open_to_time"]

COMPILED = "Keras is called as a compiled graph, as it is served; as the reference it answered eagerly"
EAGER = "Keras is called eagerly, which is slower than it is served, because it could not be compiled as a graph"


def open_to_time(
    ref: ModelRef, device: str, check: Callable[[LoadedModel], None] = lambda _: None
) -> tuple[Runner, tuple[str, ...]]:
    """Return the runner of a model, and what is to be known of how it is called.

    Args:
        ref: The model.
        device: Where it runs: `cpu`, or `cuda`.
        check: Called with what was loaded, before it is called or traced: Keras may make parameters only then.

    Raises:
        ParitygateError: As `open_model`, or what `check` raised.
    """
    runner = open_model(ref, device)
    check(runner.loaded)
    if not isinstance(runner, KerasRunner):
        return runner, ()
    try:
        graph = _graph(runner.function, runner.signature)
    except Exception as err:  # noqa: BLE001 - whatever Python does in a call, tracing it may raise
        return runner, (f"{EAGER}: {tensorflow_reason(err)}",)
    return runner.compiled(graph), (COMPILED,)


def _graph(function: Any, signature: Signature) -> Any:  # noqa: ANN401 - a function of TensorFlow, which has no types
    """Return the function traced, for all sizes that the signature leaves open."""
    import tensorflow as tf

    specs = [tensor_spec(spec.shape, spec.dtype, spec.name) for spec in signature.inputs]
    return tf.function(lambda *tensors: tuple(function(*tensors))).get_concrete_function(*specs)
