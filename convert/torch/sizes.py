"""Sizes that symbolic dims are traced with and tried at: they fit each other as those of the samples do."""

from __future__ import annotations

from collections.abc import Mapping

from paritygate.signature import Dim, Signature

# What a symbolic dim is traced with where its range is not given. Not 0 or 1, which torch.export takes for fixed.
_EXAMPLE_SIZE = 8
_SMALLEST_EXAMPLE = 2
# The largest size of a dim that is not declared.
_LARGEST = 1 << 16


def example_sizes(signature: Signature, ties: Mapping[str, str]) -> dict[str, int]:
    """Return the size of each symbolic dim that a module is traced with.

    Args:
        signature: The dims and the sizes promised of them.
        ties: See `fitting_sizes`; where nothing fits, the usual sizes are returned.
    """
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
    wanted: Mapping[str, int],
    signature: Signature,
    ties: Mapping[str, str],
    *,
    kept: str | None = None,
    least: int = 1,
) -> dict[str, int] | None:
    """Return the sizes with those of tied dims made to fit: what a dim is the sum of grows or shrinks where it must.

    Args:
        wanted: The size of each dim; ties of dims that are not among them are left out.
        signature: The sizes promised.
        ties: What a dim is in all samples, as a sum of others: `{"total": "past + new"}`.
        kept: The dim that keeps its size.
        least: The smallest size that another dim is brought to, where so small a size is promised at all.

    Returns:
        None where no sizes promised fit.
    """
    sizes = dict(wanted)

    def bounds(name: str) -> tuple[int, int]:
        if name == kept:
            return sizes[name], sizes[name]
        dim = signature.dims.get(name, Dim(min=1, opt=1, max=_LARGEST))
        return min(max(dim.min, least), dim.max), dim.max

    known = {whole: summands(tie) for whole, tie in ties.items()}
    known = {whole: sums for whole, sums in known.items() if {whole, *sums[0]} <= set(sizes)}
    for whole, (parts, plus) in known.items():
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
    is_fit = all(sizes[whole] == plus + sum(sizes[name] for name in parts) for whole, (parts, plus) in known.items())
    return sizes if is_fit else None


def possible_dims(signature: Signature, ties: Mapping[str, str]) -> dict[str, Dim]:
    """Return the declared dims, narrowed to the sizes that tied ones can have beside the others.

    A cache of at most 16 under a mask of at most 16 is of at most 15, where there is something new as well.

    Args:
        signature: The sizes promised.
        ties: As of `fitting_sizes`; what contradicts them is left as it is.
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
    """Return the dims that are added in such as `past + new + 1`, and the number."""
    words = [word.strip() for word in tie.split("+")]
    return [word for word in words if not word.isdigit()], sum(int(word) for word in words if word.isdigit())
