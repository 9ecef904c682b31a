"""Write TensorFlow operators that tf2onnx leaves or computes wrongly with ONNX's operators."""

from __future__ import annotations

from typing import Any


class _Replacement:
    """Nodes that replace a node of one float tensor, with its shape and dtype."""

    def __init__(self, graph: Any, node: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
        self._graph, self._name, self._outputs = graph, node.name, node.output
        (self.tensor,) = node.input
        self._shape, self._dtype = graph.get_shape(self.tensor), graph.get_dtype(self.tensor)
        graph.remove_node(node.name)

    def constant(self, value: float) -> str:
        import numpy as np
        from tf2onnx import utils

        array = np.array(value, dtype=utils.map_onnx_to_numpy_type(self._dtype))
        return str(self._graph.make_const(utils.make_name(self._name), array).output[0])

    def add(self, operator: str, *tensors: str, is_last: bool = False) -> str:
        import onnx

        dtype = onnx.TensorProto.BOOL if operator == "Equal" else self._dtype
        names = {"name": self._name, "outputs": self._outputs} if is_last else {}
        node = self._graph.make_node(operator, list(tensors), shapes=[self._shape], dtypes=[dtype], **names)
        return str(node.output[0])

    def end(self, operator: str, *tensors: str) -> None:
        self.add(operator, *tensors, is_last=True)


def _write_erfc(graph: Any, node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
    """Write 1 - erf(x).

    Keras 3 computes an exact GELU with it. Below 1e-7 it loses its relative precision, which is negligible next to the
    1 that a GELU subtracts it from.
    """
    new = _Replacement(graph, node)
    new.end("Sub", new.constant(1), new.add("Erf", new.tensor))


def _write_log1p(graph: Any, node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
    """Write log(w) + (x - (w - 1)) / w, where w is 1 + x as rounded.

    The second term is the first of the series of the part that rounding took from log(1 + x). Source: `s_log1p.c` of
    Sun's fdlibm, version 5.3. It is left out where rounding took nothing, so that -1 and infinity do not become NaN.
    """
    new = _Replacement(graph, node)
    one = new.constant(1)
    rounded = new.add("Add", new.tensor, one)
    back = new.add("Sub", rounded, one)
    lost = new.add("Div", new.add("Sub", new.tensor, back), rounded)
    is_exact = new.add("Equal", back, new.tensor)
    correction = new.add("Where", is_exact, new.constant(0), lost)
    new.end("Add", new.add("Log", rounded), correction)


def _write_expm1(graph: Any, node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
    """Write tanh(x / 2) * (exp(x) + 1), in which nothing cancels, and x where exp(x) is 1 as rounded.

    XLA uses this identity (`EmitExpm1` in `elemental_ir_emitter.cc`). A tanh that is a quotient of polynomials loses
    its digits for the smallest x, hence the second part.
    """
    new = _Replacement(graph, node)
    one = new.constant(1)
    exp = new.add("Exp", new.tensor)
    tanh = new.add("Tanh", new.add("Mul", new.tensor, new.constant(0.5)))
    product = new.add("Mul", tanh, new.add("Add", exp, one))
    new.end("Where", new.add("Equal", exp, one), new.tensor, product)


def _write_select(graph: Any, node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
    """Write Where for floats, because tf2onnx multiplies unselected values by 0, which turns infinity into NaN.

    So a guard such as where(x > 0, log(x), 0) would return NaN at 0.
    """
    import onnx
    from tf2onnx.onnx_opset.controlflow import Select

    kinds = onnx.TensorProto
    if graph.get_dtype(node.output[0]) in (kinds.FLOAT, kinds.DOUBLE, kinds.FLOAT16, kinds.BFLOAT16):
        node.set_attr("handles_nan", True)  # noqa: FBT003 - as tf2onnx has it
    Select.version_9(graph, node)


def _write_bucketize(graph: Any, node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
    """Write the number of boundaries that the value is not below; it counts at a boundary, and NaN is below none.

    As in TensorFlow, integers are compared with float32 boundaries in float32.
    """
    import numpy as np
    import onnx
    from tf2onnx import utils
    from tf2onnx.graph_builder import GraphBuilder

    kinds, build = onnx.TensorProto, GraphBuilder(graph)
    value, name, outputs = node.input[0], node.name, node.output
    shape, dtype = graph.get_shape(value), graph.get_dtype(value)
    boundaries = np.asarray(node.get_attr_value("boundaries", []), dtype=np.float32)
    graph.remove_node(name)
    if dtype not in (kinds.FLOAT, kinds.DOUBLE):
        value, dtype = graph.make_node("Cast", [value], attr={"to": kinds.FLOAT}).output[0], kinds.FLOAT
    limits = graph.make_const(utils.make_name(name), boundaries.astype(utils.map_onnx_to_numpy_type(dtype)))
    column = build.make_unsqueeze({"data": value, "axes": [-1]})
    is_below = graph.make_node("Less", [column, limits.output[0]]).output[0]
    reached = graph.make_node("Not", [is_below]).output[0]
    counted = graph.make_node("Cast", [reached], attr={"to": kinds.INT32}).output[0]
    build.make_reduce_sum(
        {"data": counted, "axes": [-1], "keepdims": 0, "outputs": outputs},
        name=name,
        shapes=[shape],
        dtypes=[kinds.INT32],
    )


def _write_bitcast(graph: Any, node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
    """Write the bits of a float where only its sign is read, as keras.ops.argmax, argmin and signbit do.

    A number is negative where it or its reciprocal is below 0, which finds -0.0. NaN counts as positive.

    Raises:
        ValueError: Other bits are read, for which ONNX has no operator up to opset 18.
    """
    import numpy as np
    from onnx import TensorProto
    from tf2onnx import utils

    value, name, outputs = node.input[0], node.name, node.output
    sign = np.int32(-(2**31))
    readers = graph.find_output_consumers(outputs[0])
    masks = [part for reader in readers for part in reader.inputs if part.output[0] != outputs[0]]
    is_sign_alone = (
        graph.get_dtype(value) == TensorProto.FLOAT
        and graph.get_dtype(outputs[0]) == TensorProto.INT32
        and all(reader.type == "BitwiseAnd" for reader in readers)
        and all(mask.is_const() and (mask.get_tensor_value(as_list=False) == sign).all() for mask in masks)
    )
    if not is_sign_alone:
        raise ValueError("ONNX gives access to the sign of a number alone, and not to its other bits")
    shape = graph.get_shape(value)
    graph.remove_node(name)

    def constant(array: Any) -> str:  # noqa: ANN401 - a number of NumPy's
        return str(graph.make_const(utils.make_name(name), np.asarray(array)).output[0])

    zero = constant(np.float32(0))
    reciprocal = graph.make_node("Reciprocal", [value]).output[0]
    below = [graph.make_node("Less", [number, zero]).output[0] for number in (value, reciprocal)]
    is_negative = graph.make_node("Or", below).output[0]
    graph.make_node(
        "Where",
        [is_negative, constant(sign), constant(np.int32(0))],
        name=name,
        outputs=outputs,
        shapes=[shape],
        dtypes=[TensorProto.INT32],
    )


def _refuse_case(_graph: Any, _node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
    """Raise ValueError, because tf2onnx would change all letters, by a locale that not every machine has."""
    msg = "TensorFlow changes the case of ASCII letters only, and ONNX of all letters, by the machine's locale"
    raise ValueError(msg)


# The function and its arguments by operator, for tf2onnx.
HANDLERS: dict[str, tuple[Any, list[str]]] = {
    "Bitcast": (_write_bitcast, []),
    "Bucketize": (_write_bucketize, []),
    "Erfc": (_write_erfc, []),
    "Expm1": (_write_expm1, []),
    "Log1p": (_write_log1p, []),
    "Select": (_write_select, []),
    "SelectV2": (_write_select, []),
    "StringLower": (_refuse_case, []),
    "StringUpper": (_refuse_case, []),
}
