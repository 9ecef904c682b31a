"""What the library's ONNX parser does not take, as one table: it reports every failure at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from paritygate.convert.onnx.operators import OperatorRow, node_name, unsupported_operators
from paritygate.engine.builder_log import said
from paritygate.errors import ConversionError, UnsupportedOperatorsError
from paritygate.models.onnx.graph import graphs_in

if TYPE_CHECKING:
    import onnx

__all__ = ["parser_error"]

_HINT = "replace the operator by others of ONNX, or serve the model in ONNX"
_INPUT_HINT = "give the model inputs of another dtype, or serve it in ONNX"
_STATIC_HINT = "write calibration: {method: minmax}: engines take ranges that are found ahead of time"
_DYNAMIC_INT8 = frozenset({"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"})
# An input of the model: it belongs to no node.
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
# The parser says which of its own conditions did not hold; what follows the condition is meant for people.
_CONDITION = re.compile(r"^Assertion failed: .*?: (?=[A-Z])")
_CONDITION_AND_TEXT = re.compile(r'&& "(?P<text>[^"]+)"')
_PREAMBLE = re.compile(r"^Invalid Node - \S*\s*")
_NO_PLUGIN = "Plugin not found"
# A condition without words, such as "false".
_WORDLESS = re.compile(r"^[\w:.>()!\-]*$")


def parser_error(parser: Any, model: onnx.ModelProto, *, title: str, reason: str) -> ConversionError:  # noqa: ANN401 - a binding
    """Return the error that carries everything the parser did not take.

    Args:
        parser: The library's OnnxParser, after it has failed.
        model: What it was given, for the names of what has none in its words.
        title: The library.
        reason: What its log says: for where the parser itself says nothing.
    """
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    rows = list(dict.fromkeys(_row(error, model, title) for error in errors if _is_of_model(error, model)))
    if not rows:
        text = "; ".join(dict.fromkeys(_words(error) for error in errors)) or reason or "it gives no reason"
        msg = f"{title} does not read the ONNX model: {text}"
        return ConversionError(msg, hint="serve the model in ONNX, or look at it in a viewer")
    nodes = [row for row in rows if row[0] != _INPUT]
    if not nodes:
        msg = f"{title} does not take these inputs of the model: {'; '.join(f'{row[1]}: {row[2]}' for row in rows)}"
        return UnsupportedOperatorsError(msg, rows=rows, hint=_INPUT_HINT)
    error = unsupported_operators(nodes, target=title)
    return UnsupportedOperatorsError(str(error), rows=rows, hint=error.hint)


def _is_of_model(error: Any, model: onnx.ModelProto) -> bool:  # noqa: ANN401 - a ParserError
    return error.node() != _NO_NODE or _input_of(error, model) is not None


def _input_of(error: Any, model: onnx.ModelProto) -> onnx.ValueInfoProto | None:  # noqa: ANN401 - a ParserError
    # Where an error of a node has a file of the parser's sources, one of an input has the input's name.
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
    # The number may be that of a node inside of another, or of a function.
    those = [node for node in _nodes(model) if node.op_type == operator]
    return node_name(those[0]) if len(those) == 1 else _UNNAMED


def _with_domain(operator: str, error: Any, model: onnx.ModelProto) -> str:  # noqa: ANN401 - a ParserError
    those = [node for node in _nodes(model) if node.op_type == operator]
    named = [node for node in those if node.name == error.node_name()]
    domains = {node.domain for node in named or those} - {"", "ai.onnx"}
    return f"{domains.pop()}::{operator}" if len(domains) == 1 else operator


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for graph in graphs_in(model.graph):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def _reason(error: Any, title: str) -> str:  # noqa: ANN401 - a ParserError
    words = _words(error)
    if _NO_PLUGIN in words:
        return f"{title} has no such operator"
    if words:
        return words
    code = error.code().name
    return f"{title} {_REASONS.get(code, f'fails on it: {code}')}"


def _words(error: Any) -> str:  # noqa: ANN401 - a ParserError
    """Return what the parser says for people; empty where it only shows a condition of its own."""
    text = _PREAMBLE.sub("", error.desc().strip())
    quoted = _CONDITION_AND_TEXT.search(text)
    text = quoted["text"] if quoted else said(_CONDITION.sub("", text))
    return "" if _WORDLESS.match(text) else text
