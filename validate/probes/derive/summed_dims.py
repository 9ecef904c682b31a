"""Dims that are the sum of others, as a decoder's mask covers its cache and the new tokens."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

# A dim is identified by its places (input, axis).
_Places = tuple[tuple[str, int], ...]
_Sizes = tuple[int, ...]


# This many sizes at a constant step from another dim are no chance: a decoder fed one token per call.
_SHAPES_OF_A_STEP = 3


class Sum(Struct, frozen=True, kw_only=True):
    """The parts of a dim that is a sum: the places of the other dims, and a constant.

    `is_sure` where its name shows it, or samples of several shapes do: one shape may fit by chance.
    """

    parts: tuple[_Places, ...]
    plus: int = 0
    is_sure: bool = False


def sums_of(dims: Mapping[_Places, tuple[str, _Sizes]], masks: Collection[str] = ()) -> dict[_Places, Sum]:
    """Return the dims that are sums, by names such as `past_length + 1`, else by their sizes in each shape seen."""
    sums = {whole: total for whole, (name, _) in dims.items() if (total := _by_name(name, dims)) is not None}
    # Next to an always empty dim, two dims are each other's sum: choose the mask's.
    for whole in sorted(dims, key=lambda places: not any(name in masks for name, _ in places)):
        sizes = dims[whole][1]
        is_part = any(whole in item.parts for item in sums.values())
        if whole in sums or is_part or not any(sizes):
            continue
        for one, two in itertools.combinations(_apart(whole, dims, sums), 2):
            if sizes == tuple(a + b for a, b in zip(dims[one][1], dims[two][1], strict=True)):
                sums[whole] = Sum(parts=(one, two), is_sure=len(set(sizes)) > 1)
                break
        else:
            sums |= _longer(whole, dims, sums)
    return sums


def _longer(
    whole: _Places, dims: Mapping[_Places, tuple[str, _Sizes]], found: Mapping[_Places, Sum]
) -> dict[_Places, Sum]:
    """Return the dim as another one plus a constant, where enough shapes show it."""
    sizes = dims[whole][1]
    for part in _apart(whole, dims, found) if len(set(sizes)) >= _SHAPES_OF_A_STEP else ():
        steps = {size - other for size, other in zip(sizes, dims[part][1], strict=True)}
        if len(steps) == 1 and min(steps) > 0:
            return {whole: Sum(parts=(part,), plus=min(steps), is_sure=True)}
    return {}


def _apart(
    whole: _Places, dims: Mapping[_Places, tuple[str, _Sizes]], found: Mapping[_Places, Sum]
) -> Iterator[_Places]:
    """Yield the dims that may be parts: no sum itself, and no other side of the same picture."""
    inputs = {name for name, _ in whole}
    for places in dims:
        if places != whole and places not in found and not inputs & {name for name, _ in places}:
            yield places


def _by_name(name: str, dims: Mapping[_Places, tuple[str, _Sizes]]) -> Sum | None:
    places = {other: place for place, (other, _) in dims.items()}
    words = [word.strip() for word in name.split("+")]
    parts = tuple(places[word] for word in words if word in places)
    numbers = [int(word) for word in words if word.isdigit()]
    if len(words) < 2 or not parts or len(parts) + len(numbers) != len(words):  # noqa: PLR2004 - one word is not a sum
        return None
    return Sum(parts=parts, plus=sum(numbers), is_sure=True)
