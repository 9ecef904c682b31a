"""Says what a build of an engine is asked for beside its precision: settings, and the shapes that it has to take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from paritygate.errors import UsageError
from paritygate.signature import Dim, Signature, TensorSpec


class HardwareCompatibility(str, Enum):
    """On which GPUs, besides those like the one it is built on, an engine runs. Names of TensorRT's own levels."""

    NONE = "none"
    AMPERE_PLUS = "ampere_plus"
    SAME_COMPUTE_CAPABILITY = "same_compute_capability"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """How an engine is built.

    Attributes:
        workspace_mb: Most GPU memory that a layer may take for scratch, in MiB; the library's default if None.
        optimization_level: 0 (fastest build) to 5 (fastest engine); the library's default if None.
        hardware_compatibility: On which other GPUs it runs. TensorRT only.
        version_compatible: Whether later versions of the library run it too. TensorRT only.
        compute_capabilities: The GPUs it is built for ahead of time, such as `8.9`; the library's default if none.
            TensorRT-RTX only.
        timing_cache: File of timings that builds read and add to, so that the next one is faster. TensorRT only.
    """

    workspace_mb: int | None = None
    optimization_level: int | None = None
    hardware_compatibility: HardwareCompatibility = HardwareCompatibility.NONE
    version_compatible: bool = False
    compute_capabilities: tuple[str, ...] = ()
    timing_cache: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileShapes:
    """The shapes of one input: the smallest, the one the engine is tuned for, the largest."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]


def profile_of(signature: Signature) -> dict[str, ProfileShapes]:
    """Return the shapes of every input, by name: those of the declared dims.

    Raises:
        UsageError: A dim of an input has no name, or no declared sizes; the message names every such dim.
    """
    unknown = list(dict.fromkeys(_unknown(signature)))
    if unknown:
        msg = f"an engine is built for a range of shapes, and no sizes are declared of {', '.join(unknown)}"
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
    # A fixed size may be 0, which no declared one is.
    sizes = [(dim, dim, dim) if isinstance(dim, int) else _range(dims[dim]) for dim in declared]
    return ProfileShapes(
        min=tuple(low for low, _, _ in sizes),
        opt=tuple(opt for _, opt, _ in sizes),
        max=tuple(high for _, _, high in sizes),
    )


def _range(dim: Dim) -> tuple[int, int, int]:
    return dim.min, dim.opt, dim.max
