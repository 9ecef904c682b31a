"""Positions of an output that count: those where an input, such as an attention mask, is set.

The reference's output carries them as a masked array of NumPy, which `left_out_of` reads. Code without masks compares
every position, which is stricter and never less.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.errors import UsageError
from paritygate.signature import Signature, TensorSpec

_MASK_RANK = 2


# As many bits as a float64 holds exactly.
_DIGEST_BYTES = 6


class ValidWhere(Struct, frozen=True, kw_only=True):
    """The input that selects the positions of an output that count, and how its dims lie in the output.

    A position counts where the input is not zero. For each axis of the input, `axes` has the axes of the output with
    the dim's name; none for an axis of size 1. Of several, as in attention between positions, each of them has to be
    set.
    """

    input: str
    axes: tuple[tuple[int, ...], ...]

    def left_out(self, inputs: Arrays, output: str, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return which positions of an output of this shape do not count; raise UsageError for an unfit mask."""
        where = f"valid_where: {output} counts where {self.input} is set"
        if self.input not in inputs:
            msg = f"{where}, but the samples hold no {self.input!r} (they hold: {', '.join(inputs)})"
            raise UsageError(msg, hint="name an input that every batch of the samples holds")
        mask = inputs[self.input]
        try:
            named = np.asarray(mask != 0).reshape([mask.shape[at] for at, axes in enumerate(self.axes) if axes])
            is_valid = np.ones(shape, dtype=bool)
            for places in itertools.product(*(axes for axes in self.axes if axes)):
                spread = [1] * len(shape)
                for size, at in zip(named.shape, places, strict=True):
                    spread[at] = size
                is_valid &= named.transpose(np.argsort(places)).reshape(spread)
        except (IndexError, ValueError):
            msg = f"{where}, but their shapes do not fit: {list(mask.shape)} beside {list(shape)} of the output"
            raise UsageError(msg, hint="check the declared names: dims of one name have one size in a batch") from None
        return ~is_valid


class PaddingMask(ValidWhere, frozen=True, kw_only=True):
    """An undeclared mask of padding: values that it leaves out are compared apart, and a difference is reported.

    A row whose zeros are not all at one end counts in full. `why` is the reason to take it for a mask of padding, as
    text. With `is_of_empty_rows` it leaves out whole rows, where the mask is nowhere set, because they are declared
    never to occur. Nothing else leaves out a row of an output without positions. With `are_empty_rows_held` such rows
    are declared to occur, so that they count in full.
    """

    why: str
    is_of_empty_rows: bool = False
    are_empty_rows_held: bool = False

    def left_out(self, inputs: Arrays, output: str, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return which positions of an output of this shape are left out; none where the mask does not fit."""
        mask = inputs.get(self.input)
        if mask is None or mask.ndim != _MASK_RANK:
            return np.zeros(shape, dtype=bool)
        is_set = np.asarray(mask != 0)
        is_at_one_end = np.count_nonzero(np.diff(is_set, axis=1), axis=1) <= 1
        is_held = ~is_at_one_end | (self.are_empty_rows_held & ~is_set.any(axis=1))
        is_set = is_set | is_held[:, None]
        try:
            # By its name, because a decorator with slots returns another class than `super` looks for.
            return ValidWhere.left_out(
                self, {self.input: is_set.any(axis=1) if self.is_of_empty_rows else is_set}, output, shape
            )
        except UsageError:
            return np.zeros(shape, dtype=bool)


def valid_positions(valid_where: Mapping[str, str], signatures: Iterable[Signature | None]) -> dict[str, ValidWhere]:
    """Return how each input lies in the output whose positions it selects, by output; dims match by their names.

    Of the known `signatures` of reference and candidate, the first that names the dims of both counts. UsageError is
    raised where there is no such input or output, or the output lacks a dim of the input.
    """
    available = [signature for signature in signatures if signature is not None]
    return {output: _valid_where(output, name, available) for output, name in valid_where.items()}


def valid_rows(output: str, mask: str, signatures: Iterable[Signature | None]) -> ValidWhere:
    """Return how the rows of a mask lie in an output, by the name of its first dim."""
    by_row = [
        replace(signature, inputs=tuple(_rows_alone(spec) if spec.name == mask else spec for spec in signature.inputs))
        for signature in signatures
        if signature is not None
    ]
    return _valid_where(output, mask, by_row)


def _rows_alone(spec: TensorSpec) -> TensorSpec:
    return replace(spec, shape=None if spec.shape is None else spec.shape[:1])


def _valid_where(output: str, name: str, signatures: list[Signature]) -> ValidWhere:
    where = f"valid_where {output}={name}"
    pairs = []
    for signature in signatures:
        inputs = {spec.name: spec for spec in signature.inputs}
        outputs = {spec.name: spec for spec in signature.outputs}
        for what, specs, wanted in (("input", inputs, name), ("output", outputs, output)):
            if wanted not in specs:
                msg = f"{where}: {wanted!r} is not an {what} ({what}s: {', '.join(specs)})"
                raise UsageError(msg, hint="write OUTPUT=INPUT by the names served, such as logits=attention_mask")
        pairs.append((inputs[name], outputs[output]))
    named = [(mask, fit) for mask, fit in pairs if mask.shape is not None and fit.shape is not None]
    if not named:
        seen = "; ".join(f"{mask}, {fit}" for mask, fit in pairs) or "no signature is known"
        msg = f"{where} matches dims by name, but neither side names the dims of both ({seen})"
        raise UsageError(
            msg,
            hint="declare shapes with names in model.inputs and model.outputs of a spec, or compare an ONNX file, or a "
            "reference that runs here",
        )
    fit = [_axes(*pair) for pair in named]
    fitting = next((axes for axes in fit if not isinstance(axes, str)), None)
    if fitting is None:
        msg = f"{where}: {fit[0]}: {named[0][0]} beside {named[0][1]}"
        raise UsageError(msg, hint="give every dim of the mask the name of a dim of the output")
    return ValidWhere(input=name, axes=fitting)


def _axes(mask: TensorSpec, output: TensorSpec) -> tuple[tuple[int, ...], ...] | str:
    """Return the axes of the output for each axis of the mask, or the reason why there are none."""
    if mask.dtype == "string":
        return "texts are no mask"
    of_mask, of_output = mask.shape or (), output.shape or ()
    names = [dim for dim in of_mask if dim != 1]
    places = tuple(() if dim == 1 else tuple(at for at, own in enumerate(of_output) if own == dim) for dim in of_mask)
    missing = [dim for dim in names if not isinstance(dim, str) or dim not in of_output]
    if not names or len(missing) == len(names):
        return "they share no dim by name"
    if missing:
        return f"dim {missing[0]!r} of the mask is none of the output's"
    return "a dim occurs twice in the mask" if len(set(names)) < len(names) else places


def only_valid(outputs: Arrays, inputs: Arrays, positions: Mapping[str, ValidWhere]) -> dict[str, NDArray[np.generic]]:
    """Return the reference's output of a batch with uncounted positions masked; raise UsageError for an unfit mask."""
    masked = dict(outputs)
    for name, where in positions.items():
        if name in masked:
            masked[name] = _masked(masked[name], where.left_out(inputs, name, masked[name].shape))
    return masked


def only_left_out(outputs: Arrays) -> dict[str, NDArray[np.generic]]:
    """Return the reference's output with the positions that count masked, in place of the others."""
    return {name: _masked(array, ~np.ma.getmaskarray(array)) for name, array in outputs.items()}


def like(outputs: Arrays, others: Arrays) -> dict[str, NDArray[np.generic]]:
    """Return outputs with those positions masked that are in others of the same names; where shapes differ, none."""
    masked = dict(outputs)
    for name, array in outputs.items():
        left_out = left_out_of(others[name]) if name in others else None
        if left_out is not None and left_out.shape == array.shape:
            masked[name] = _masked(array, left_out)
    return masked


def _masked(array: NDArray[np.generic], left_out: NDArray[np.bool_]) -> NDArray[np.generic]:
    masked: NDArray[Any] = np.ma.MaskedArray(np.asarray(array), mask=left_out)
    return masked


def left_out_of(array: NDArray[np.generic]) -> NDArray[np.bool_] | None:
    """Return which positions of an array do not count; None where all do."""
    # NumPy imports masked arrays where they are first named, which takes longer than most batches.
    if type(array) is np.ndarray:
        return None
    if not isinstance(array, np.ma.MaskedArray):
        return None
    left_out: NDArray[np.bool_] = np.ma.getmaskarray(array)
    return left_out if left_out.any() else None


def not_a_number(array: NDArray[np.generic], left_out: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """Return an array in float64, with NaN where a position does not count; of text, a number for each text."""
    plain = np.asarray(array)
    wide = _numbers_of(plain) if plain.dtype.kind == "U" else plain.astype(np.float64)
    if left_out is not None:
        wide[left_out] = np.nan
    return wide


def _numbers_of(texts: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return an integer for each text: the same in every batch, and another for every other text."""
    distinct, places = np.unique(texts, return_inverse=True)
    numbers = [
        int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest(), "big") for text in distinct
    ]
    return np.asarray(numbers, dtype=np.float64)[places].reshape(texts.shape)


def blanked(array: NDArray[np.generic], left_out: NDArray[np.bool_] | None) -> NDArray[np.generic]:
    """Return an array with zeros where a position does not count, so that two of them do not differ there."""
    plain = np.asarray(array)
    return plain if left_out is None else np.where(left_out, np.zeros((), plain.dtype), plain)
