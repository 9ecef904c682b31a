"""An emulated ONNX model that also says which rows went beyond the range of its precision on the way.

An overflow need not be seen in the answer as one: a variance that became infinite divides to zeros, and what comes
out is finite and wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.models.onnx.file import opset_of, read_onnx, signature_of_onnx
from paritygate.models.onnx.graph import UniqueNames, names_in
from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.validate.emulation.constants import ELEMENT_TYPES, FLOAT
from paritygate.validate.emulation.graph import EmulatedGraph, emulate
from paritygate.validate.runners.emulated import EmulatedRunner, emulated_facts, open_session
from paritygate.validate.runners.runner import RuntimeFacts

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    import onnxruntime
    from numpy.typing import NDArray

__all__ = ["OverflowWatch", "open_overflow_watch"]

# From these on, an operator takes its axes as an input.
_UNSQUEEZE_OPSET = 13
_REDUCE_OPSET = 18
_AXES = {"Unsqueeze": (_UNSQUEEZE_OPSET, [-1]), "ReduceMax": (_REDUCE_OPSET, [1])}


def open_overflow_watch(path: Path, precision: Precision) -> OverflowWatch:
    """Return the ONNX file, to be run as it would be in the precision, and watched.

    Args:
        path: A file as `open_emulated` takes it; its names are those served.
        precision: `fp16` or `bf16`.

    Raises:
        InputFileError: The file is no ONNX model.
        UsageError: The precision cannot be emulated, or is not the file's.
        BackendError: The model cannot be emulated, or ONNX Runtime refused it.
    """
    proto = read_onnx(path)
    signature = signature_of_onnx(proto)
    graph = emulate(proto, path.parent, precision)
    watched = _add_watch(graph.model)
    session = open_session(graph.model, graph.weights, str(path))
    facts = emulated_facts(session, graph, precision, precision_found=precision)
    return OverflowWatch(session=session, graph=graph, signature=signature, facts=facts, watched=watched)


def _add_watch(model: onnx.ModelProto) -> list[str]:
    """Add an output for every value that is rounded outside of subgraphs, and return their names.

    It holds one number for each place of the value's first dim: 1 if any finite number there was rounded to infinity.
    Only to that above: a mask that ends at minus infinity is what it is for.
    """
    import onnx

    names = UniqueNames(names_in(model.graph))
    watched = []
    for raw, rounded in _pairs(model.graph):
        *nodes, flag = _watch(raw, rounded, names, model)
        model.graph.node.extend([*nodes, flag])
        watched.append(flag.output[0])
        model.graph.output.append(onnx.helper.make_tensor_value_info(flag.output[0], FLOAT, None))
    return watched


def _pairs(graph: onnx.GraphProto) -> list[tuple[str, str]]:
    """Return what is rounded and what it becomes: a pair of Casts, down and up again."""
    lows = set(ELEMENT_TYPES.values())
    down = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Cast" and _target(node) in lows}
    return [
        (down[node.input[0]], node.output[0])
        for node in graph.node
        if node.op_type == "Cast" and node.input[0] in down and _target(node) == FLOAT
    ]


def _target(node: onnx.NodeProto) -> int:
    return next(int(attribute.i) for attribute in node.attribute if attribute.name == "to")


def _watch(raw: str, rounded: str, names: UniqueNames, model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    import onnx

    def step(kind: str, *inputs: str, **attributes: int) -> onnx.NodeProto:
        node = onnx.helper.make_node(kind, list(inputs), [names.new(f"{rounded}_{kind}")])
        since, axes = _AXES.get(kind, (0, []))
        if axes and opset_of(model) < since:
            node.attribute.append(onnx.helper.make_attribute("axes", axes))
        elif axes:
            node.input.append(names.new(f"{rounded}_axes"))
            tensor = onnx.numpy_helper.from_array(np.array(axes, dtype=np.int64), node.input[-1])
            model.graph.initializer.append(tensor)
        node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items())
        return node

    after = step("IsInf", rounded, detect_negative=0)
    # A conversion of the file's own may start from whole numbers.
    float_before = step("Cast", raw, to=FLOAT)
    before = step("IsInf", float_before.output[0], detect_negative=0)
    was_finite = step("Not", before.output[0])
    is_new = step("And", after.output[0], was_finite.output[0])
    number = step("Cast", is_new.output[0], to=FLOAT)
    # A scalar has no first dim: it is given a last one.
    wide = step("Unsqueeze", number.output[0])
    flat = step("Flatten", wide.output[0], axis=1)
    yield from (after, float_before, before, was_finite, is_new, number, wide, flat)
    yield step("ReduceMax", flat.output[0], keepdims=0)


class OverflowWatch(EmulatedRunner):
    """One ONNX model in one session, its values rounded and watched."""

    def __init__(
        self,
        *,
        session: onnxruntime.InferenceSession,
        graph: EmulatedGraph,
        signature: Signature,
        facts: RuntimeFacts,
        watched: Sequence[str],
    ) -> None:
        super().__init__(session=session, graph=graph, own=signature, served=signature, facts=facts)
        self._watched = watched
        self._flags: list[NDArray[Any]] = []

    def run_watched(
        self, inputs: Mapping[str, NDArray[np.generic]], rows: int
    ) -> tuple[dict[str, NDArray[np.generic]], NDArray[np.bool_]]:
        """Return the outputs by name, and for each row whether a value overflowed on its way.

        A value without rows is one of all rows.

        Raises:
            BackendError: ONNX Runtime failed, or the canary shows that values were not rounded.
        """
        outputs = self.run(inputs)
        overflowed = np.zeros(rows, dtype=bool)
        for flag in self._flags:
            overflowed |= flag > 0 if flag.shape == (rows,) else bool((flag > 0).any())
        return outputs, overflowed

    def _call(self, feed: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        outputs, self._flags = self._fetch(feed, self._watched)
        return outputs
