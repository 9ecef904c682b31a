"""On which GPUs an engine runs."""

from __future__ import annotations

from paritygate.engine.settings import EngineSettings, HardwareCompatibility
from paritygate.machine import Gpu

__all__ = ["capability_of", "is_built_for", "targets_in_words"]

# What TensorRT-RTX builds for where nothing is asked for, and what `ampere_plus` means.
_AMPERE = (8, 0)


def capability_of(gpu: Gpu) -> str:
    """Return the compute capability as it is written, such as `8.9`: the last digit is the minor number."""
    return f"{gpu.capability[:-1]}.{gpu.capability[-1]}"


def targets_in_words(settings: EngineSettings, gpu: Gpu | None) -> str:
    """Return what an engine is built to run on.

    Args:
        settings: What was asked for.
        gpu: The GPU it is built on; None if it is built ahead of time.
    """
    if gpu is None:
        return f"compute capability {', '.join(settings.compute_capabilities) or _and_above()}"
    if settings.hardware_compatibility is HardwareCompatibility.AMPERE_PLUS:
        return f"compute capability {_and_above()}"
    if settings.hardware_compatibility is HardwareCompatibility.SAME_COMPUTE_CAPABILITY:
        return f"compute capability {capability_of(gpu)}"
    return f"{gpu.name} (compute capability {capability_of(gpu)})"


def _and_above() -> str:
    return f"{_AMPERE[0]}.{_AMPERE[1]} and above"


def is_built_for(gpu: Gpu, settings: EngineSettings, offered: tuple[str, ...]) -> bool:
    """Return whether an engine that was built ahead of time runs on the GPU.

    Args:
        gpu: The GPU.
        settings: How it was built.
        offered: Every compute capability that the library builds for.
    """
    name = capability_of(gpu)
    if settings.compute_capabilities:
        return name in settings.compute_capabilities
    major, _, minor = name.partition(".")
    return name in offered and (int(major), int(minor)) >= _AMPERE
