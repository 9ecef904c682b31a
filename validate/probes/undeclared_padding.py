"""Find outputs that an undeclared mask pads; only if all evidence agrees is the mask trusted.

The input has the role of a mask, and its zeros are at one end of every row of the samples. The graph leaves out values
there, and does not choose between two results by it. Other inputs' values there do not change the reference's outputs
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from paritygate.batch import Arrays
from paritygate.errors import BackendError, MeasurementError, UsageError
from paritygate.signature import Signature
from paritygate.validate.measure.valid_positions import PaddingMask, valid_positions, valid_rows
from paritygate.validate.probes.graph.uses import GraphUse
from paritygate.validate.probes.inputs.padding import Padding
from paritygate.validate.probes.inputs.roles import InputRole, Role
from paritygate.validate.probes.inputs.survey import InputSurvey, Rows, Survey

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.runners.runner import Runner


_AT_ONE_END = frozenset({Padding.RIGHT, Padding.LEFT})
_MASK_RANK = 2
# Rows that run with other values in their padding.
_ROWS = 8
# A weight of exactly zero passes on nothing; the rest is rounding.
_UNREAD = 1e-4


def padding_masks(
    reference: Signature,
    survey: Survey,
    roles: Mapping[str, InputRole],
    uses: Mapping[str, GraphUse],
    *,
    others: Sequence[Signature | None] = (),
) -> dict[str, PaddingMask]:
    """Return by output the only mask that leaves some of it out, by samples, roles and graph.

    Rows whose mask is all zero count, unless roles exclude them. Dims are matched by name, with `others` as signatures
    that may name dims where the reference does not. Without a graph no position is left out.
    """
    signatures = (reference, *others)
    masks = {name: role for name, role in roles.items() if role.role is Role.MASK}
    by_output: dict[str, list[PaddingMask]] = {}
    for output in (spec.name for spec in reference.outputs):
        for name, role in masks.items():
            seen = survey.inputs[name]
            is_padding = name in uses and uses[name].masking.is_mask and _is_at_one_end(seen)
            mask = _by_position(output, name, signatures) if is_padding else None
            if mask is not None:
                are_held = bool(role.declared.empty)
                mask = replace(mask, why=_why(name, role, seen), are_empty_rows_held=are_held)
            elif role.declared.empty is False and Padding.EMPTY in seen.padding.kinds:
                mask = _of_empty_rows(output, name, signatures)
            by_output.setdefault(output, []).extend([] if mask is None else [mask])
    # Two masks of one output are ambiguous.
    return {output: of_output[0] for output, of_output in by_output.items() if len(of_output) == 1}


def _is_at_one_end(seen: InputSurvey) -> bool:
    """Return whether some rows are padded at one end, and none in another way."""
    kinds = set(seen.padding.kinds)
    has_positions = seen.has_rows and len(seen.largest_sizes) == _MASK_RANK and seen.largest_sizes[1] > 1
    return has_positions and bool(kinds & _AT_ONE_END) and kinds <= _AT_ONE_END | {Padding.NONE, Padding.EMPTY}


def _by_position(output: str, mask: str, signatures: Sequence[Signature | None]) -> PaddingMask | None:
    try:
        axes = valid_positions({output: mask}, signatures)[output].axes
    except UsageError:
        return None
    return PaddingMask(input=mask, axes=axes, why="")


def _of_empty_rows(output: str, mask: str, signatures: Sequence[Signature | None]) -> PaddingMask | None:
    try:
        axes = valid_rows(output, mask, signatures).axes
    except UsageError:
        return None
    return PaddingMask(
        input=mask, axes=axes, why=f"the declared roles exclude rows without {mask}", is_of_empty_rows=True
    )


def _why(name: str, role: InputRole, seen: InputSurvey) -> str:
    ends = " or ".join(
        {Padding.RIGHT: "the end", Padding.LEFT: "the beginning"}[kind]
        for kind in seen.padding.kinds
        if kind in _AT_ONE_END
    )
    what = f"the positions of {role.of}" if role.of is not None else "positions"
    return f"{name} masks {what}, with its zeros at {ends} of every row of the samples that has any"


def unread_by(
    runner: Runner, survey: Survey, roles: Mapping[str, InputRole], masks: Mapping[str, PaddingMask]
) -> dict[str, PaddingMask]:
    """Return masks of outputs that values under the mask do not change, and all masks of excluded rows."""
    unread = {output: mask for output, mask in masks.items() if mask.is_of_empty_rows}
    for name in dict.fromkeys(mask.input for mask in masks.values() if not mask.is_of_empty_rows):
        pair = _with_other_padding(runner, survey, roles, name)
        if pair is None:
            continue
        try:
            answers, others = (runner.run(inputs) for inputs in pair)
        except (BackendError, UsageError, MeasurementError):
            continue
        unread |= {
            output: mask
            for output, mask in masks.items()
            if mask.input == name
            and not mask.is_of_empty_rows
            and _is_alike(answers[output], others[output], mask.left_out(pair[0], output, answers[output].shape))
        }
    return unread


def _with_other_padding(
    runner: Runner, survey: Survey, roles: Mapping[str, InputRole], mask: str
) -> tuple[Arrays, Arrays] | None:
    """Return padded real rows, and the same with real values in their padding; None if there are none."""
    for group in survey.groups:
        is_set = np.asarray(group.inputs[mask] != 0)
        padded = np.flatnonzero(is_set.any(axis=1) & ~is_set.all(axis=1))
        if not padded.size:
            continue
        inputs = group.take(np.resize(padded, _rows(runner, survey, len(padded))).tolist())
        changed = {
            name: _filled(array, np.asarray(inputs[mask] != 0))
            for name, array in inputs.items()
            if _has_positions(name, array, group, inputs[mask]) and roles[name].role is not Role.MASK
        }
        if any((changed[name] != inputs[name]).any() for name in changed):
            return inputs, {**inputs, **changed}
    return None


def _rows(runner: Runner, survey: Survey, found: int) -> int:
    """Return the number of rows to run: a few, or the fixed batch."""
    is_fixed = any(spec.shape and isinstance(spec.shape[0], int) for spec in runner.signature.inputs)
    least = survey.batch_sizes[0]
    return least if is_fixed else max(1, min(found, least, _ROWS))


def _has_positions(name: str, array: NDArray[np.generic], group: Rows, mask: NDArray[np.generic]) -> bool:
    return name in group.with_rows and array.shape[:_MASK_RANK] == mask.shape


def _filled(array: NDArray[np.generic], is_set: NDArray[np.bool_]) -> NDArray[np.generic]:
    """Return an array with values of real positions, in order, in its padding."""
    changed: NDArray[Any] = array.copy()
    real = array[is_set]
    changed[~is_set] = real[np.arange(np.count_nonzero(~is_set)) % len(real)]
    return changed


def _is_alike(one: NDArray[np.generic], other: NDArray[np.generic], left_out: NDArray[np.bool_]) -> bool:
    if one.shape != other.shape or one.dtype.kind not in "fiubV":
        return False
    a, b = (array.astype(np.float64)[~left_out] for array in (one, other))
    if not a.size:
        return True
    with np.errstate(invalid="ignore"):
        # NaN equals nothing.
        return bool((np.abs(a - b) <= _UNREAD * max(1.0, float(np.std(a)))).all())
