"""Convert a TensorFlow SavedModel to TFLite with TensorFlow's converter: FP32, FP16 weights, or integers.

It writes only TFLite's own operators. With TensorFlow's kernels ("select TF ops"), LiteRT could not run the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from paritygate.backends import backend_state
from paritygate.convert.contract import our_file
from paritygate.convert.conversion import Calibration, Conversion, ConversionJob
from paritygate.convert.error_origin import one_line
from paritygate.convert.onnx.operators import OperatorRow, unsupported_operators
from paritygate.errors import ConversionError, UsageError
from paritygate.models.tensorflow.importing import import_tensorflow
from paritygate.models.tensorflow.savedmodel import SERVING_SIGNATURE, signature_of_savedmodel
from paritygate.models.tensorflow.tflite_file import TfliteModel, open_tflite
from paritygate.models.tensorflow.tflite_graph import cut_off_weights, float_operators, operators, precision_of_tflite
from paritygate.precision import Precision

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAIN = "model.tflite"
_HINT = "write the model with operators that TFLite has, or serve it as a SavedModel"
# By the prefix of the operator's name.
_HINTS = {
    # TFLite needs the size of every state that a loop, such as a recurrent layer's, collects.
    "TensorList": "give recurrent layers unroll=True, or the model a fixed batch size, or serve it as a SavedModel",
    # TFLite does not insert an axis by slicing where the sizes are open.
    "StridedSlice": "write x[..., None] as tf.expand_dims(x, -1), or serve the model as a SavedModel",
}
_CALIBRATION_HINT = "give calibration.source in the spec, or leave it to hold rows of samples out"
# The converter's own method, whatever the calibration has for other tools.
_CALIBRATED = {"tool": "tensorflow", "method": "minmax", "activations": "int8"}

Batch = Mapping[str, "NDArray[np.generic]"]


def convert(job: ConversionJob) -> Conversion:
    """Write the signature serving_default as `model.tflite`, with the names and open dims of the SavedModel.

    FP16 stores the weights in float16, which LiteRT's CPU kernels widen again. INT8 quantizes weights and activations
    by the calibration, with inputs and outputs in float32. Operators that TFLite has only in floats stay so, as a note
    reports.

    Raises:
        UsageError: The job renames tensors, or has no calibration for INT8.
    """
    if any(source != served for source, served in job.rename.items()):
        msg = "rename does not apply to TFLite, which keeps the names of the SavedModel"
        raise UsageError(msg, hint="leave out rename, or save the model again with the names to be served")
    path = job.folder / _MAIN
    path.write_bytes(_converted(_converter(job)))
    with our_file():
        written = open_tflite(path)
    notes = tuple(_precision_notes(written, job.precision))
    return Conversion(main=_MAIN, signature=written.signature, notes=notes, facts=_facts(written, job))


def _converter(job: ConversionJob) -> Any:  # noqa: ANN401 - TensorFlow ships no types
    names = [spec.name for spec in signature_of_savedmodel(job.source.path).inputs]
    tf = import_tensorflow()
    converter = tf.lite.TFLiteConverter.from_saved_model(str(job.source.path), signature_keys=[SERVING_SIGNATURE])
    if job.precision is not Precision.FP32:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if job.precision is Precision.FP16:
        converter.target_spec.supported_types = [tf.float16]
    if job.precision is Precision.INT8:
        calibration = _checked(job.calibration, names)
        converter.representative_dataset = lambda: (
            (_EachTime(SERVING_SIGNATURE), {name: batch[name] for name in names}) for batch in calibration.read()
        )
    return converter


def _facts(written: TfliteModel, job: ConversionJob) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "tensorflow": backend_state("tensorflow").version,
        "operators": dict(sorted(operators(written.graph).items())),
    }
    if job.precision is Precision.INT8 and job.calibration is not None:
        facts["float_operators"] = dict(sorted(float_operators(written.graph).items()))
        facts["calibration"] = {**job.calibration.facts, **_CALIBRATED}
    return facts


def _converted(converter: Any) -> bytes:  # noqa: ANN401 - TensorFlow ships no types
    try:
        return bytes(converter.convert())
    except Exception as err:
        rows = _operator_rows(getattr(err, "errors", ()))
        if rows:
            raise unsupported_operators(rows, target="TFLite") from err
        msg = f"TensorFlow's converter to TFLite failed: {one_line(err)}"
        raise ConversionError(msg, hint="the log holds the whole trace; or serve it as a SavedModel") from err


def _operator_rows(errors: Any) -> list[OperatorRow]:  # noqa: ANN401 - protocol buffers of the converter's
    reasons: dict[tuple[str, str], str] = {}
    for error in errors:
        operator = error.operator.name.removeprefix("tf.")
        # An error without a place sums up the others.
        if operator and error.location.call:
            node = error.location.call[0].name.partition("@")[0]
            reason = _reason(error.error_message)
            # Several may be about one node, and this one is the least specific.
            if (operator, node) not in reasons or reasons[operator, node].startswith("failed to legalize"):
                reasons[operator, node] = reason
    return [(operator, node, reason, _hint(operator)) for (operator, node), reason in sorted(reasons.items())]


def _hint(operator: str) -> str:
    return next((hint for start, hint in _HINTS.items() if operator.startswith(start)), _HINT)


def _reason(message: str) -> str:
    if "is neither a custom op nor a flex op" not in message:
        return re.sub(r"^'tf\.\w+' op ", "", message.strip().splitlines()[0])
    # The converter shows the node with the types of its inputs and outputs, which may be the reason.
    types = re.search(r" : (\(.*)$", message, flags=re.MULTILINE)
    return "TFLite has no operator for it" + (f" on {types[1]}" if types else "")


class _EachTime(str):
    """The name of a signature that equals that name, but no other object of this class.

    For a known name, the calibrator sets the inputs to the next batch's shapes one after the other, and runs the graph
    in between, where shapes may not fit. For a new name, it sets them all at once, and keeps the ranges so far.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, _EachTime) else str.__eq__(self, other)


def _checked(calibration: Calibration | None, names: list[str]) -> Calibration:
    if calibration is None:
        raise UsageError("tflite-int8 needs real inputs for calibration (got none)", hint=_CALIBRATION_HINT)
    is_empty = True
    for batch in calibration.read():
        is_empty = False
        _check_batch(batch, names)
    if is_empty:
        # The converter would generate ranges.
        msg = "tflite-int8 needs real inputs for calibration, but the calibration holds none"
        raise UsageError(msg, hint=_CALIBRATION_HINT)
    return calibration


def _check_batch(batch: Batch, names: list[str]) -> None:
    import numpy as np

    for name in names:
        if name not in batch:
            msg = f"the calibration inputs have no {name!r} (they have: {', '.join(batch)})"
            raise UsageError(msg, hint="give every input of the model in the calibration samples")
        if batch[name].dtype.kind == "f" and not np.isfinite(batch[name]).all():
            # It crashes on infinity, and ignores NaN.
            msg = f"TensorFlow's calibrator accepts only finite inputs, but {name!r} holds NaN or infinity"
            raise ConversionError(msg, hint="calibrate with finite inputs, or leave tflite-int8 out of targets")


def _precision_notes(written: TfliteModel, precision: Precision) -> Iterator[str]:
    """Yield notes on weights outside the requested precision; raise ConversionError if none is in it."""
    actual = precision_of_tflite(written.graph)
    if precision is Precision.FP32:
        return
    if actual is Precision.FP32:
        msg = f"{precision} was requested, but all weights written are float32"
        raise ConversionError(msg, hint="serve the model in fp32, because no part of it can be lowered")
    if actual is not precision:
        seen = f"the weights are {actual}" if actual else "there are no weights to tell"
        yield f"{precision} was asked for, and {seen}"
    if cut_off := cut_off_weights(written.graph):
        yield f"constants beyond its range were changed: values at the limit of float16, 65504: {cut_off}"
    in_floats, total = float_operators(written.graph), operators(written.graph)
    if precision is Precision.INT8 and in_floats:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(in_floats.items()))
        yield f"{in_floats.total()} of {total.total()} operators still compute in float32: {listed}"
