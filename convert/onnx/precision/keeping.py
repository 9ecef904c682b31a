"""The nodes that are to stay in FP32, as the caller names them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from paritygate.errors import UsageError
from paritygate.models.onnx.graph import nodes_in

if TYPE_CHECKING:
    import onnx

__all__ = ["Keeping", "keeping_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """Which nodes stay in FP32, with all that is inside them.

    Attributes:
        names: Names of nodes as the model has them now.
        operators: Operators, each meaning all its nodes.
    """

    names: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset()

    def reason(self, node: onnx.NodeProto) -> str:
        """Return why the node is kept, as a part of a sentence; empty if it is not."""
        if node.name in self.names:
            return "kept as asked, by its name"
        return "kept as asked, by its operator" if node.op_type in self.operators else ""


def keeping_of(
    graph: onnx.GraphProto,
    names: Collection[str],
    operators: Collection[str],
    *,
    renamed: Mapping[str, str],
    origins: Mapping[str, tuple[str, ...]],
) -> Keeping:
    """Return what the caller's names mean in the graph.

    A name means the nodes that have it, or had it before those that shared it got names of their own;
    else those inside the function call of that name; else those that have it inside their function.

    Args:
        graph: The graph, its nodes named and its functions inlined.
        names: Names of nodes.
        operators: Operators such as `Softmax`, of any domain.
        renamed: The name a node had, by the one it has now, as `name_nodes` says.
        origins: As `inline_functions` says.

    Raises:
        UsageError: The graph has no such node or operator.
    """
    there = {node.name for node in nodes_in(graph)}
    calls: dict[str, set[str]] = {}
    bodies: dict[str, set[str]] = {}
    before: dict[str, set[str]] = {}
    for name, old in renamed.items():
        before.setdefault(old, {old} & there).add(name)
    for name, (*outer, own) in origins.items():
        if name in there:
            for call in outer:
                calls.setdefault(call, set()).add(name)
            bodies.setdefault(own, set()).add(name)
    found: set[str] = set()
    for name in names:
        meant = before.get(name) or {name} & there or calls.get(name) or bodies.get(name)
        if not name or not meant:
            _refuse("node", name, there | calls.keys())
        found |= meant
    known = {node.op_type for node in nodes_in(graph)}
    for operator in operators:
        if operator not in known:
            _refuse("operator", operator, known)
    return Keeping(names=frozenset(found), operators=frozenset(operators))


def _refuse(what: str, name: str, known: Collection[str]) -> NoReturn:
    near = get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"name one of the model's {what}s exactly as it has it"
    msg = f"the model has no {what} {name!r} to keep in fp32"
    raise UsageError(msg, hint=hint)
