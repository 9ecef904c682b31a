"""Find sizes at which an exported module may take another branch, from the comparisons in the program's graph.

torch.onnx exports with deferred guards. Where the module branches on a size, such as `if x.shape[0] == 3`, the program
follows the example's branch. Only an unused comparison remains of the other one, which ONNX would lose. Many are
harmless, most often those with 1, which only a run shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paritygate.signature import Dim, TensorSpec

if TYPE_CHECKING:
    import torch

# One of the first sizes flips a comparison such as that of a remainder; its numbers suggest other sizes.
_TRIED = 64
_MOST_SIZES = 4


def branching_sizes(
    program: torch.export.ExportedProgram,
    inputs: Sequence[TensorSpec],
    dims: Mapping[str, Dim],
    usual: Mapping[str, int],
) -> dict[str, tuple[int, ...]]:
    """Return for each promised symbolic dim at most four sizes at which a comparison differs from the trace.

    For each comparison it is the smallest such size of each dim. `inputs` are in the program's order. Undeclared dims
    have all sizes from 1. `usual` has the sizes of the trace.
    """
    symbols = dict(_symbols(program, inputs))
    sizes_by_dim: dict[str, set[int]] = {name: set() for name in symbols.values()}
    for comparison in _comparisons(program):
        names = {symbols[symbol] for symbol in comparison.free_symbols if symbol in symbols}
        for name in names:
            size = _first_branching(comparison, symbols, usual, name, dims.get(name))
            sizes_by_dim[name] |= set() if size is None else {size}
    return {name: tuple(sorted(sizes)[:_MOST_SIZES]) for name, sizes in sizes_by_dim.items() if sizes}


def _symbols(program: torch.export.ExportedProgram, inputs: Sequence[TensorSpec]) -> Iterator[tuple[Any, str]]:
    nodes = {node.name: node for node in program.graph.nodes}
    for spec, name in zip(inputs, program.graph_signature.user_inputs, strict=False):
        value = nodes[name].meta.get("val") if name in nodes else None
        for dim, size in zip(spec.shape or (), getattr(value, "shape", ()), strict=False):
            if isinstance(dim, str) and hasattr(size, "node") and size.node.expr.is_symbol:
                yield size.node.expr, dim


def _comparisons(program: torch.export.ExportedProgram) -> set[Any]:
    import torch

    values = (node.meta.get("val") for node in program.graph.nodes)
    return {value.node.expr for value in values if isinstance(value, torch.SymBool)}


def _first_branching(
    comparison: Any,  # noqa: ANN401 - an expression of SymPy's, which is not typed
    symbols: Mapping[Any, str],
    usual: Mapping[str, int],
    name: str,
    promised: Dim | None,
) -> int | None:
    """Return the smallest size of the dim that flips the comparison, the other dims as usual, or None."""

    def outcome(size: int) -> Any:  # noqa: ANN401 - SymPy's true or false, or an expression
        return comparison.subs({symbol: size if dim == name else usual[dim] for symbol, dim in symbols.items()})

    numbers = {int(atom) for atom in comparison.atoms() if getattr(atom, "is_Integer", False)}
    near = {abs(number) + step for number in numbers for step in (-1, 0, 1)}
    least = promised.min if promised else 1
    sizes = {*range(least, least + _TRIED), *near, *([promised.max] if promised else [])}
    allowed = sorted(size for size in sizes if size >= least and (promised is None or size <= promised.max))
    in_trace = outcome(usual[name])
    return next((size for size in allowed if outcome(size) != in_trace), None)
