"""Parse an ONNX model into a strongly typed network of the library, where the ONNX graph decides precision.

The parser reports all failures at once, which become one table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from paritygate.convert.onnx.operators import OperatorRow, node_name, unsupported_operators
from paritygate.engine.builder_log import BuilderLog, make_logger, said
from paritygate.engine.capabilities import capabilities_of
from paritygate.engine.library import NUMPY_DTYPES, TENSORRT, EngineLibrary
from paritygate.errors import ConversionError, UnsupportedOperatorsError
from paritygate.models.onnx.file import signature_of_onnx
from paritygate.models.onnx.graph import all_nodes
from paritygate.signature import Signature, TensorSpec

if TYPE_CHECKING:
    import onnx

# From this version on, a network is always strongly typed.
_ALWAYS_STRONGLY_TYPED = 11
_TYPED_HINT = "install a later version of the library"
_HINT = "replace the operator by others of ONNX, or serve the model in ONNX"
_INPUT_HINT = "give the model inputs of another dtype, or serve it in ONNX"
_STATIC_HINT = "write calibration: {method: minmax}: engines take ranges that are found ahead of time"
_DYNAMIC_INT8 = frozenset({"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"})
# The number of an input of the model, which belongs to no node.
_NO_NODE = -1
_INPUT = "(input)"
_UNNAMED = "(unnamed)"
_REASONS: Mapping[str, str] = {
    "UNSUPPORTED_NODE": "does not support it",
    "UNSUPPORTED_NODE_ATTR": "does not support it with these attributes",
    "UNSUPPORTED_NODE_INPUT": "does not support it with these inputs",
    "UNSUPPORTED_NODE_DATATYPE": "does not support it for these dtypes",
    "UNSUPPORTED_NODE_DYNAMIC": "does not support it for shapes that are not known ahead",
    "UNSUPPORTED_NODE_SHAPE": "does not support it for these shapes",
    "INVALID_NODE": "takes it for invalid",
}
# The parser names its failed condition, followed by text for people.
_CONDITION = re.compile(r"^Assertion failed: .*?: (?=[A-Z])")
_CONDITION_AND_TEXT = re.compile(r'&& "(?P<text>[^"]+)"')
_PREAMBLE = re.compile(r"^Invalid Node - \S*\s*")
_NO_PLUGIN = "Plugin not found"
# A condition without a message, such as "false".
_WORDLESS = re.compile(r"^[\w:.>()!\-]*$")


class ParsedNetwork(Struct, frozen=True, kw_only=True):
    """A network, and the objects that must live as long, such as the parser, which holds the weights."""

    builder: Any
    network: Any
    parser: Any


@contextmanager
def library_errors(library: EngineLibrary, log: BuilderLog, what: str) -> Iterator[None]:
    """Turn an exception of the library or Polygraphy into a ConversionError with the log's reason.

    `what` is the failed action, such as `build the engine`.
    """
    from polygraphy.exception import PolygraphyException

    try:
        yield
    # The bindings raise TypeError where a constructor returns nothing.
    except (PolygraphyException, RuntimeError, TypeError) as err:
        reason = log.reason() or said(str(err)) or type(err).__name__
        msg = f"{library.title} does not {what}: {reason}"
        raise ConversionError(msg, hint=_hint_for(reason, library.name)) from err


def _hint_for(reason: str, name: str) -> str:
    lowered = reason.lower()
    if "workspace" in lowered:
        return f"raise {name.replace('-', '_')}.workspace_mb in the spec, or leave it out"
    if "memory" in lowered:
        return "free memory of the GPU, or limit workspace_mb in the spec"
    if "profile" in lowered or "dimension" in lowered:
        return "declare in model.dims only sizes that the model takes together"
    return "the log of the job holds all that the library said"


def parse_network(library: EngineLibrary, log: BuilderLog, path: Path, model: onnx.ModelProto) -> ParsedNetwork:
    """Return the network of the ONNX model in `path`, whose external data lies beside it.

    `model` is the same model, without external weights, for names in errors.

    Raises:
        UnsupportedOperatorsError: The library lacks operators or inputs, all of which are in its table.
        ConversionError: It cannot read the model, or has no strongly typed networks.
    """
    trt = library.module
    logger = make_logger(library, log)
    with library_errors(library, log, "start"):
        # Some ONNX operators are plugins of the library.
        trt.init_libnvinfer_plugins(logger, "")
        builder = trt.Builder(logger)
        network = _typed_network(library, builder)
        parser = trt.OnnxParser(network, logger)
        # The file, not its bytes, because external data is beside it.
        is_parsed = parser.parse_from_file(str(path))
    if not is_parsed or parser.num_errors:
        raise parser_error(parser, model, title=library.title, reason=log.reason())
    return ParsedNetwork(builder=builder, network=network, parser=parser)


def _typed_network(library: EngineLibrary, builder: Any) -> Any:  # noqa: ANN401 - of the bindings
    is_always = library.name == TENSORRT and library.major >= _ALWAYS_STRONGLY_TYPED
    has_flag = capabilities_of(library).strongly_typed_flag
    flag = library.module.NetworkDefinitionCreationFlag.STRONGLY_TYPED if has_flag else None
    network = builder.create_network(0 if flag is None else 1 << int(flag))
    if not is_always and (flag is None or not network.get_flag(flag)):
        msg = f"{library.title} has no strongly typed networks, so it would choose the precision of each layer itself"
        raise ConversionError(msg, hint=_TYPED_HINT)
    return network


def signature_of_network(network: Any) -> Signature:  # noqa: ANN401 - an INetworkDefinition
    """Return the inputs and outputs of the network; dims that are open have no name."""
    return Signature(
        inputs=tuple(_spec(network.get_input(index)) for index in range(network.num_inputs)),
        outputs=tuple(_spec(network.get_output(index)) for index in range(network.num_outputs)),
    )


def _spec(tensor: Any) -> TensorSpec:  # noqa: ANN401 - an ITensor
    dtype = NUMPY_DTYPES.get(tensor.dtype.name)
    if dtype is None:
        msg = f"{tensor.name!r} is {tensor.dtype.name} in the network (allowed: {', '.join(NUMPY_DTYPES)})"
        raise ConversionError(msg, hint="give the model inputs and outputs of another dtype")
    try:
        shape = tuple(int(size) if size >= 0 else None for size in tensor.shape)
    except ValueError:
        # The library gives an unknown rank the length -1.
        shape = None
    return TensorSpec(name=tensor.name, dtype=dtype, shape=shape)


def check_inputs_and_outputs(network: Any, model: onnx.ModelProto, *, title: str) -> None:  # noqa: ANN401 - a network
    """Check that the network's inputs and outputs have the ONNX model's dtypes, and that inputs decide no shapes.

    Raises:
        ConversionError: A dtype was changed, as float64 is, or an input's values are a shape.
    """
    wanted, actual = signature_of_onnx(model), signature_of_network(network)
    dtypes = {spec.name: spec.dtype for spec in (*actual.inputs, *actual.outputs)}
    for spec in (*wanted.inputs, *wanted.outputs):
        if dtypes.get(spec.name, spec.dtype) != spec.dtype:
            msg = f"{spec.name!r} is {spec.dtype} in the ONNX model, but {title} makes it {dtypes[spec.name]}"
            hint = f"export the model with {spec.name!r} as {dtypes[spec.name]}, or serve it in ONNX"
            raise ConversionError(msg, hint=hint)
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        if tensor.is_shape_tensor:
            msg = f"the values of input {tensor.name!r} decide a shape, but engines are built for ranges of shapes"
            raise ConversionError(msg, hint="take the shape from that of another input, or serve the model in ONNX")


def parser_error(parser: Any, model: onnx.ModelProto, *, title: str, reason: str) -> ConversionError:  # noqa: ANN401 - a binding
    """Return the error with everything that the failed parser refused; `reason` is the log's, for a silent parser."""
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    rows = list(dict.fromkeys(_row(error, model, title) for error in errors if _is_of_model(error, model)))
    if not rows:
        text = "; ".join(dict.fromkeys(_words(error) for error in errors)) or reason or "it gives no reason"
        msg = f"{title} cannot read the ONNX model: {text}"
        return ConversionError(msg, hint="serve the model in ONNX, or look at it in a viewer")
    nodes = [row for row in rows if row[0] != _INPUT]
    if not nodes:
        msg = f"{title} does not accept these inputs of the model: {'; '.join(f'{row[1]}: {row[2]}' for row in rows)}"
        return UnsupportedOperatorsError(msg, rows=rows, hint=_INPUT_HINT)
    error = unsupported_operators(nodes, target=title)
    return UnsupportedOperatorsError(str(error), rows=rows, hint=error.hint)


def _is_of_model(error: Any, model: onnx.ModelProto) -> bool:  # noqa: ANN401 - a ParserError
    return error.node() != _NO_NODE or _input_of(error, model) is not None


def _input_of(error: Any, model: onnx.ModelProto) -> onnx.ValueInfoProto | None:  # noqa: ANN401 - a ParserError
    # This field has a source file for a node's error, but the input's name for an input's.
    return next((value for value in model.graph.input if value.name == error.file()), None)


def _row(error: Any, model: onnx.ModelProto, title: str) -> OperatorRow:  # noqa: ANN401 - a ParserError
    value = _input_of(error, model) if error.node() == _NO_NODE else None
    if value is not None:
        return (_INPUT, value.name, f"{title} has no dtype {_dtype(value)}", _INPUT_HINT)
    operator = error.node_operator() or _UNNAMED
    hint = _STATIC_HINT if operator in _DYNAMIC_INT8 else _HINT
    return (_with_domain(operator, error, model), _node(error, model), _reason(error, title), hint)


def _dtype(value: onnx.ValueInfoProto) -> str:
    import onnx

    return str(onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)).lower()


def _node(error: Any, model: onnx.ModelProto) -> str:  # noqa: ANN401 - a ParserError
    if error.node_name():
        return str(error.node_name())
    operator, index = error.node_operator(), error.node()
    there = model.graph.node[index] if 0 <= index < len(model.graph.node) else None
    if there is not None and there.op_type == operator:
        return node_name(there)
    # The number may be that of a node inside another node, or of a function.
    those = [node for node in all_nodes(model) if node.op_type == operator]
    return node_name(those[0]) if len(those) == 1 else _UNNAMED


def _with_domain(operator: str, error: Any, model: onnx.ModelProto) -> str:  # noqa: ANN401 - a ParserError
    those = [node for node in all_nodes(model) if node.op_type == operator]
    named = [node for node in those if node.name == error.node_name()]
    domains = {node.domain for node in named or those} - {"", "ai.onnx"}
    return f"{domains.pop()}::{operator}" if len(domains) == 1 else operator


def _reason(error: Any, title: str) -> str:  # noqa: ANN401 - a ParserError
    words = _words(error)
    if _NO_PLUGIN in words:
        return f"{title} has no such operator"
    if words:
        return words
    code = error.code().name
    return f"{title} {_REASONS.get(code, f'fails on it: {code}')}"


def _words(error: Any) -> str:  # noqa: ANN401 - a ParserError
    """Return the parser's message for people; empty if it is only an internal condition."""
    text = _PREAMBLE.sub("", error.desc().strip())
    quoted = _CONDITION_AND_TEXT.search(text)
    text = quoted["text"] if quoted else said(_CONDITION.sub("", text))
    return "" if _WORDLESS.match(text) else text
