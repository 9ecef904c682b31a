"""TensorFlow operators that tf2onnx leaves as they are, or computes wrongly, written with those that ONNX has."""

from __future__ import annotations

from typing import Any

__all__ = ["HANDLERS"]


class _Replacement:
    """Nodes that stand in for a node of one tensor, and have its shape and dtype, which is one of floats."""

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

    Keras 3 computes an exact GELU by it. Below 1e-7 the result loses its relative precision, which is
    nothing beside the 1 that a GELU takes it from.
    """
    new = _Replacement(graph, node)
    new.end("Sub", new.constant(1), new.add("Erf", new.tensor))


def _write_log1p(graph: Any, node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
    """Write log(w) + (x - (w - 1)) / w, where w is 1 + x as rounded.

    The second term is the first one of the series of what the rounding took from log(1 + x): of log1p(x) = x, all
    of it. The source is `s_log1p.c` of Sun's fdlibm, version 5.3. Where nothing was taken it is left out, which
    keeps -1 and infinity from becoming NaN.
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

    The identity is the one by which XLA computes it (`EmitExpm1` in `elemental_ir_emitter.cc`). A tanh that is
    a quotient of polynomials loses its digits where x is almost too small to be a number: hence the second part.
    """
    new = _Replacement(graph, node)
    one = new.constant(1)
    exp = new.add("Exp", new.tensor)
    tanh = new.add("Tanh", new.add("Mul", new.tensor, new.constant(0.5)))
    product = new.add("Mul", tanh, new.add("Add", exp, one))
    new.end("Where", new.add("Equal", exp, one), new.tensor, product)


def _write_select(graph: Any, node: Any, _name: str, _: Any) -> None:  # noqa: ANN401 - objects of tf2onnx's
    """Write Where for floats: tf2onnx multiplies by 0 what is not chosen, which makes NaN of an infinity.

    So a guard such as where(x > 0, log(x), 0) would return NaN at 0.
    """
    import onnx
    from tf2onnx.onnx_opset.controlflow import Select

    kinds = onnx.TensorProto
    if graph.get_dtype(node.output[0]) in (kinds.FLOAT, kinds.DOUBLE, kinds.FLOAT16, kinds.BFLOAT16):
        node.set_attr("handles_nan", True)  # noqa: FBT003 - as tf2onnx has it
    Select.version_9(graph, node)


# As tf2onnx takes them: the function and its arguments, by operator.
HANDLERS: dict[str, tuple[Any, list[str]]] = {
    "Erfc": (_write_erfc, []),
    "Expm1": (_write_expm1, []),
    "Log1p": (_write_log1p, []),
    "Select": (_write_select, []),
    "SelectV2": (_write_select, []),
}
