"""Infer the role of each input: from the graph, then from dtypes, values and shapes, and last from names."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.errors import UsageError
from paritygate.signature import Signature, TensorSpec, is_integer_dtype
from paritygate.validate.probes.graph.uses import GraphUse
from paritygate.validate.probes.inputs.roles import DeclaredRole, Form, InputRole, Role
from paritygate.validate.probes.inputs.survey import InputSurvey, Survey

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_MASK_WORDS = frozenset({"mask", "masks", "padding", "valid"})
_ID_WORDS = frozenset({"cat", "category", "class", "code", "id", "idx", "ids", "index", "indices", "segment", "token"})
_LENGTH_WORDS = frozenset({"len", "length", "lengths", "lens", "size", "sizes"})
_IMAGE_WORDS = frozenset({"image", "images", "img", "picture", "pixel", "pixels"})
_IMAGE_RANK = 4
_CHANNELS = frozenset({1, 3, 4})
_MATRIX_RANK = 2
# Fewer values may share a form by chance.
_LEAST_VALUES_OF_FORM = 16
# Tables named in the reason.
_NAMED = 8
_WHY_OF_FORM = {
    Form.FLAG: "only two values were seen, one of them 0, so only these are used",
    Form.WHOLE: "every value seen is a whole number, so only such values are used",
    Form.ONE_HOT: "every value seen is one-hot, so only such values are used",
    Form.SHARES: "the values seen sum up to 1, so only such values are used",
}


def infer_roles(
    signature: Signature,
    survey: Survey,
    *,
    uses: Mapping[str, GraphUse] | None = None,
    declared: Mapping[str, DeclaredRole] | None = None,
) -> dict[str, InputRole]:
    """Return the role of each input; declared ones outrank all. Raise UsageError for a mask with values beyond 0, 1."""
    roles = {
        spec.name: _as_declared(
            spec.name,
            (declared or {}).get(spec.name),
            survey.inputs[spec.name],
            _role(spec, survey.inputs[spec.name], uses.get(spec.name, GraphUse()) if uses else None),
        )
        for spec in signature.inputs
        if spec.name in survey.inputs
    }
    with_positions = {name: _with_positions(name, role, roles, signature, survey) for name, role in roles.items()}
    # Divisions apply to every role.
    divisions = {name: use.divisions for name, use in (uses or {}).items()}
    return {name: replace(role, divisions=divisions.get(name, ())) for name, role in with_positions.items()}


def _as_declared(name: str, declared: DeclaredRole | None, seen: InputSurvey, found: InputRole) -> InputRole:
    """Return the declared role, completed by a found one of the same role; ids default to 0 up to the largest seen."""
    if declared is None:
        return found
    if declared.role is Role.MASK and not _is_binary(seen):
        msg = f"input {name!r} is declared a mask, but the samples hold {seen.low:g} to {seen.high:g} in it"
        raise UsageError(msg, hint="declare another role or none, because a mask has only 0 and 1")
    if declared.role is not None and declared.role is not found.role:
        found = InputRole(role=declared.role, why="", is_size=found.is_size, keys=found.keys)
        if declared.role is Role.ID:
            found = replace(found, low=min(0, _whole(seen.low) or 0), high=_whole(seen.high))
    elif declared.role is not None:
        found = replace(found, form=None)
    low, high = (None if end is None else int(end) for end in (declared.low, declared.high))
    return replace(
        found,
        low=found.low if low is None else low,
        high=found.high if high is None else high,
        of=found.of if declared.of is None else declared.of,
        pad=found.pad if declared.pad is None else declared.pad,
        why=found.why if declared.role is None else "the spec declares this",
        # A declared range replaces those of all columns.
        columns=found.columns if low is None and high is None else (),
        declared=declared,
    )


def _role(spec: TensorSpec, seen: InputSurvey, known: GraphUse | None) -> InputRole:
    """Return the role of an input; without a graph, its form and name decide whether it is a size."""
    use = known or GraphUse()
    role = _by_use(spec, seen, use)
    is_alone = not seen.has_rows and all(len(shape) <= 1 for shape in seen.shapes)
    is_likely = is_integer_dtype(spec.dtype) and (role.role is Role.LENGTH or is_alone)
    if not (use.is_size or (known is None and is_likely)):
        return role
    hangs = "a shape or a loop" if known is not None else "as far as is known without a graph, a shape or a loop"
    if (
        role.role in {Role.NUMBER, Role.ID}
        and is_integer_dtype(spec.dtype)
        and not role.is_table
        and spec.dtype != "bool"
    ):
        why = f"{hangs} depends on the input, so probes use only seen values"
        return InputRole(role=Role.NUMBER, why=why, form=Form.FIXED, is_size=True, keys=role.keys)
    return replace(role, is_size=True, why=f"{role.why}; {hangs} depends on the input, so probes use no other values")


def _by_use(spec: TensorSpec, seen: InputSurvey, use: GraphUse) -> InputRole:
    if spec.dtype == "string":
        return InputRole(role=Role.TEXT, why="the input has texts", keys=use.keys)
    # A length less one addresses the last position.
    is_length = use.is_shifted and bool(_words(spec) & _LENGTH_WORDS)
    if is_integer_dtype(spec.dtype) and use.table_rows is not None and not is_length:
        longest = max((shape[1] for shape in seen.shapes if len(shape) >= _MATRIX_RANK), default=0)
        positions = min((size for size in use.positions if size >= longest), default=None) if longest else None
        use = _with_parts_as_seen(use, seen)
        low, high = _in_dtype(spec.dtype, use.first_id, use.first_id + (use.table_rows or 0) - 1)
        return InputRole(
            role=Role.ID,
            why=_why_id(use),
            low=low,
            high=high,
            pad=use.equals,
            positions=positions,
            is_table=True,
            columns=tuple(None if ends is None else _in_dtype(spec.dtype, *ends) for ends in use.columns),
            reach=tuple(None if ends is None else _in_dtype(spec.dtype, *ends) for ends in use.reach),
            is_shifted=use.is_shifted,
            thresholds=use.thresholds,
        )
    role = _mask(spec, seen, use) or _by_shape_and_name(spec, seen, use)
    return replace(role, takes_missing=use.is_tested, thresholds=use.thresholds, buckets=use.buckets, keys=use.keys)


def _with_parts_as_seen(use: GraphUse, seen: InputSurvey) -> GraphUse:
    """Return the use with the whole shared table for columns whose samples hold ids beyond their own part."""
    if not use.reach:
        return use
    own = (use.first_id, use.first_id + (use.table_rows or 0) - 1)
    parts = use.columns or (own,) * len(use.reach)
    lows, highs = (np.broadcast_to(bound, (len(parts),)) for bound in seen.bounds())
    if all(
        part is None or whole is None or (low >= part[0] and high <= part[1])
        for part, whole, low, high in zip(parts, use.reach, lows, highs, strict=True)
    ):
        return use
    columns = tuple(part if whole is None else whole for part, whole in zip(parts, use.reach, strict=True))
    return replace(use, columns=columns, reach=())


def _in_dtype(dtype: str, low: int, high: int) -> tuple[int, int]:
    limits = (0, 1) if dtype == "bool" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return max(low, limits[0]), min(high, limits[1])


def _why_id(use: GraphUse) -> str:
    ranges = [ends for ends in use.columns if ends is not None]
    if any(use.reach):
        number = sum(ends is not None for ends in use.reach)
        return f"{number} of its columns have parts of one table, led there by what is added to each"
    if ranges:
        sizes = ", ".join(str(high - low + 1) for low, high in ranges[:_NAMED])
        return f"its columns index tables of {sizes}{' and more' if len(ranges) > _NAMED else ''} rows"
    first = f", the first by {use.first_id}" if use.first_id else ""
    return f"it indexes a table of {use.table_rows} rows{first}"


def _by_shape_and_name(spec: TensorSpec, seen: InputSurvey, use: GraphUse) -> InputRole:
    words, is_whole = _words(spec), is_integer_dtype(spec.dtype)
    rank = len(seen.shapes[0]) if seen.shapes else 0
    if is_whole and rank <= _MATRIX_RANK and words & _LENGTH_WORDS:
        return InputRole(role=Role.LENGTH, why="by its name", low=_whole(seen.low), high=_whole(seen.high))
    if is_whole and use.is_place:
        why = "the input selects where to read or write, so probes use only seen values"
        return InputRole(role=Role.NUMBER, why=why, form=Form.FIXED)
    if rank == _IMAGE_RANK and (use.is_convolved or words & _IMAGE_WORDS or _CHANNELS & set(seen.shapes[0][1:])):
        why = "the input is convolved" if use.is_convolved else "the input has rank 4, as pictures do"
        return InputRole(role=Role.IMAGE, why=why)
    if is_whole and words & _ID_WORDS:
        low, high = _whole(seen.low), _whole(seen.high)
        return InputRole(role=Role.ID, why="by its name; the range is that of the samples", low=low, high=high)
    form = _form(spec, seen)
    return InputRole(role=Role.NUMBER, why=_WHY_OF_FORM[form] if form else "nothing shows another role", form=form)


def _form(spec: TensorSpec, seen: InputSurvey) -> Form | None:
    if spec.dtype == "bool" or seen.values < _LEAST_VALUES_OF_FORM:
        return None
    distinct = seen.distinct or ()
    if seen.is_shares:
        return Form.ONE_HOT if set(distinct) <= {0.0, 1.0} and distinct else Form.SHARES
    if len(distinct) == 2 and 0.0 in distinct:  # noqa: PLR2004 - set or not
        return Form.FLAG
    return Form.WHOLE if seen.is_whole and not is_integer_dtype(spec.dtype) else None


def _words(spec: TensorSpec) -> set[str]:
    return {word.lower() for word in _WORDS.findall(spec.name)}


def _mask(spec: TensorSpec, seen: InputSurvey, use: GraphUse) -> InputRole | None:
    words = _words(spec)
    if not (is_integer_dtype(spec.dtype) or words & _MASK_WORDS):
        return None
    has_rank = bool(seen.shapes) and len(seen.shapes[0]) >= _MATRIX_RANK
    if not _is_binary(seen) or not has_rank:
        return None
    if words & _MASK_WORDS:
        return InputRole(role=Role.MASK, why="zeros and ones, and its name", low=0, high=1)
    # Two values alone make no mask: flags have two as well, and both results of a flag count.
    if use.masking.is_mask and not words & _ID_WORDS:
        why = "the input has only zeros and ones, and the graph drops positions where it is 0"
        return InputRole(role=Role.MASK, why=why, low=0, high=1)
    return None


def _is_binary(seen: InputSurvey) -> bool:
    return bool(seen.distinct) and set(seen.distinct or ()) <= {0.0, 1.0}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _with_positions(
    name: str, role: InputRole, roles: Mapping[str, InputRole], signature: Signature, survey: Survey
) -> InputRole:
    if role.role is Role.MASK and role.of is None:
        return replace(role, of=_beside(name, roles, signature, survey), axis=1)
    if role.role is Role.ID:
        seen = survey.inputs[name]
        has_positions = bool(seen.shapes) and len(seen.shapes[0]) >= _MATRIX_RANK
        pad = role.pad if role.pad is not None else _pad(name, roles, signature, survey)
        return replace(role, axis=1 if has_positions else None, pad=pad)
    if role.role is Role.LENGTH and role.of is None:
        return replace(role, of=_counted(name, roles, survey))
    return role


def _counted(name: str, roles: Mapping[str, InputRole], survey: Survey) -> str | None:
    """Return the input whose positions the lengths count, ids first; its second axis is at least as long."""
    longest = survey.inputs[name].high or 0
    others = [
        other
        for other in roles
        if other != name
        and survey.inputs[other].has_rows
        and survey.inputs[other].shapes
        and all(len(shape) >= _MATRIX_RANK for shape in survey.inputs[other].shapes)
        and max(shape[1] for shape in survey.inputs[other].shapes) >= longest
    ]
    ranked = sorted(others, key=lambda other: (roles[other].role is not Role.ID, -len(survey.inputs[other].shapes[0])))
    return ranked[0] if ranked else None


def _beside(name: str, roles: Mapping[str, InputRole], signature: Signature, survey: Survey) -> str | None:
    """Return the input with the same rows and positions that the mask is about, ids first."""
    by_name = {spec.name: spec for spec in signature.inputs}
    positions = _first_dims(by_name[name], survey)
    others = [
        other
        for other in roles
        if other != name and roles[other].role is not Role.MASK and _first_dims(by_name[other], survey) == positions
    ]
    return next((other for other in others if roles[other].role is Role.ID), others[0] if others else None)


def _first_dims(spec: TensorSpec, survey: Survey) -> tuple[object, ...]:
    shape = spec.shape if spec.shape is not None and None not in spec.shape else None
    if shape is None:
        shapes = survey.inputs[spec.name].shapes
        return tuple(item[:_MATRIX_RANK] for item in shapes)
    return tuple(shape[:_MATRIX_RANK])


def _pad(name: str, roles: Mapping[str, InputRole], signature: Signature, survey: Survey) -> int | None:
    """Return the id at every position where the mask is 0; None if there is no mask, or no such id."""
    masks = [
        other
        for other, role in roles.items()
        if role.role is Role.MASK and (role.of or _beside(other, roles, signature, survey)) == name
    ]
    if not masks:
        return None
    pads: set[int] = set()
    for group in survey.groups:
        ids: NDArray[np.generic] = group.inputs[name]
        mask = group.inputs[masks[0]]
        if ids.shape == mask.shape:
            pads |= set(np.unique(ids[mask.astype(np.float64) == 0]).tolist())
    return pads.pop() if len(pads) == 1 else None
