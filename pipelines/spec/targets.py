"""The targets of a spec: variants by name, and variants with fixed dims and their rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from paritygate.convert.checked import FIXERS
from paritygate.convert.conversion import DERIVATIONS
from paritygate.errors import UsageError
from paritygate.formats import why_no_bf16
from paritygate.models.fixed_shape import FixedShape
from paritygate.pipelines.spec.part import SpecPart
from paritygate.precision import Variant
from paritygate.signature import Signature
from paritygate.text import closest, nearest_first

# The largest size for every runtime: some use 32 bits.
_LARGEST_SIZE = 2**31 - 1
_Size = Annotated[int, Field(ge=1, strict=True)]
# The targets with settings of their own, and the runs of their search.
MIXED = "onnx-mixed"
MIXED_OPENVINO = "openvino-mixed"
_MIXED_TARGETS = (MIXED, MIXED_OPENVINO)
DEFAULT_MAX_RUNS = 60
_Value = Annotated[float, Field(allow_inf_nan=False)]


class StaticTarget(SpecPart):
    """A variant with fixed dims, for devices that compile a model for one shape."""

    name: str = Field(description="The variant whose dims are fixed, such as onnx-fp32.")
    static: dict[str, _Size] = Field(min_length=1, description="The size of each dim that is fixed.")
    pad: dict[str, _Value] = Field(
        default_factory=dict, description="What shorter inputs are filled up with, by input; rows need no value."
    )
    dtypes: dict[str, str] = Field(
        default_factory=dict, description="By input, the dtype that the fixed model takes: int32, or float32."
    )


class MixedTarget(SpecPart):
    """A variant in a lower precision whose few operators that need FP32 are found and kept in it."""

    name: str = Field(description="The variant: onnx-mixed or openvino-mixed.")
    lower: Literal["fp16", "int8"] = Field(description="The precision of all other operators.")
    max_runs: Annotated[int, Field(ge=1, strict=True)] = Field(
        default=DEFAULT_MAX_RUNS, description="How often the search may run the rows that it measures on."
    )

    @field_validator("lower", mode="before")
    @classmethod
    def _runs_here(cls, value: object) -> object:
        if value == "bf16":
            raise ValueError(f"{why_no_bf16()} (allowed: fp16, int8)")
        return value

    @field_validator("name")
    @classmethod
    def _of_mixed_precision(cls, value: str) -> str:
        if value not in _MIXED_TARGETS:
            raise ValueError(f"lower and max_runs are for {' and '.join(_MIXED_TARGETS)}")
        return value

    @model_validator(mode="after")
    def _computes_here(self) -> MixedTarget:
        if self.name != MIXED and self.lower != "int8":
            raise ValueError(f"OpenVINO computes no {self.lower} on a CPU (allowed for {self.name}: int8)")
        return self


def _kind_of(item: object) -> str:
    if isinstance(item, (str, StaticTarget)) or not isinstance(item, (Mapping, MixedTarget)):
        return "static" if isinstance(item, StaticTarget) else "name"
    name = item.name if isinstance(item, MixedTarget) else item.get("name")
    return "mixed" if name in _MIXED_TARGETS or (isinstance(item, Mapping) and "lower" in item) else "static"


AnyTarget = str | StaticTarget | MixedTarget
Target = Annotated[
    Annotated[str, Tag("name")] | Annotated[StaticTarget, Tag("static")] | Annotated[MixedTarget, Tag("mixed")],
    Discriminator(_kind_of),
]


def place_in_spec(location: Sequence[int | str]) -> tuple[int | str, ...]:
    """Return the place of an error in the spec, without pydantic's tags of targets and metrics."""
    place = tuple(location)
    if place[:1] == ("gold",):
        return (place[0], *place[2:])
    return (*place[:2], *place[3:]) if place[:1] == ("targets",) else place


def variant_of_target(target: AnyTarget) -> Variant:
    """Return the variant of a target; a `UsageError` if there is none, or a size exceeds every runtime's limit."""
    variant = _variant(target)
    for name, size in variant.static:
        if size > _LARGEST_SIZE:
            msg = f"target {str(variant)!r} fixes {name} at {size} (allowed: 1 to {_LARGEST_SIZE})"
            raise UsageError(msg, hint="fix it at the size that the model will be run with")
    return variant


def _variant(target: AnyTarget) -> Variant:
    if not isinstance(target, StaticTarget):
        return Variant.parse(target if isinstance(target, str) else target.name)
    plain = Variant.parse(target.name)
    if plain.static:
        msg = f"target {target.name!r} has fixed dims in its name and under static"
        raise UsageError(msg, hint=f"write name: {plain.dynamic}, and the dims under static")
    return Variant(format=plain.format, precision=plain.precision, static=tuple(target.static.items()))


def name_of_target(target: AnyTarget) -> str:
    """Return the name of a target's variant; raises as `variant_of_target`."""
    return str(variant_of_target(target))


def fixed_shape_of(target: AnyTarget, signature: Signature) -> FixedShape | None:
    """Return how the dims of a target are fixed, None if none is; `signature` has no fixed dims yet.

    Raises:
        UsageError: A dim cannot be fixed so, or a pad value or dtype does not fit.
    """
    variant = variant_of_target(target)
    if not variant.static:
        return None
    pad: Mapping[str, float] = target.pad if isinstance(target, StaticTarget) else {}
    dtypes: Mapping[str, str] = target.dtypes if isinstance(target, StaticTarget) else {}
    try:
        return FixedShape(dims=dict(variant.static), pad=pad, dtypes=dtypes, signature=signature)
    except UsageError as err:
        raise UsageError(f"target {str(variant)!r}: {err}", **err.next_step) from err


def check_targets(
    targets: Sequence[AnyTarget], *, available: Sequence[Variant], signature: Signature | None, origin: str
) -> None:
    """Check that every target is available and occurs once.

    Without a declared signature, fixed dims are checked at export.

    Raises:
        UsageError: A target is unknown, of a format without fixed dims, fixed where it cannot be, or twice.
    """
    for target in targets:
        _check_target(target, available, signature, origin)
    check_mixed_engines(targets, f"spec {origin}")
    seen: set[Any] = set()
    names = [name_of_target(target) for target in targets]
    for variant in map(variant_of_target, targets):
        # The same dims in another order are the same variant.
        key = (variant.dynamic, frozenset(variant.static))
        if key in seen:
            raise UsageError(f"spec {origin}: a target occurs twice ({', '.join(names)})", hint="name each target once")
        seen.add(key)


def check_mixed_engines(targets: Sequence[AnyTarget], origin: str) -> None:
    """Raise a `UsageError` for an engine of mixed precision without the target that has its file in FP16."""
    derived = [(name, DERIVATIONS.get(name)) for name in map(name_of_target, targets)]
    engines = [name for name, derivation in derived if derivation is not None and derivation.base == MIXED]
    if engines and not any(isinstance(target, MixedTarget) and target.lower == "fp16" for target in targets):
        msg = f"{origin}: target {engines[0]!r} is built from {MIXED} in fp16, which is not a target"
        raise UsageError(msg, hint=f"add {{name: {MIXED}, lower: fp16}} to the targets")


def target_meant(name: str, known: Sequence[str]) -> str:
    """Return a hint on the target that may be meant; empty where none is near, or for the name of one."""
    plain = name.partition("@")[0]
    close = closest(plain, known)
    # onnx-fp64 is not a typo of onnx-fp16: digits must agree.
    return f"did you mean {close}?" if close and close != plain and _digits(close) == _digits(plain) else ""


def _digits(name: str) -> str:
    # Two that were exchanged are a slip.
    return "".join(sorted(filter(str.isdigit, name)))


def _check_target(target: AnyTarget, available: Sequence[Variant], signature: Signature | None, origin: str) -> None:
    name = target if isinstance(target, str) else target.name
    plain, names = name.partition("@")[0], [str(each) for each in available]
    meant = target_meant(name, names)
    if plain not in names:
        msg = f"spec {origin}: target {name!r} is not available (available: {', '.join(nearest_first(plain, names))})"
        raise UsageError(msg, hint=meant or "name one of these, the nearest of which come first")
    try:
        variant = variant_of_target(target)
    except UsageError as err:
        raise UsageError(f"spec {origin}: {err}", hint=meant or err.hint) from err
    if plain in _MIXED_TARGETS and not isinstance(target, MixedTarget):
        msg = f"spec {origin}: target {name!r} needs the precision of its other operators, without fixed dims"
        raise UsageError(msg, hint=f"write {{name: {plain}, lower: int8}}, or lower: fp16 for {MIXED}")
    if variant.static and variant.format not in FIXERS:
        msg = f"spec {origin}: the dims of {str(variant)!r} cannot be fixed (formats that can: {', '.join(FIXERS)})"
        raise UsageError(msg, hint=f"use {variant.dynamic}, or fix the dims of another format")
    if signature is not None:
        fixed_shape_of(target, signature)
