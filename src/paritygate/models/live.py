"""Models that Python code gives as objects: no other process has them, so they are run in this one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from paritygate.errors import BackendError, UsageError
from paritygate.models.source import SourceKind, kind_of_object

__all__ = ["kind_of_live", "live_object", "live_objects"]

_OBJECTS: ContextVar[Mapping[str, Any]] = ContextVar("live_objects")


def kind_of_live(model: object) -> SourceKind:
    """Return the kind of an object that is given as a model, without importing any framework.

    Raises:
        UsageError: It is no PyTorch module, no Keras model and no function.
    """
    try:
        return kind_of_object(model)
    except UsageError:
        # A class is called to make a model, and a function to answer.
        if callable(model) and not isinstance(model, type):
            return SourceKind.FUNCTION
    msg = f"a model is given as a {type(model).__module__}.{type(model).__qualname__}, which is none"
    hint = (
        "give a path, module:callable, a torch.nn.Module, a keras.Model, or a function that takes a mapping of arrays "
        "and returns one"
    )
    raise UsageError(msg, hint=hint)


@contextlib.contextmanager
def live_objects(objects: Mapping[str, Any]) -> Iterator[None]:
    """Let `live_object` find these objects, and leave the process afterwards as it was before.

    What a comparison sets for the whole process, or in a module, is set back: evaluation mode, and whether float32 may
    be computed in less.

    Args:
        objects: The objects, each by the text of the source that stands for it.
    """
    token = _OBJECTS.set(objects)
    path = list(sys.path)
    with contextlib.ExitStack() as stack:
        stack.callback(_OBJECTS.reset, token)
        stack.callback(sys.path.__setitem__, slice(None), path)
        if "torch" in sys.modules:
            from paritygate.models.torch.module import modes_kept, precision_kept

            for model in objects.values():
                if kind_of_live(model) is SourceKind.TORCH:
                    stack.enter_context(modes_kept(model))
            stack.enter_context(precision_kept())
        if "tensorflow" in sys.modules:
            stack.enter_context(_precision_of_tensorflow_kept())
        yield


def live_object(text: str) -> Any:  # noqa: ANN401 - whatever Python code gave
    """Return the object that a source stands for.

    Raises:
        BackendError: This is not the process that was given it.
    """
    found = _OBJECTS.get({})
    if text not in found:
        msg = f"{text!r} is an object of another process"
        raise BackendError(msg, hint="give a path, or module:callable")
    return found[text]


@contextlib.contextmanager
def _precision_of_tensorflow_kept() -> Iterator[None]:
    import tensorflow as tf

    is_allowed = tf.config.experimental.tensor_float_32_execution_enabled()
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(is_allowed)
