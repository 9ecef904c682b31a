"""Write TensorFlow's look-up tables, such as those of StringLookup and IntegerLookup, with ONNX's LabelEncoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Table = tuple[NDArray[np.generic], NDArray[np.generic]]

_LOOKUP, _TABLE = "LookupTableFindV2", "MutableHashTableV2"
# LabelEncoder's names of dtypes; NumPy has texts as objects or with a length. int32, which it lacks, is cast.
_KINDS = {"object": "string", "int64": "int64", "int32": "int64", "float32": "float"}


def take_tables(concrete: Any, graph: Any) -> Mapping[str, Table]:  # noqa: ANN401 - TensorFlow has no types
    """Return keys and values of the tables that a graph uses, by the node that represents the table.

    That node, a placeholder in the frozen graph, becomes one of a table, which shows TensorFlow the shapes of results.
    The function `concrete`, from which the graph was frozen, still has the tables.
    """
    import tensorflow as tf

    captured = concrete.captured_inputs
    # Captured tensors come after the arguments.
    handles = {
        tensor.op.name: handle
        for tensor, handle in zip(concrete.inputs[len(concrete.inputs) - len(captured) :], captured, strict=True)
    }
    types = {node.input[0]: node.attr for node in graph.node if node.op == _LOOKUP and node.input[0] in handles}
    tables: dict[str, Table] = {}
    for node in graph.node:
        if node.name not in types:
            continue
        key, value = types[node.name]["Tin"].type, types[node.name]["Tout"].type
        exported = tf.raw_ops.LookupTableExportV2(table_handle=handles[node.name], Tkeys=key, Tvalues=value)
        tables[node.name] = exported.keys.numpy(), exported.values.numpy()
        node.op = _TABLE
        node.attr.clear()
        node.attr["key_dtype"].type, node.attr["value_dtype"].type = key, value
    return tables


def handlers(tables: Mapping[str, Table]) -> dict[str, tuple[Any, list[Any]]]:
    """Return tf2onnx's handlers for look-ups in these tables and comparisons of text."""

    def write(graph: Any, node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
        _write_lookup(graph, node, tables)

    return {
        _LOOKUP: (write, []),
        _TABLE: (_write_table, []),
        "Equal": (_write_equal, []),
        "NotEqual": (_write_equal, []),
    }


def _write_table(graph: Any, node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
    """Write an unused constant, because each look-up node holds a copy of the table."""
    import numpy as np
    from onnx import numpy_helper

    name, outputs = node.name, node.output
    graph.remove_node(name)
    nothing = numpy_helper.from_array(np.zeros((), dtype=np.int64))
    graph.make_node("Const", [], attr={"value": nothing}, name=name, outputs=outputs)


def _write_lookup(graph: Any, node: Any, tables: Mapping[str, Table]) -> None:  # noqa: ANN401 - as above
    import numpy as np

    if node.inputs[0].name not in tables:
        raise ValueError("its table is not known before the model runs")
    if not node.inputs[2].is_const():
        raise ValueError("the value that it returns for an unknown key is not constant")
    keys, values = table = tables[node.inputs[0].name]
    if not keys.size:
        raise ValueError("its table is empty")
    unknown = np.asarray(node.inputs[2].get_tensor_value(as_list=False), dtype=values.dtype)
    _replace(graph, node, node.input[1], table, unknown)


def _write_equal(graph: Any, node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
    """Write a comparison with one text as a look-up, because Equal of tf2onnx's highest opset has numbers only.

    Comparisons of numbers are left to tf2onnx.
    """
    import numpy as np
    from onnx import TensorProto
    from tf2onnx.handler import tf_op

    if graph.get_dtype(node.input[0]) != TensorProto.STRING:
        write, fields = tf_op.create_mapping(graph.opset, graph.extra_opset)[node.type]
        write(graph, node, **fields)
        return
    texts = [index for index, part in enumerate(node.inputs) if part.is_const()]
    text = np.asarray(node.inputs[texts[-1]].get_tensor_value(as_list=False)) if texts else np.zeros(0)
    if text.size != 1 or text.ndim > (graph.get_rank(node.input[1 - texts[-1]]) or 0):
        raise ValueError("ONNX compares text with one constant text only")
    is_equal = node.type == "Equal"
    answers = np.asarray([is_equal, not is_equal], dtype=np.int64)
    _replace(graph, node, node.input[1 - texts[-1]], (text.reshape(1), answers[:1]), answers[1])


def _replace(
    graph: Any,  # noqa: ANN401 - objects of tf2onnx's
    node: Any,  # noqa: ANN401
    given: str,
    table: Table,
    unknown: NDArray[np.generic],
) -> None:
    """Replace the node, which has one output, by a look-up of the tensor `given` in the table.

    Keys that the table lacks give `unknown`.
    """
    from onnx import TensorProto

    keys, values = table
    attributes = {
        f"keys_{_kind(keys)}s": _attribute(keys),
        f"values_{_kind(values)}s": _attribute(values),
        f"default_{_kind(values)}": _attribute(unknown.reshape(1))[0],
    }
    name, outputs = node.name, node.output
    shape, dtype = graph.get_shape(given), graph.get_dtype(outputs[0])
    graph.remove_node(name)
    if keys.dtype.kind == "i":
        given = graph.make_node("Cast", [given], attr={"to": TensorProto.INT64}).output[0]
    is_whole = values.dtype.kind == "i"
    looked_up = graph.make_node(
        "LabelEncoder",
        [given],
        domain="ai.onnx.ml",
        attr=attributes,
        shapes=[shape],
        dtypes=[TensorProto.INT64 if is_whole else dtype],
    ).output[0]
    last, attributes = ("Cast", {"to": dtype}) if is_whole else ("Identity", {})
    graph.make_node(last, [looked_up], attr=attributes, name=name, outputs=outputs, shapes=[shape], dtypes=[dtype])


def _kind(array: NDArray[np.generic]) -> str:
    name = "object" if array.dtype.kind in "SU" else array.dtype.name
    if name not in _KINDS:
        raise ValueError(f"ONNX has no table with {name}")
    return _KINDS[name]


def _attribute(array: NDArray[np.generic]) -> list[Any]:
    """Return the values for ONNX's attributes."""
    values: list[Any] = array.tolist()
    return [value.decode() if isinstance(value, bytes) else value for value in values]
