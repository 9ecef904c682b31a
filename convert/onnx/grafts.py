"""Put a few nodes of the source in the place of those that make a tensor of an exported ONNX file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from paritygate.errors import ConversionError
from paritygate.models.onnx.graph import UniqueNames, graphs_in, makers_of, names_in, sort_nodes, subgraphs_of
from paritygate.models.onnx.weights import load_tensor

if TYPE_CHECKING:
    import onnx

# More nodes are no repair, but another model.
MOST_NODES = 12
_HINT = "remove it from repair.accept, run the spec, and search a repair again"


class Graft(Struct, frozen=True, kw_only=True):
    """Nodes of the source, an ONNX file, in the place of those that make the file's tensor `name`.

    They make the source's tensor `source`. `reads` has the file's tensor for each of the source's that they read. `was`
    are the operators that make the two tensors, the file's first.
    """

    name: str
    source: str
    reads: Mapping[str, str] = field(default_factory=dict)
    was: str = ""


def graft(model: onnx.ModelProto, item: Graft, source: onnx.ModelProto, folder: Path) -> None:
    """Make the graft in a model, in place; nodes that nothing reads any more are removed.

    `source` was read from `folder`, and both models have no local functions.

    Raises:
        ConversionError: A tensor is missing, the nodes are too many or read others, or they are of other opsets.
    """
    graph = model.graph
    nodes = nodes_between(source.graph, item.source, item.reads)
    if nodes is None or not any(item.name in node.output for node in graph.node):
        raise unfit(f"no nodes of the source make {item.source!r} of {', '.join(item.reads)} in place of {item.name!r}")
    _check_opsets(model, source, nodes)
    taken = UniqueNames({*names_in(graph), *(node.name for node in graph.node)})
    new = dict(item.reads)
    stored = {tensor.name: tensor for tensor in source.graph.initializer}
    for name in dict.fromkeys(name for node in nodes for name in node.input if name in stored):
        new[name] = taken.new(f"source_{name}")
        graph.initializer.append(_copied(stored[name], new[name], folder))
    before = taken.new(f"{item.name}_before")
    for node in graph.node:
        node.output[:] = [before if name == item.name else name for name in node.output]
    for node in nodes:
        new.update({name: item.name if name == item.source else taken.new(f"source_{name}") for name in node.output})
        made = type(node).FromString(node.SerializeToString())
        made.name = taken.new(f"source_{node.name}")
        made.input[:] = [new.get(name, name) for name in node.input]
        made.output[:] = [new.get(name, name) for name in node.output]
        graph.node.append(made)
    _remove_unread(graph)
    if not sort_nodes(graph):
        raise unfit("the nodes would read their own results")


def nodes_between(graph: onnx.GraphProto, name: str, reads: Iterable[str]) -> list[onnx.NodeProto] | None:
    """Return the nodes that make a tensor of these and of constants, in order; None if they are many, or read more."""
    known = {*reads, *(tensor.name for tensor in graph.initializer)}
    producers = makers_of(graph)
    found: dict[str, onnx.NodeProto] = {}
    waiting = [name]
    while waiting:
        tensor = waiting.pop()
        if not tensor or tensor in known:
            continue
        node = producers.get(tensor)
        if node is None or any(subgraphs_of(node)):
            return None
        if node.output[0] not in found:
            found[node.output[0]] = node
            waiting += node.input
        if len(found) > MOST_NODES:
            return None
    return [node for node in graph.node if node.output[0] in found] or None


def unfit(why: str) -> ConversionError:
    """Return the error of a change that does not fit a conversion."""
    return ConversionError(f"the repair does not fit the conversion: {why}", hint=_HINT)


def _check_opsets(model: onnx.ModelProto, source: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> None:
    ours, theirs = ({item.domain: item.version for item in each.opset_import} for each in (model, source))
    for domain in {node.domain for node in nodes}:
        if ours.get(domain) != theirs.get(domain):
            raise unfit(f"its nodes are of opset {theirs.get(domain)}, and the file has {ours.get(domain)}")


def _copied(tensor: onnx.TensorProto, name: str, folder: Path) -> onnx.TensorProto:
    from onnx import numpy_helper

    return numpy_helper.from_array(load_tensor(tensor, folder), name)


def _remove_unread(graph: onnx.GraphProto) -> None:
    """Remove nodes whose outputs nothing reads, and weights that no node reads."""
    outputs = {value.name for value in graph.output}
    while True:
        read = outputs | set(_read_in(graph))
        unread = [node for node in graph.node if not read.intersection(node.output)]
        for node in unread:
            graph.node.remove(node)
        if not unread:
            break
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in read]:
        graph.initializer.remove(tensor)


def _read_in(graph: onnx.GraphProto) -> Iterator[str]:
    for each in graphs_in(graph):
        yield from (name for node in each.node for name in node.input)
        if each is not graph:
            yield from (value.name for value in each.output)
