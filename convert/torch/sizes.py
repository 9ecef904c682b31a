"""Choose sizes of symbolic dims for traces and trials, which fit each other like those of the samples."""

from __future__ import annotations

from collections.abc import Mapping

from paritygate.signature import Dim, Signature

# For dims without a range. Not 0 or 1, which torch.export treats as fixed.
_EXAMPLE_SIZE = 8
_SMALLEST_EXAMPLE = 2
# For dims that are not declared.
_LARGEST = 1 << 16


def example_sizes(signature: Signature, ties: Mapping[str, str]) -> dict[str, int]:
    """Return the size of each symbolic dim to trace a module with; the usual sizes where no tied ones fit."""
    sizes = {}
    for symbol in signature.symbols:
        dim = signature.dims.get(symbol)
        sizes[symbol] = _EXAMPLE_SIZE if dim is None else min(max(dim.opt, _SMALLEST_EXAMPLE), dim.max)
    for least in (_SMALLEST_EXAMPLE, 1):
        fitting = fitting_sizes(sizes, signature, ties, least=least)
        if fitting is not None:
            return fitting
    return sizes


def fitting_sizes(
    wanted: Mapping[str, int], signature: Signature, ties: Mapping[str, str], *, kept: str | None = None, least: int = 1
) -> dict[str, int] | None:
    """Return the sizes with tied dims adjusted, whose summands grow or shrink where they must, or None.

    `ties` are sums that a dim equals in all samples: `{"total": "past + new"}`. Ties of dims outside `wanted` are
    ignored. The dim `kept` keeps its size. Other dims are at least `least`, where a size that small is promised.
    """
    sizes = dict(wanted)

    def bounds(name: str) -> tuple[int, int]:
        if name == kept:
            return sizes[name], sizes[name]
        dim = signature.dims.get(name, Dim(min=1, opt=1, max=_LARGEST))
        return min(max(dim.min, least), dim.max), dim.max

    sums_by_dim = {whole: summands(tie) for whole, tie in ties.items()}
    sums_by_dim = {whole: sums for whole, sums in sums_by_dim.items() if {whole, *sums[0]} <= set(sizes)}
    for whole, (parts, plus) in sums_by_dim.items():
        low, high = bounds(whole)
        for part in parts:
            total = plus + sum(sizes[name] for name in parts)
            smallest, largest = bounds(part)
            missing = min(max(total, low), high) - total
            sizes[part] = min(max(sizes[part] + missing, smallest), largest) if missing else sizes[part]
        sizes[whole] = plus + sum(sizes[name] for name in parts)
        if not low <= sizes[whole] <= high:
            return None
    # A dim that two sums share may have been changed for the second one.
    is_fit = all(
        sizes[whole] == plus + sum(sizes[name] for name in parts) for whole, (parts, plus) in sums_by_dim.items()
    )
    return sizes if is_fit else None


def possible_dims(signature: Signature, ties: Mapping[str, str]) -> dict[str, Dim]:
    """Return the declared dims, narrowed to the sizes that tied ones can have beside the others.

    With a mask of at most 16 and a new token, a cache has at most 15. Contradictions of the ties are left.
    """
    dims = dict(signature.dims)
    for whole, tie in ties.items():
        parts, plus = summands(tie)
        if not {whole, *parts} <= set(dims):
            continue
        low, high = plus + sum(dims[name].min for name in parts), plus + sum(dims[name].max for name in parts)
        bounds = {whole: (low, high)}
        for part in parts:
            dim = dims[part]
            bounds[part] = (dims[whole].min - (high - dim.max), dims[whole].max - (low - dim.min))
        for name, (least, most) in bounds.items():
            dims[name] = _within(dims[name], least, most)
    return dims


def _within(dim: Dim, least: int, most: int) -> Dim:
    low, high = max(dim.min, least), min(dim.max, most)
    return Dim(min=low, opt=min(max(dim.opt, low), high), max=high) if low <= high else dim


def summands(tie: str) -> tuple[list[str], int]:
    """Return the dims that are added in an expression such as `past + new + 1`, and the number."""
    words = [word.strip() for word in tie.split("+")]
    return [word for word in words if not word.isdigit()], sum(int(word) for word in words if word.isdigit())
