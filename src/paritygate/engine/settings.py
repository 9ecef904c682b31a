"""Define the settings of an engine's build beside its precision, and the shapes that it has to take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from paritygate.errors import UsageError
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.text import StrEnum


class HardwareCompatibility(StrEnum):
    """The GPUs, besides those like the builder's, that an engine runs on, by TensorRT's names of levels."""

    NONE = "none"
    AMPERE_PLUS = "ampere_plus"
    SAME_COMPUTE_CAPABILITY = "same_compute_capability"


class EngineSettings(Struct, frozen=True, kw_only=True):
    """The settings that an engine is built with."""

    workspace_mb: int | None = None  # most scratch memory of a layer, in MiB; None: the library's default
    optimization_level: int | None = None  # 0 (fastest build) to 5 (fastest engine)
    hardware_compatibility: HardwareCompatibility = HardwareCompatibility.NONE
    version_compatible: bool = False  # later versions of TensorRT run it too
    compute_capabilities: tuple[str, ...] = ()  # TensorRT-RTX: built ahead of time for these, such as 8.9
    timing_cache: Path | None = None  # TensorRT: timings that speed up the next build


class ProfileShapes(Struct, frozen=True, kw_only=True):
    """The shapes of one input: the smallest, the one the engine is tuned for, the largest."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]


def profile_of(signature: Signature) -> dict[str, ProfileShapes]:
    """Return the shapes of every input, by name, from the declared dims.

    Raises:
        UsageError: A dim of an input has no name or no declared sizes; the message names every such dim.
    """
    unknown = list(dict.fromkeys(_unknown(signature)))
    if unknown:
        msg = f"an engine needs a range of shapes, but no sizes are declared for {', '.join(unknown)}"
        raise UsageError(msg, hint="declare them, such as model.dims: {batch: {min: 1, opt: 8, max: 64}}")
    return {spec.name: _shapes(spec, signature.dims) for spec in signature.inputs}


def _unknown(signature: Signature) -> Iterator[str]:
    for spec in signature.inputs:
        if spec.shape is None:
            yield f"the shape of {spec.name!r}"
            continue
        for axis, dim in enumerate(spec.shape):
            if dim is None:
                yield f"dim {axis} of {spec.name!r}"
            elif isinstance(dim, str) and dim not in signature.dims:
                yield f"dim {dim!r}"


def _shapes(spec: TensorSpec, dims: Mapping[str, Dim]) -> ProfileShapes:
    declared = [dim for dim in spec.shape or () if dim is not None]
    # A fixed size may be 0, unlike a declared one.
    return ProfileShapes(
        min=tuple(dim if isinstance(dim, int) else dims[dim].min for dim in declared),
        opt=tuple(dim if isinstance(dim, int) else dims[dim].opt for dim in declared),
        max=tuple(dim if isinstance(dim, int) else dims[dim].max for dim in declared),
    )
