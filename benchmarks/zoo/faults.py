"""Plants faults into ONNX files, with nothing of paritygate.

`python faults.py operators MODEL` prints the operators of a file, `python faults.py FAULT MODEL TARGET CASE` plants:

- `structural`: a node does something else, such as Tanh for Erf, or two inputs of a Sub exchanged;
- `rare`: at most 5 % of the rows of the samples are answered otherwise;
- `outside`: no row of the samples is, only rows unlike all of them: ids that do not occur, numbers beyond the range.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from cases import CASES
from check import distance, open_onnx, samples, scales
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from case import Arrays

# A fault that changes no answer to ten times the limit of FP32 is none.
NOTABLE = 1e-3


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and all graphs inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def operators(model: onnx.ModelProto) -> list[str]:
    """Return the operators of a file, those of its functions and inner graphs included."""
    nodes = [node for graph in graphs(model.graph) for node in graph.node]
    nodes += [node for function in model.functions for node in function.node]
    return sorted({f"{node.domain}.{node.op_type}".removeprefix(".") for node in nodes})


EXCHANGED = {
    "Erf": "Tanh",
    "Tanh": "Erf",
    "Relu": "Softplus",
    "Sigmoid": "HardSigmoid",
    "Gelu": "Relu",
    "ReduceMean": "ReduceMax",
    "ReduceMax": "ReduceMean",
    "Max": "Min",
    "Min": "Max",
    "GlobalAveragePool": "GlobalMaxPool",
    "Softmax": "LogSoftmax",
    "Sin": "Cos",
    "Floor": "Ceil",
    "Exp": "Softplus",
    "LeakyRelu": "Elu",
    "Add": "Sub",
    "And": "Or",
    "GreaterOrEqual": "Greater",
    "LessOrEqual": "Less",
    "Less": "LessOrEqual",
    "HardSwish": "Relu",
}
SWAPPED = {"Sub", "Div", "Concat"}
ATTRIBUTES: dict[str, dict[str, Callable[[Any], Any]]] = {
    "LayerNormalization": {"epsilon": lambda value: 0.1 + value},
    "BatchNormalization": {"epsilon": lambda value: 0.1 + value},
    "InstanceNormalization": {"epsilon": lambda value: 0.1 + value},
    "Softmax": {"axis": lambda value: 1 if value != 1 else -1},
    "Gemm": {"alpha": lambda value: 0.9 * value},
    "Conv": {"pads": lambda value: list(value[::-1]) if value != value[::-1] else [*value[:1], *value[1:]]},
    "CumSum": {"exclusive": lambda value: 1 - value},
    "Resize": {"coordinate_transformation_mode": lambda _: b"asymmetric"},
}


def structural(model: onnx.ModelProto, case_name: str, inputs: list[Arrays]) -> str:
    """Change one node, the first in an order drawn for the case that changes what is answered."""
    before = run_all(model, inputs)
    changes = list(_changes(model.graph))
    np.random.default_rng(sum(case_name.encode())).shuffle(changes)
    for what, node, changed in changes[:60]:
        kept = onnx.NodeProto()
        kept.CopyFrom(node)
        node.CopyFrom(changed)
        off = _off(model, inputs, before)
        # What is not finite, or of another shape, is seen at a glance: that is not a test of a gate.
        if NOTABLE < off < np.inf:
            return f"{what} ({off:.2g})"
        node.CopyFrom(kept)
    return ""


def _changes(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.NodeProto, onnx.NodeProto]]:
    for inner in graphs(graph):
        for node in inner.node:
            for what, change in _changed(node):
                yield f"{what} at {node.name or node.output[0]}", node, change


def _changed(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.NodeProto]]:
    if node.domain:
        return
    if node.op_type in EXCHANGED:
        changed = _copy(node)
        changed.op_type = EXCHANGED[node.op_type]
        if {node.op_type, changed.op_type} & {"Gelu", "Softmax", "LeakyRelu"} and node.op_type != "Softmax":
            del changed.attribute[:]
        yield f"{node.op_type} -> {changed.op_type}", changed
    if node.op_type in SWAPPED and len(node.input) > 1:
        changed = _copy(node)
        changed.input[0], changed.input[1] = node.input[1], node.input[0]
        yield f"{node.op_type} with its inputs exchanged", changed
    for name, alter in ATTRIBUTES.get(node.op_type, {}).items():
        changed = _copy(node)
        for attribute in changed.attribute:
            if attribute.name == name:
                value = alter(helper.get_attribute_value(attribute))
                attribute.CopyFrom(helper.make_attribute(name, value))
                yield f"{node.op_type} with {name} {value}", changed


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    return changed


def run_all(model: onnx.ModelProto, inputs: list[Arrays]) -> list[dict[str, np.ndarray]]:
    """Return the answers of a model to all batches."""
    path = Path("planted.tmp.onnx").resolve()
    onnx.save(model, str(path))
    try:
        run = open_onnx(path)
        return [run(arrays) for arrays in inputs]
    finally:
        path.unlink()


def _off(model: onnx.ModelProto, inputs: list[Arrays], before: list[dict[str, np.ndarray]]) -> float:
    try:
        after = run_all(model, inputs)
    except Exception:  # noqa: BLE001 - what does not load is not a fault to be found
        return np.inf
    scale = scales(before)
    return max(distance(a, b, scale)[0] for a, b in zip(after, before, strict=True))


def conditional(model: onnx.ModelProto, inputs: list[Arrays], *, outside: bool) -> str:
    """Answer rows otherwise in which an input holds what few rows of the samples hold, or none."""
    before = run_all(model, inputs)
    rows = sum(len(next(iter(arrays.values()))) for arrays in inputs)
    for output in model.graph.output:
        first = before[0][output.name]
        if (
            first.dtype != np.float32
            or not first.ndim
            or not all(
                len(answers[output.name]) == len(next(iter(arrays.values())))
                for answers, arrays in zip(before, inputs, strict=True)
            )
        ):
            continue
        for value in model.graph.input:
            drawn = [arrays[value.name] for arrays in inputs if value.name in arrays]
            if not drawn or drawn[0].dtype.kind not in "fi" or drawn[0].ndim == 0:
                continue
            if drawn[0].dtype.kind == "i":
                found = _id(drawn, rows, outside=outside)
            else:
                found = _number(drawn, rows, outside=outside)
            if found is None:
                continue
            what, *condition = found
            if outside and not _is_answered(model, inputs[0], value.name, condition[1]):
                continue
            _condition(model, (value.name, drawn[0].ndim), (output.name, first.ndim), condition)
            return f"{output.name} is 1.5 times as large and 0.5 more where {value.name} {what}"
    return ""


def _is_answered(model: onnx.ModelProto, arrays: Arrays, name: str, number: float) -> bool:
    """Say whether a row that holds the number is answered: where it is refused, no fault can be seen."""
    changed = {**arrays, name: arrays[name].copy()}
    changed[name].flat[0] = number
    try:
        run_all(model, [changed])
    except Exception:  # noqa: BLE001 - whatever a runtime raises, it did not answer
        return False
    return True


def _id(drawn: list[np.ndarray], rows: int, *, outside: bool) -> tuple[str, str, float] | None:
    """Return an id that few rows hold, or none: where it lies between those that occur, it can occur."""
    highest = max(int(array.max()) for array in drawn)
    lowest = min(int(array.min()) for array in drawn)
    if highest - lowest < 4:
        return None
    counts = {
        number: sum(int((array == number).reshape(len(array), -1).any(1).sum()) for array in drawn)
        for number in range(lowest, highest + 1)
    }
    wanted = [n for n, count in counts.items() if (count == 0 if outside else 0 < count <= 0.05 * rows)]
    if not wanted:
        # Every id occurs somewhere: one beyond the largest, then, which a table may still hold.
        return (f"holds the id {highest + 1}", "Equal", float(highest + 1)) if outside else None
    return f"holds the id {wanted[-1]}", "Equal", float(wanted[-1])


def _number(drawn: list[np.ndarray], rows: int, *, outside: bool) -> tuple[str, str, float] | None:
    """Return a number that the largest of a row exceeds in few rows, or in none."""
    # A table may lack numbers: NaN exceeds nothing, and nothing exceeds it.
    largest = np.concatenate([np.fmax.reduce(array.reshape(len(array), -1), axis=1) for array in drawn])
    largest = np.sort(largest[~np.isnan(largest)])
    if outside:
        limit = float(largest[-1] + 0.25 * abs(largest[-1]))
    else:
        few = max(2, int(0.04 * rows))
        if largest[-few] <= largest[-few - 1]:
            return None
        limit = float((largest[-few] + largest[-few - 1]) / 2)
    return f"exceeds {limit:.6g}", "Greater", limit


def _condition(model: onnx.ModelProto, value: tuple[str, int], output: tuple[str, int], found: list[Any]) -> None:
    """Put Where(condition on the row, 1.5 x output + 0.5, output) before an output; names come with their rank."""
    (value, rank_in), (output, rank_out), (operator, constant) = value, output, found
    inner = f"{output}.right"
    for node in model.graph.node:
        node.output[:] = [inner if name == output else name for name in node.output]
        node.input[:] = [inner if name == output else name for name in node.input]
    numbers = {
        "zoo.constant": np.array(constant, np.float32),
        "zoo.axes": np.arange(1, rank_in, dtype=np.int64),
        "zoo.out": np.arange(1, rank_out, dtype=np.int64),
        "zoo.times": np.array(1.5, np.float32),
        "zoo.more": np.array(0.5, np.float32),
    }
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in numbers.items())
    nodes = [
        helper.make_node("Cast", [value], ["zoo.float"], to=TensorProto.FLOAT),
        helper.make_node(operator, ["zoo.float", "zoo.constant"], ["zoo.is"]),
        helper.make_node("Cast", ["zoo.is"], ["zoo.one"], to=TensorProto.FLOAT),
    ]
    if rank_in > 1:
        nodes.append(helper.make_node("ReduceMax", ["zoo.one", "zoo.axes"], ["zoo.row"], keepdims=0))
    else:
        nodes.append(helper.make_node("Identity", ["zoo.one"], ["zoo.row"]))
    if rank_out > 1:
        nodes.append(helper.make_node("Unsqueeze", ["zoo.row", "zoo.out"], ["zoo.column"]))
    else:
        nodes.append(helper.make_node("Identity", ["zoo.row"], ["zoo.column"]))
    nodes += [
        helper.make_node("Cast", ["zoo.column"], ["zoo.hit"], to=TensorProto.BOOL),
        helper.make_node("Mul", [inner, "zoo.times"], ["zoo.larger"]),
        helper.make_node("Add", ["zoo.larger", "zoo.more"], ["zoo.wrong"]),
        helper.make_node("Where", ["zoo.hit", "zoo.wrong", inner], [output]),
    ]
    model.graph.node.extend(nodes)


def main() -> None:
    """Do what the command line asks."""
    fault, path = sys.argv[1], Path(sys.argv[2])
    model = onnx.load(str(path))
    if fault == "operators":
        print(json.dumps(operators(model)))
        return
    target, case = Path(sys.argv[3]), CASES[sys.argv[4]]
    taken = {value.name for value in model.graph.input}
    inputs = [{name: array for name, array in arrays.items() if name in taken} for arrays in samples(case)]
    before = run_all(model, inputs)
    if fault == "structural":
        what = structural(model, case.name, inputs)
    else:
        what = conditional(model, inputs, outside=fault == "outside")
    if not what:
        print(json.dumps({"why": "nothing in this graph can be changed so"}))
        return
    off = _off(model, inputs, before)
    if (fault == "outside") != (off == 0):
        print(json.dumps({"why": f"{what}: on the samples it changes {off:.2g}"}))
        return
    onnx.save(model, str(target))
    print(json.dumps({"what": what}))


if __name__ == "__main__":
    main()
