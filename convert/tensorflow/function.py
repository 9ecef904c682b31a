"""Convert a TensorFlow function, of a SavedModel or Keras model, to ONNX with tf2onnx.

tf2onnx returns a model and no error after it failed to convert an operator. It reorders inputs, mistakes constants for
inputs, and generates names for open dims. This module corrects all of that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.backends import backend_state, require_backend, version_of
from paritygate.convert.conversion import Conversion
from paritygate.convert.error_origin import causes, users_line
from paritygate.convert.onnx.operators import unknown_operators, unsupported_operators
from paritygate.convert.onnx.rewrite import apply_signature, lower_ir_version, save_onnx
from paritygate.convert.tensorflow.deterministic_order import deterministic_order
from paritygate.convert.tensorflow.operators import HANDLERS
from paritygate.convert.tensorflow.tables import handlers, take_tables
from paritygate.errors import ConversionError
from paritygate.models.onnx.file import opset_of, signature_of_onnx
from paritygate.models.tensorflow.importing import import_tensorflow
from paritygate.signature import Signature

if TYPE_CHECKING:
    import onnx

_MAIN = "model.onnx"
_OPSET = 18
_HINT = "write it with operators that ONNX has, or serve the model as a SavedModel"


def tensor_spec(shape: tuple[int | str | None, ...] | None, dtype: str, name: str) -> Any:  # noqa: ANN401 - a tf.TensorSpec
    """Return TensorFlow's spec of a tensor; symbolic dims are open ones."""
    import tensorflow as tf

    sizes = None if shape is None else [dim if isinstance(dim, int) else None for dim in shape]
    return tf.TensorSpec(sizes, tf.dtypes.as_dtype(dtype), name=name)


def function_to_onnx(
    function: Callable[..., tuple[Any, ...]],
    *,
    signature: Signature,
    folder: Path,
    opset: int | None,
    notes: Callable[[], tuple[str, ...]] = tuple,
) -> Conversion:
    """Write a function of TensorFlow tensors as `model.onnx` into the folder, in opset 18 or another one.

    It takes one tensor per input and returns a tuple with one per output, in the order of the signature, whose names
    TensorFlow need not allow. Its variables become weights. `notes` is called after tracing.

    Raises:
        ConversionError: It cannot be converted; UnsupportedOperatorsError if operators are the cause.
    """
    require_backend("tf2onnx")
    model, failures = _traced_and_converted(function, signature, opset or _OPSET)
    _check_operators(model, failures)
    if opset is not None and opset_of(model) != opset:
        msg = f"opset {opset} was requested, but tf2onnx wrote opset {opset_of(model)}"
        raise ConversionError(msg, hint=f"set opset {opset_of(model)}, or leave it out")
    served = {f"output_{index}": spec.name for index, spec in enumerate(signature.outputs)}
    served |= {f"input_{index}": spec.name for index, spec in enumerate(signature.inputs)}
    _check_that_all_are_fed(model, served)
    apply_signature(model, signature, served)
    ir_note = lower_ir_version(model)
    save_onnx(model, folder / _MAIN)
    return Conversion(
        main=_MAIN,
        signature=signature_of_onnx(model),
        notes=(*notes(), *([ir_note] if ir_note else [])),
        facts={
            "opset": opset_of(model),
            "ir_version": model.ir_version,
            "tensorflow": backend_state("tensorflow").version,
            "tf2onnx": version_of("tf2onnx"),
        },
    )


def _traced_and_converted(
    function: Callable[..., tuple[Any, ...]], signature: Signature, opset: int
) -> tuple[onnx.ModelProto, Mapping[str, str]]:
    tf = import_tensorflow()

    # Own names, because TensorFlow does not allow all, and a tensor may be an input and two outputs at once.
    specs = [tensor_spec(spec.shape, spec.dtype, f"input_{index}") for index, spec in enumerate(signature.inputs)]

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def traced(*tensors: Any) -> dict[str, Any]:  # noqa: ANN401 - tensors
        return {f"output_{index}": tf.identity(tensor) for index, tensor in enumerate(function(*tensors))}

    with explained_tracing(), _failures() as failures, tf.device("/cpu:0"):
        model = _converted(traced.get_concrete_function(*specs), specs, opset)
    return model, failures


def _converted(concrete: Any, specs: list[Any], opset: int) -> onnx.ModelProto:  # noqa: ANN401 - TensorFlow has no types
    """Do the work of tf2onnx.convert.from_function, which mistakes every captured constant for an input."""
    import tensorflow as tf
    from tf2onnx import optimizer, tf_loader, tfonnx

    # Captured tensors come after the arguments.
    inputs = {tensor.name: spec.name for tensor, spec in zip(concrete.inputs[: len(specs)], specs, strict=True)}
    outputs = {tensor.name: name for name, tensor in concrete.structured_outputs.items()}
    frozen = tf_loader.from_function(concrete, list(inputs), list(outputs))
    tables = take_tables(concrete, frozen)
    with tf.Graph().as_default() as graph, deterministic_order():
        tf.import_graph_def(frozen, name="")
        converted = tfonnx.process_tf_graph(
            graph,
            continue_on_error=True,
            opset=opset,
            custom_op_handlers={**HANDLERS, **handlers(tables)},
            input_names=list(inputs),
            output_names=list(outputs),
            tensors_to_rename={**inputs, **outputs},
        )
        model: onnx.ModelProto = optimizer.optimize_graph(converted, catch_errors=True).make_model("TensorFlow")
    return model


def _check_operators(model: onnx.ModelProto, failures: Mapping[str, str]) -> None:
    rows = unknown_operators(model, reason_of=lambda node: failures.get(node.name), hint=_HINT)
    if any(node in failures for _, node, _, _ in rows):
        # ONNX may have an operator that tf2onnx fails at.
        raise unsupported_operators(rows, target="tf2onnx", lack="cannot convert")
    if rows:
        raise unsupported_operators(rows, target="ONNX")


def _check_that_all_are_fed(model: onnx.ModelProto, served: Mapping[str, str]) -> None:
    unfed = [value.name for value in model.graph.input if value.name not in served]
    if unfed:
        msg = f"tf2onnx made {unfed[0]!r}, a value inside the model, an input of the file"
        raise ConversionError(msg, hint="compute it in the model from its inputs and weights, or serve a SavedModel")


@contextmanager
def explained_tracing() -> Iterator[None]:
    """Turn a branch on the values of a tensor, which fails in tracing, into a ConversionError with a remedy."""
    try:
        yield
    except Exception as err:
        kinds = {type(cause).__name__: cause for cause in causes(err)}
        if "OperatorNotAllowedInGraphError" not in kinds:
            raise
        place = users_line(kinds["OperatorNotAllowedInGraphError"])
        msg = f"the model branches on the values of a tensor{place}, which a graph cannot do"
        raise ConversionError(msg, hint="compute both and choose with keras.ops.where, or use keras.ops.cond") from err


class _FailureLog(logging.Handler):
    """Keeps why tf2onnx could not convert a node, by the node's name, because it only logs that."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.reasons: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        lines = record.getMessage().split("\n")
        parts = lines[0].split("'")
        if lines[0].startswith("Failed to convert node") and len(parts) > 1:
            error = record.exc_info[1] if record.exc_info else None
            self.reasons[parts[1]] = f"tf2onnx could not convert it: {_said(error)}"


def _said(error: BaseException | None) -> str:
    """Return the reason in one line, with the class of an error that nobody raised on purpose."""
    words = next(iter(str(error or "").splitlines()), "") or "no reason given"
    return words if error is None or isinstance(error, ValueError) else f"{type(error).__name__}: {words}"


@contextmanager
def _failures() -> Iterator[Mapping[str, str]]:
    handler = _FailureLog()
    logger = logging.getLogger("tf2onnx")
    logger.addHandler(handler)
    try:
        yield handler.reasons
    finally:
        logger.removeHandler(handler)
