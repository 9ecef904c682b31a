"""Plant faults into small models, scramble all names, and count how often `diagnose` names the changed operator.

Faults are drawn by a seed. Equivalent rewrites are diagnosed as well, and must not be blamed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from paritygate.errors import ParitygateError
from paritygate.pipelines.selftest.mutations.mutation import MUTATIONS, MutationContext, NotApplicable, mutate
from paritygate.validate.divergence.locate import locate
from paritygate.validate.divergence.result import EQUAL, LOCATED, Divergence

_NAMED = 3
_ROWS, _BATCHES = 4, 3
_OTHER_OPERATORS = {
    "Erf": "Tanh",
    "Tanh": "Erf",
    "Sigmoid": "HardSigmoid",
    "Relu": "LeakyRelu",
    "Mul": "Add",
    "Add": "Sub",
    "Sub": "Add",
    "Softmax": "LogSoftmax",
    "MaxPool": "AveragePool",
}
_SHAPE_STAYS = frozenset({"Relu", "Sigmoid", "Tanh", "Softmax", "BatchNormalization", "Erf", "Add", "Mul", "Sqrt"})
_Feeds = list[dict[str, NDArray[Any]]]
_Random = np.random.Generator


class _Builder:
    """Adds nodes and seeded weights to a graph."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float = 0.3, around: float = 0.0) -> str:
        """Return the name of a normal weight."""
        return self.constant(self.random.normal(around, scale, size=shape).astype(np.float32))

    def constant(self, values: Any) -> str:  # noqa: ANN401 - whatever NumPy takes
        """Return the name of a constant."""
        self.weights.append(numpy_helper.from_array(np.asarray(values), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401 - of any operator
        """Return the output of a new node."""
        output = f"x{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=f"node_{output}", **attributes))
        return output

    def model(self, shape: Sequence[int | str], output: str, columns: int) -> onnx.ModelProto:
        """Return the model of one input `x`."""
        inputs = [helper.make_tensor_value_info("x", 1, shape)]
        outputs = [helper.make_tensor_value_info(output, 1, ["n", columns])]
        graph = helper.make_graph(self.nodes, "model", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cnn(seed: int) -> tuple[onnx.ModelProto, _Feeds]:
    """Return a convolutional classifier, and its rows."""
    made = _Builder(seed)
    x, channels = "x", 3
    for at, activation in enumerate(("Relu", "Sigmoid", "Tanh")):
        wide = 8 * (at + 1)
        x = made.node("Conv", x, made.weight(wide, channels, 3, 3), made.weight(wide), pads=[1, 1, 1, 1])
        statistics = (made.weight(wide, around=1), made.weight(wide), made.weight(wide))
        variance = made.constant(np.abs(made.random.normal(size=wide)).astype(np.float32) + np.float32(0.5))
        x = made.node(activation, made.node("BatchNormalization", x, *statistics, variance, epsilon=1e-3))
        channels = wide
    x = made.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = made.node("Flatten", made.node("GlobalAveragePool", x))
    x = made.node("Softmax", made.node("Gemm", x, made.weight(channels, 10), made.weight(10)))
    return made.model(["n", 3, 8, 8], x, 10), _feeds(made.random, (3, 8, 8))


def transformer(seed: int) -> tuple[onnx.ModelProto, _Feeds]:
    """Return two layers of attention and GELU with unfused normalisations, and their rows."""
    made, wide, steps, heads = _Builder(seed), 16, 6, 2

    def normal(x: str) -> str:
        off = made.node("Sub", x, made.node("ReduceMean", x, axes=[-1]))
        mean = made.node("ReduceMean", made.node("Mul", off, off), axes=[-1])
        root = made.node("Sqrt", made.node("Add", mean, made.constant(np.float32(1e-5))))
        scaled = made.node("Mul", made.node("Div", off, root), made.weight(wide, around=1))
        return made.node("Add", scaled, made.weight(wide))

    def linear(x: str, columns: int, rows: int = wide) -> str:
        return made.node("Add", made.node("MatMul", x, made.weight(rows, columns)), made.weight(columns))

    def parted(x: str, order: list[int]) -> str:
        shape = made.constant(np.array([0, 0, heads, wide // heads]))
        return made.node("Transpose", made.node("Reshape", linear(x, wide), shape), perm=order)

    x = normal(made.node("Add", "x", made.weight(1, steps, wide)))
    for _ in range(2):
        query, key, value = (parted(x, order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = made.node("Mul", made.node("MatMul", query, key), made.constant(np.float32((wide / heads) ** -0.5)))
        mixed = made.node("MatMul", made.node("Softmax", scores, axis=-1), value)
        mixed = made.node("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = made.node("Reshape", mixed, made.constant(np.array([0, 0, wide])))
        y = normal(made.node("Add", linear(mixed, wide), x))
        hidden = linear(y, 2 * wide)
        erf = made.node("Erf", made.node("Div", hidden, made.constant(np.float32(2**0.5))))
        gate = made.node("Mul", hidden, made.node("Add", erf, made.constant(np.float32(1))))
        gelu = made.node("Mul", gate, made.constant(np.float32(0.5)))
        x = normal(made.node("Add", linear(gelu, wide, 2 * wide), y))
    x = made.node("Gemm", made.node("ReduceMean", x, axes=[1], keepdims=0), made.weight(wide, 5), made.weight(5))
    return made.model(["n", steps, wide], x, 5), _feeds(made.random, (steps, wide))


def deep(nodes: int) -> tuple[onnx.ModelProto, _Feeds]:
    """Return normalised layers with a GELU and a residual, of about so many nodes, and their rows."""
    made, wide = _Builder(7), 64
    x = "x"
    while len(made.nodes) < nodes:
        normal = made.node("LayerNormalization", x, made.weight(wide, around=1), made.weight(wide), axis=-1)
        hidden = made.node("Add", made.node("MatMul", normal, made.weight(wide, wide, scale=0.1)), made.weight(wide))
        erf = made.node("Erf", made.node("Div", hidden, made.constant(np.float32(2**0.5))))
        gate = made.node("Mul", hidden, made.node("Add", erf, made.constant(np.float32(1))))
        x = made.node("Add", x, made.node("Mul", gate, made.constant(np.float32(0.5))))
    return made.model(["n", wide], x, wide), _feeds(made.random, (wide,))


def large(nodes: int, folder: Path) -> str:
    """Return what the diagnosis of one fault in a model of so many nodes takes."""
    model, feeds = deep(nodes)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    node = next(node for node in changed.graph.node[nodes // 2 :] if node.op_type == "Erf")
    name, node.op_type = node.name, "Tanh"
    candidate, old = scrambled(changed)
    onnx.save(model, folder / "reference.onnx")
    onnx.save(candidate, folder / "candidate.onnx")
    start = time.process_time()
    found = locate(folder / "reference.onnx", folder / "candidate.onnx", feeds)
    seconds = time.process_time() - start
    named = "named" if is_named(found, name, old) else "missed"
    proven = "proven" if any(place.proven for place in found.located) else "not proven"
    size = f"{len(model.graph.node):,} nodes"
    return f"{size}: {named}, {proven}, {found.computed:,} tensors, {seconds:.0f} s of CPU"


def _feeds(random: _Random, shape: tuple[int, ...]) -> _Feeds:
    return [{"x": random.normal(size=(_ROWS, *shape)).astype(np.float32)} for _ in range(_BATCHES)]


def _weights_of(model: onnx.ModelProto, node: onnx.NodeProto) -> list[onnx.TensorProto]:
    return [tensor for tensor in model.graph.initializer if tensor.name in node.input and tensor.data_type == 1]


def _change_weight(change: Callable[[NDArray[Any], _Random], NDArray[Any]]) -> Callable[..., bool]:
    def plant(model: onnx.ModelProto, node: onnx.NodeProto, random: _Random) -> bool:
        found = [tensor for tensor in _weights_of(model, node) if len(tensor.dims) > 1]
        if not found:
            return False
        values = numpy_helper.to_array(found[0]).copy()
        changed = np.ascontiguousarray(change(values, random), np.float32)
        if changed.shape != values.shape or np.array_equal(changed, numpy_helper.to_array(found[0])):
            return False
        found[0].CopyFrom(numpy_helper.from_array(changed, found[0].name))
        return True

    return plant


def _zero_row(values: NDArray[Any], random: _Random) -> NDArray[Any]:
    values[random.integers(len(values))] = 0
    return values


def _other_operator(model: onnx.ModelProto, node: onnx.NodeProto, random: _Random) -> bool:
    del model, random
    node.op_type = _OTHER_OPERATORS.get(node.op_type, node.op_type)
    return True


def _other_attribute(model: onnx.ModelProto, node: onnx.NodeProto, random: _Random) -> bool:
    del model, random
    item = next((item for item in node.attribute if item.name == "epsilon"), None)
    if item is not None:
        item.f = item.f * 300
    return item is not None


def _other_input(model: onnx.ModelProto, node: onnx.NodeProto, random: _Random) -> bool:
    made = [name for each in model.graph.node for name in each.output]
    before = made[: made.index(node.output[0])]
    own = [at for at, name in enumerate(node.input) if name in before]
    if not own or len(before) < _NAMED:
        return False
    node.input[own[-1]] = before[int(random.integers(len(before)))]
    return True


def _lost(model: onnx.ModelProto, node: onnx.NodeProto, random: _Random) -> bool:
    del random
    if node.op_type not in _SHAPE_STAYS:
        return False
    if node.output[0] == model.graph.output[0].name:
        return False
    for other in model.graph.node:
        other.input[:] = [node.input[0] if name == node.output[0] else name for name in other.input]
    model.graph.node.remove(node)
    return True


FAULTS: Mapping[str, Callable[..., bool]] = {
    "other operator": _other_operator,
    "other attribute": _other_attribute,
    "other input": _other_input,
    "operator lost": _lost,
    "row of a weight zero": _change_weight(_zero_row),
    "weight times 1.01": _change_weight(lambda values, _: values * np.float32(1.01)),
    "weight transposed": _change_weight(lambda values, _: values.T),
    "weight rounded to BF16": _change_weight(
        lambda values, _: (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    ),
}


def scrambled(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Return the model with other names of nodes and inner tensors, and the old name of each node."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    kept = {value.name for value in (*graph.input, *graph.output)} | {""}
    names: dict[str, str] = {}
    nodes: dict[str, str] = {}
    for at, node in enumerate(graph.node):
        nodes[f"n{at}"], node.name = node.name, f"n{at}"
        for field in (node.input, node.output):
            field[:] = [name if name in kept else names.setdefault(name, f"t{len(names)}") for name in field]
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    del graph.value_info[:]
    return changed, nodes


def is_named(found: Divergence, fault: str, old: Mapping[str, str]) -> bool:
    """Return whether the changed node is among the first places, by its name in either model."""
    places = found.located[:_NAMED]
    named = {old.get(name, name) for place in places for name in place.candidate_nodes}
    return fault in named | {name for place in places for name in place.reference_nodes}


class _Table:
    """Counts what was planted, seen and named, and keeps a line for each miss."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: dict[str, Counter[str]] = {}
        self._missed: list[str] = []
        self._blamed: list[str] = []
        self._rewrites = 0

    def add_fault(self, kind: str, model: onnx.ModelProto, feeds: _Feeds, random: _Random) -> None:
        """Plant one fault of a kind at a random node that takes it, and diagnose it."""
        for at in random.permutation(len(model.graph.node)):
            changed = onnx.ModelProto()
            changed.CopyFrom(model)
            node = changed.graph.node[int(at)]
            name, before = node.name, changed.SerializeToString()
            if not FAULTS[kind](changed, node, random) or changed.SerializeToString() == before:
                continue
            candidate, old = scrambled(changed)
            found = self._diagnosed(model, candidate, feeds)
            if found is None:
                continue
            count = self._counts.setdefault(kind, Counter())
            count["planted"] += 1
            if found.outcome != EQUAL:
                hit = is_named(found, name, old)
                proven = any(place.proven for place in found.located)
                count.update({"visible": 1, "named": int(hit), "proven": int(proven)})
                if not hit:
                    what = "; ".join(place.what for place in found.located[:1]) or found.detail
                    self._missed.append(f"{kind} at {model.graph.node[int(at)].op_type}: {what}")
            return

    def add_rewrites(self, model: onnx.ModelProto, feeds: _Feeds, seed: int) -> None:
        """Diagnose every equivalent rewrite that applies to the model."""
        for name in (name for name, mutation in MUTATIONS.items() if mutation.is_equivalent):
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            made = mutate(copy, name, MutationContext(random=np.random.default_rng(seed)))
            found = None if isinstance(made, NotApplicable) else self._diagnosed(model, made[0], feeds)
            self._rewrites += found is not None
            if found is not None and found.outcome == LOCATED:
                self._blamed.append(f"{name}: {found.located[0].what}")

    def _diagnosed(self, model: onnx.ModelProto, candidate: onnx.ModelProto, feeds: _Feeds) -> Divergence | None:
        reference, other = self._folder / "reference.onnx", self._folder / "candidate.onnx"
        onnx.save(model, reference)
        onnx.save(candidate, other)
        try:
            return locate(reference, other, feeds)
        except ParitygateError:
            # The drawn change makes no model that runs.
            return None

    def lines(self) -> list[str]:
        """Return the table, then each miss."""
        total: Counter[str] = sum(self._counts.values(), Counter())
        rows = [
            f"| {kind} | {count['planted']} | {count['visible']} | {count['named']} | {count['proven']} |"
            for kind, count in (*self._counts.items(), ("all", total))
        ]
        head = [f"| fault | planted | visible | among {_NAMED} named | proven |", "|---|---|---|---|---|"]
        blamed = f"equivalent rewrites blamed: {len(self._blamed)} of {self._rewrites}"
        return [*head, *rows, "", blamed, *self._blamed, "", f"missed: {len(self._missed)}", *self._missed]


def main() -> None:
    """Plant `--each` faults of each kind into each model, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=3000, help="of the large model")
    options = parser.parse_args()
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        table = _Table(Path(folder))
        for build in (cnn, transformer):
            model, feeds = build(options.seed)
            for at, kind in enumerate(FAULTS):
                random = np.random.default_rng((options.seed, at))
                for _ in range(options.each):
                    table.add_fault(kind, model, feeds, random)
            table.add_rewrites(model, feeds, options.seed)
        print("\n".join(table.lines()))
        print(large(options.nodes, Path(folder)))
    print(f"{time.process_time() - start:.0f} s of CPU", file=sys.stderr)


if __name__ == "__main__":
    main()
