"""Pair the inputs and outputs of two models, and check that rows have all inputs."""

from __future__ import annotations

from collections.abc import Sequence

from paritygate.errors import UsageError
from paritygate.validate.tensors.inner_values import Feed
from paritygate.validate.tensors.tensor_graph import TensorGraph


def pairs_of(names: Sequence[str], others: Sequence[str]) -> dict[str, str] | None:
    """Return the other model's name of each, by name, or in order where names differ; None if the numbers differ."""
    if set(names) == set(others):
        return {name: name for name in names}
    return dict(zip(names, others, strict=True)) if len(names) == len(others) else None


def check_feeds(graph: TensorGraph, feeds: Sequence[Feed]) -> None:
    """Raise a `UsageError` if the feeds lack an input of the graph."""
    if all(name in feeds[0] for name in graph.inputs):
        return
    msg = f"the samples lack inputs of the reference (got {', '.join(feeds[0])}; expected {', '.join(graph.inputs)})"
    raise UsageError(msg, hint="give samples with these inputs; --columns renames those of a table")
