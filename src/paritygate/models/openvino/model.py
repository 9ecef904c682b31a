"""Read an OpenVINO model: its files, its signature, and the precision of its weights.

The graph is an `.xml` file, with the weights in a `.bin` file and the settings to compile with in a file of the same
stem.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from paritygate.backends import require_backend
from paritygate.errors import BackendError, InputFileError
from paritygate.models.weights import WeightTally
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec, name_unknown_dims

_DTYPES = {
    "boolean": "bool",
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
}
# Weights of fewer bits than a float: int8 of a quantized model, int4 and int8 of one with compressed weights.
_INTEGER_WEIGHTS = frozenset({"i4", "i8", "u4", "u8"})
_QUANTIZATION_OPERATORS = frozenset({"FakeQuantize", "FakeConvert"})
# Smaller tensors of integers are constants of the arithmetic, not weights.
_WEIGHT_ELEMENTS = 16
# Places in OpenVINO's own code, which its messages name.
_WHERE = re.compile(
    r"Exception from src/\S+|Check '.*?' failed at \S+|While validating (?:ONNX )?node '.*?':"
    r"|FrontEnd API failed with \w+:|Model wasn't fully converted\.|Summary:"
)
_LONGEST = 300


def import_openvino() -> Any:  # noqa: ANN401 - the module, whose types are not complete
    """Return the module `openvino`, which then does not report its use over the network."""
    require_backend("openvino")
    # Importing it sends an event through this package if it exists. No variable and no argument switches it off.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None is how a module is barred
    import openvino

    return openvino


def openvino_version() -> str:
    """Return the version of OpenVINO without the build, such as `2026.4.1`."""
    return str(import_openvino().__version__).partition("-")[0]


def element_type(dtype: str) -> Any:  # noqa: ANN401 - an openvino.Type
    """Return OpenVINO's type for a NumPy name, as signatures have it."""
    return getattr(import_openvino().Type, next(name for name, dtype_name in _DTYPES.items() if dtype_name == dtype))


def partial_shape(shape: tuple[int | str | None, ...] | None) -> Any:  # noqa: ANN401 - an openvino.PartialShape
    """Return OpenVINO's form of a shape, in which symbolic dims are open."""
    openvino = import_openvino()
    if shape is None:
        return openvino.PartialShape.dynamic()
    return openvino.PartialShape([dim if isinstance(dim, int) else -1 for dim in shape])


def openvino_files(path: Path) -> dict[str, Path]:
    """Return the existing files of the model in `path`, by `model`, `weights` and `settings`."""
    files = {"model": path, "weights": _weights_file(path), "settings": settings_file(path)}
    return {name: file for name, file in files.items() if file.is_file()}


def settings_file(path: Path) -> Path:
    """Return the file with the settings that the model in `path` is compiled with; it need not exist."""
    return path.with_suffix(".config.json")


def _weights_file(path: Path) -> Path:
    return path.with_suffix(".bin")


def read_openvino(path: Path) -> Any:  # noqa: ANN401 - an openvino.Model
    """Return the model in `path`, with its weights.

    Raises:
        InputFileError: The file is missing or no OpenVINO model, or its weights are missing or cut off.
    """
    import_openvino()
    from openvino.frontend import FrontEndManager

    if not path.is_file():
        raise InputFileError(f"model {path} does not exist", hint="give the path of an .xml file that OpenVINO saved")
    try:
        # Core.read_model would offer any other file to the readers of every other format.
        reader = FrontEndManager().load_by_framework("ir")
        model = reader.convert(reader.load(str(path)))
    except Exception as err:
        weights = _weights_file(path)
        beside = f"the weights beside it are {weights.name}"
        size = f", {weights.stat().st_size} bytes" if weights.is_file() else ", which is missing"
        msg = f"{path} is not an OpenVINO model: {openvino_reason(err)} ({beside}{size})"
        raise InputFileError(msg, hint="copy the .xml and the .bin file together, or save the model again") from err
    if not model.outputs:
        msg = f"{path} is not an OpenVINO model: no outputs"
        raise InputFileError(msg, hint="give an .xml file that openvino.save_model wrote")
    return model


def openvino_reason(err: BaseException | str) -> str:
    """Return the reason in OpenVINO's exception or output, on one line of at most 300 characters."""
    text = " ".join(_WHERE.sub("", str(err)).split()) or " ".join(str(err).split()) or type(err).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def served_name(port: Any, preferred: Collection[str] = ()) -> str:  # noqa: ANN401 - an openvino.Output
    """Return one of the names of an input or output: a preferred one, that of its node, or the alphabetically first.

    A port without names is called by its node, as in OpenVINO's own tools.
    """
    names, node = sorted(port.get_names()), port.get_node()
    if names:
        liked = [name for name in names if name in preferred] + [name for name in names if name == node.friendly_name]
        return str((liked or names)[0])
    if node.get_type_name() != "Result":
        return str(node.get_friendly_name())
    source = node.input_value(0)
    name = str(source.get_node().get_friendly_name())
    return f"{name}.{source.get_index()}" if source.get_node().get_output_size() > 1 else name


def signature_of_openvino(model: Any, preferred: Collection[str] = ()) -> Signature:  # noqa: ANN401 - an openvino.Model
    """Return the signature of the model, its inputs and outputs in their order.

    Open dims and dims with bounds get the names of `name_unknown_dims`, because OpenVINO has none. `preferred` names
    win where a port has several.

    Raises:
        BackendError: An input or output is of an unsupported type, such as strings.
    """
    return name_unknown_dims(
        [_spec(port, preferred) for port in model.inputs], [_spec(port, preferred) for port in model.outputs]
    )


def _spec(port: Any, preferred: Collection[str]) -> TensorSpec:  # noqa: ANN401 - an openvino.Output
    name = served_name(port, preferred)
    element = port.get_element_type().get_type_name()
    if element not in _DTYPES:
        msg = f"{name!r} has OpenVINO's type {element}, which is not supported (allowed: {', '.join(_DTYPES)})"
        raise BackendError(msg, hint="export the model with inputs and outputs of one of these types")
    shape = port.get_partial_shape()
    dims = None
    if not shape.rank.is_dynamic:
        dims = tuple(None if dim.is_dynamic else int(dim.get_length()) for dim in shape)
    return TensorSpec(name=name, dtype=_DTYPES[element], shape=dims)


def precision_of_openvino(model: Any) -> Precision | None:  # noqa: ANN401 - an openvino.Model
    """Return the precision that the weights of the model really have, whatever they are declared as.

    `int8` means quantized, or compressed to integers. Reads all weights, also in bodies of If and Loop. None where no
    weights show it.
    """
    tally = WeightTally()
    for node in nodes_of_openvino(model):
        kind = node.get_type_name()
        if kind in _QUANTIZATION_OPERATORS:
            return Precision.INT8
        if kind != "Constant":
            continue
        element, elements = node.get_element_type().get_type_name(), math.prod(node.get_output_shape(0))
        if element in _INTEGER_WEIGHTS and elements >= _WEIGHT_ELEMENTS and _is_converted(node):
            return Precision.INT8
        if element == "f32":
            tally.add(node.get_data())
        else:
            tally.add_stored(_DTYPES.get(element, element), elements)
    return tally.precision()


def _is_converted(constant: Any) -> bool:  # noqa: ANN401 - an openvino.Node
    """Return whether a constant of integers becomes floats before it is used."""
    users = [user.get_node() for user in constant.output(0).get_target_inputs()]
    return any(user.get_type_name() == "Convert" and user.get_element_type().is_real() for user in users)


def nodes_of_openvino(model: Any) -> Iterator[Any]:  # noqa: ANN401 - an openvino.Model
    """Yield the nodes of a model, also in the bodies of If and Loop."""
    for node in model.get_ops():
        yield node
        for body in _bodies(node):
            yield from nodes_of_openvino(body)


def _bodies(node: Any) -> Iterator[Any]:  # noqa: ANN401 - an openvino.Node
    kind = node.get_type_name()
    if kind == "If":
        yield from (node.get_then_body(), node.get_else_body())
    elif kind in {"Loop", "TensorIterator"}:
        yield node.get_function()
