"""Compile an OpenVINO model with the settings file beside it, and read back how the compiled model computes.

The precision that an OpenVINO model computes in is a hint at compile time, not a part of its files. Without a hint
OpenVINO chooses bf16 on a CPU that has it, so a model in FP32 would be tested and served in BF16. So the hint is in
`model.config.json` beside `model.xml`, as `benchmark_app -load_config` takes it. It holds properties by device, such as
`{"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}`. Without the file a model is compiled for f32.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from paritygate.errors import BackendError, InputFileError, NotRunHereError
from paritygate.files import parse_json
from paritygate.machine import threads_allowed
from paritygate.models.openvino.model import import_openvino, openvino_reason, openvino_version, settings_file
from paritygate.precision import Precision

DEVICE = "CPU"
PRECISION_HINT = "INFERENCE_PRECISION_HINT"
DEFAULT_HINT = "f32"
_MODE = "EXECUTION_MODE_HINT"
_HINT_OF_PRECISION = {
    Precision.FP32: "f32",
    # The operators of a quantized model that are not in integers compute in f32.
    Precision.INT8: "f32",
    Precision.BF16: "bf16",
    Precision.FP16: "f16",
}
_FILE_HINT = f'write {{"{DEVICE}": {{"{PRECISION_HINT}": "{DEFAULT_HINT}"}}}} into it, or remove it'
# Properties that decide the outputs or the speed. A served file may not name folders to write to or libraries to
# load.
_ALLOWED = (
    PRECISION_HINT,
    _MODE,
    "PERFORMANCE_HINT",
    "NUM_STREAMS",
    "INFERENCE_NUM_THREADS",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE",
)
# OpenVINO's names for the precisions of a device, by the hint.
_CAPABILITY_OF_HINT = {"f32": "FP32", "bf16": "BF16", "f16": "FP16"}
# These move or hold values and compute nothing.
_NOT_COMPUTING = frozenset({"Broadcast", "Concat", "Const", "Input", "Output", "Reorder", "Reshape", "Transpose"})
# Other types are indices and shapes. Outside of these operators 8-bit integers are truth values.
_FLOATS = frozenset({"bf16", "f16", "f32"})
_QUANTIZED = frozenset({"i8", "u8"})
_OPERATORS_ON_QUANTIZED = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNCell", "RNNSeq"})
# Their inner operators are not shown.
_WITH_BODIES = frozenset({"If", "TensorIterator"})


def write_settings(path: Path, precision: Precision) -> None:
    """Write the settings file of the model in `path`, for computing in the precision."""
    content = {DEVICE: {PRECISION_HINT: _HINT_OF_PRECISION[precision]}}
    settings_file(path).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_settings(path: Path) -> Mapping[str, Any] | None:
    """Return the properties to compile the model in `path` with on the CPU; None without a settings file.

    Raises:
        InputFileError: The file is not of the form above, or has a property that is not allowed.
    """
    file = settings_file(path)
    if not file.is_file():
        return None
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except ValueError as err:
        raise InputFileError(f"{file} is not JSON: {err}", hint=_FILE_HINT) from err
    properties = content.get(DEVICE) if isinstance(content, dict) else None
    if not isinstance(properties, dict) or not all(isinstance(value, str | int) for value in properties.values()):
        msg = f"{file} does not hold properties of the device {DEVICE}, each a text or a number"
        raise InputFileError(msg, hint=_FILE_HINT)
    for name in properties:
        if name not in _ALLOWED:
            msg = f"{file} sets the property {name!r} (allowed: {', '.join(_ALLOWED)})"
            raise InputFileError(msg, hint=f"remove {name} from the file")
    return {PRECISION_HINT: DEFAULT_HINT, **properties}


class CompiledOpenvino(Struct, frozen=True, kw_only=True):
    """A compiled model, and the settings read back from it."""

    model: Any  # an openvino.CompiledModel
    hint: str  # the precision where an operator supports it: f32, bf16 or f16
    mode: str  # performance or accuracy
    operators: Mapping[str, int] = field(default_factory=dict)  # number by precision, under OpenVINO's names
    has_bodies: bool = False  # an If or Loop, whose operators are not counted

    def describe_operators(self) -> str:
        """Return the number of operators by precision, such as `40 in bf16, 2 in f32`."""
        counted = ", ".join(f"{count} in {name}" for name, count in self.operators.items()) or "none"
        return f"{counted}, those inside If and Loop not counted" if self.has_bodies else counted


def is_capable(hint: str) -> bool:
    """Return whether OpenVINO reports that this CPU computes in the precision of a hint."""
    capabilities = import_openvino().Core().get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
    return _CAPABILITY_OF_HINT.get(hint, hint) in capabilities


def compile_openvino(model: Any, settings: Mapping[str, Any] | None) -> CompiledOpenvino:  # noqa: ANN401 - a Model
    """Return the model compiled for the CPU, for f32 without another hint. No cache is written.

    Raises:
        NotRunHereError: The CPU does not compute in that precision.
        BackendError: OpenVINO refuses the model or the properties.
    """
    core = import_openvino().Core()
    threads = threads_allowed()
    limit = {} if threads is None else {"INFERENCE_NUM_THREADS": threads}
    properties = {PRECISION_HINT: DEFAULT_HINT, **limit, **(settings or {})}
    hint = str(properties[PRECISION_HINT])
    if hint in _CAPABILITY_OF_HINT and not is_capable(hint):
        has = ", ".join(sorted(core.get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")))
        name = core.get_property(DEVICE, "FULL_DEVICE_NAME")
        msg = f"the settings request {hint}, in which this CPU ({name}) cannot compute (it has: {has})"
        raise NotRunHereError(msg, hint=f"run it on a CPU that has {hint}, or convert the model to openvino-fp32")
    try:
        compiled = core.compile_model(model, DEVICE, properties)
        compiled_hint = compiled.get_property(PRECISION_HINT).get_type_name()
        mode = str(compiled.get_property(_MODE)).rpartition(".")[2].lower()
        kinds = [_kind_and_precision(node) for node in compiled.get_runtime_model().get_ordered_ops()]
    except Exception as err:
        msg = f"OpenVINO {openvino_version()} does not compile the model: {openvino_reason(err)}"
        raise BackendError(msg, hint="correct the settings file beside the model, or serve the model in ONNX") from err
    if compiled_hint != hint:
        msg = f"the model was compiled for {hint}, but OpenVINO runs it in {compiled_hint}"
        raise BackendError(
            msg, hint=f"set {PRECISION_HINT} to {compiled_hint} in the settings file, or run it on another CPU"
        )
    counted = Counter(precision for kind, precision in kinds if _is_counted(kind, precision))
    return CompiledOpenvino(
        model=compiled,
        hint=compiled_hint,
        mode=mode,
        operators=dict(sorted(counted.items())),
        has_bodies=any(kind in _WITH_BODIES for kind, _ in kinds),
    )


def _kind_and_precision(node: Any) -> tuple[str, str]:  # noqa: ANN401 - a node of a runtime model
    info = node.get_rt_info()
    return _text(info["layerType"]), _text(info["runtimePrecision"])


def _is_counted(kind: str, precision: str) -> bool:
    if kind in _OPERATORS_ON_QUANTIZED and precision in _QUANTIZED:
        return True
    return precision in _FLOATS and kind not in _NOT_COMPUTING | _WITH_BODIES


def _text(value: Any) -> str:  # noqa: ANN401 - an openvino.OVAny, or a text
    return str(getattr(value, "value", value))
