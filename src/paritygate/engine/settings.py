"""What a build of an engine is asked for, beside its precision: as the spec has it, and as JSON data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

__all__ = ["EngineSettings", "HardwareCompatibility"]


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
