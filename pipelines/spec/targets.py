"""The targets of a spec: variants by name, and variants with fixed dims together with the rule for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from paritygate.convert.checked import FIXERS
from paritygate.errors import UsageError
from paritygate.models.fixed_shape import FixedShape
from paritygate.precision import Variant
from paritygate.signature import Signature
from paritygate.text import closest, nearest_first

# The largest size that every runtime can count: some hold it in 32 bits.
_LARGEST_SIZE = 2**31 - 1
_Size = Annotated[int, Field(ge=1, strict=True)]
_Value = Annotated[float, Field(allow_inf_nan=False)]


class StaticTarget(BaseModel):
    """A variant with fixed dims, for devices that compile a model for one shape."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="The variant whose dims are fixed, such as onnx-fp32.")
    static: dict[str, _Size] = Field(min_length=1, description="The size of each dim that is fixed.")
    pad: dict[str, _Value] = Field(
        default_factory=dict, description="What shorter inputs are filled up with, by input; rows need no value."
    )
    dtypes: dict[str, str] = Field(
        default_factory=dict, description="By input, the dtype that the fixed model takes: int32, or float32."
    )


def _kind_of(item: object) -> str:
    return "static" if isinstance(item, (Mapping, StaticTarget)) else "name"


Target = Annotated[Annotated[str, Tag("name")] | Annotated[StaticTarget, Tag("static")], Discriminator(_kind_of)]


def place_in_spec(location: Sequence[int | str]) -> tuple[int | str, ...]:
    """Return where in the spec an error is, without what only tells the kinds of targets and of metrics apart."""
    place = tuple(location)
    if place[:1] == ("gold",):
        return (place[0], *place[2:])
    return (*place[:2], *place[3:]) if place[:1] == ("targets",) else place


def variant_of_target(target: str | StaticTarget) -> Variant:
    """Return the variant that a target is.

    Raises:
        UsageError: There is no such variant, or a size is larger than any runtime can count.
    """
    variant = _variant(target)
    for name, size in variant.static:
        if size > _LARGEST_SIZE:
            msg = f"target {str(variant)!r} fixes {name} at {size} (allowed: 1 to {_LARGEST_SIZE})"
            raise UsageError(msg, hint="fix it at the size that the model will be run with")
    return variant


def _variant(target: str | StaticTarget) -> Variant:
    if isinstance(target, str):
        return Variant.parse(target)
    plain = Variant.parse(target.name)
    if plain.static:
        msg = f"target {target.name!r} has fixed dims in its name, and static beside it"
        raise UsageError(msg, hint=f"write name: {plain.dynamic}, and the dims under static")
    return Variant(format=plain.format, precision=plain.precision, static=tuple(target.static.items()))


def name_of_target(target: str | StaticTarget) -> str:
    """Return the name that the variant of a target has everywhere.

    Raises:
        UsageError: There is no such variant.
    """
    return str(variant_of_target(target))


def fixed_shape_of(target: str | StaticTarget, signature: Signature) -> FixedShape | None:
    """Return how the dims of a target are fixed; None if none is.

    Args:
        target: As the spec has it.
        signature: The model's, with no dim fixed.

    Raises:
        UsageError: A dim cannot be fixed so, or a pad value or dtype does not fit.
    """
    variant = variant_of_target(target)
    if not variant.static:
        return None
    pad: Mapping[str, float] = {} if isinstance(target, str) else target.pad
    dtypes: Mapping[str, str] = {} if isinstance(target, str) else target.dtypes
    try:
        return FixedShape(dims=dict(variant.static), pad=pad, dtypes=dtypes, signature=signature)
    except UsageError as err:
        msg = f"target {str(variant)!r}: {err}"
        raise UsageError(msg, **err.next_step) from err


def check_targets(
    targets: Sequence[str | StaticTarget], *, available: Sequence[Variant], signature: Signature | None, origin: str
) -> None:
    """Check that every target can be made, and stands there once.

    Args:
        targets: As the spec has them.
        available: The variants that can be made.
        signature: The declared one; None where only the source knows it: then fixed dims are checked at export.
        origin: Where the spec was read from, for messages.

    Raises:
        UsageError: A target is unknown, of a format whose dims cannot be fixed, fixed where it cannot be, or twice.
    """
    for target in targets:
        _check_target(target, available, signature, origin)
    seen: set[Any] = set()
    names = [name_of_target(target) for target in targets]
    for variant in map(variant_of_target, targets):
        # The same dims in another order are the same variant.
        key = (variant.dynamic, frozenset(variant.static))
        if key in seen:
            msg = f"spec {origin}: a target occurs twice ({', '.join(names)})"
            raise UsageError(msg, hint="name each target once")
        seen.add(key)


def target_meant(name: str, known: Sequence[str]) -> str:
    """Return which target may be meant, in words; empty where none is near, or it is the name of one itself."""
    plain = name.partition("@")[0]
    close = closest(plain, known)
    # onnx-fp64 is no slip of the pen for onnx-fp16: what is meant has the same digits.
    return f"did you mean {close}?" if close and close != plain and _digits(close) == _digits(plain) else ""


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


def _check_target(
    target: str | StaticTarget, available: Sequence[Variant], signature: Signature | None, origin: str
) -> None:
    name = target if isinstance(target, str) else target.name
    plain, names = name.partition("@")[0], [str(each) for each in available]
    meant = target_meant(name, names)
    if plain not in names:
        msg = f"spec {origin}: target {name!r} is not available (available: {', '.join(nearest_first(plain, names))})"
        raise UsageError(msg, hint=meant or "name one of these, the nearest of which come first")
    try:
        variant = variant_of_target(target)
    except UsageError as err:
        msg = f"spec {origin}: {err}"
        raise UsageError(msg, hint=meant or err.hint) from err
    if variant.static and variant.format not in FIXERS:
        msg = f"spec {origin}: the dims of {str(variant)!r} cannot be fixed (formats that can: {', '.join(FIXERS)})"
        raise UsageError(msg, hint=f"use {variant.dynamic}, or fix the dims of another format")
    if signature is not None:
        fixed_shape_of(target, signature)
