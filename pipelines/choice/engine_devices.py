"""Which GPUs an engine runs on, as far as its build says: an engine is no model, but code for kinds of GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paritygate.engine.settings import HardwareCompatibility

__all__ = ["why_not_built_for"]

_CUDA = re.compile(r"cuda:sm(\d{2,3})")
# What TensorRT-RTX builds for unless it is told otherwise: every GPU from compute capability 8.0 on that it knows.
# It knows no data centre GPU of capability 9.0 or 10.0, and 7.5 only if that is asked for.
# Source: ComputeCapability of tensorrt_rtx 1.7, and its default as built.
_RTX_DEFAULT = ("8.0", "8.6", "8.9", "12.0", "12.1")
_AMPERE = 80


def why_not_built_for(device: str, facts: Mapping[str, Any]) -> str:
    """Return why an engine was not built to run on a device, in words; empty if it was.

    Args:
        device: As evidence bears it, such as `cuda:sm89`.
        facts: What the conversion said of the engine: its library, its settings, the GPU it was built on.
    """
    found = _CUDA.fullmatch(device)
    if found is None:
        return f"is built for GPUs, not for {device}"
    settings = facts.get("engine_settings")
    library = facts.get("library")
    if not isinstance(settings, Mapping) or library not in {"tensorrt", "tensorrt-rtx"}:
        return "does not say which GPUs it was built for"
    if library == "tensorrt-rtx":
        return _why_not_rtx(device, found[1], settings)
    return _why_not_tensorrt(device, found[1], settings, facts.get("built_on"))


def _why_not_rtx(device: str, capability: str, settings: Mapping[str, Any]) -> str:
    targets = tuple(settings.get("compute_capabilities") or _RTX_DEFAULT)
    if f"{capability[:-1]}.{capability[-1]}" in targets:
        return ""
    return f"was built for compute capability {', '.join(targets)}, not for {device}"


def _why_not_tensorrt(
    device: str, capability: str, settings: Mapping[str, Any], built_on: Mapping[str, Any] | None
) -> str:
    built_for = str((built_on or {}).get("capability", ""))
    if not built_for.isdecimal():
        return "does not say which GPU it was built on"
    level = settings.get("hardware_compatibility")
    is_fit = capability == built_for
    if level == HardwareCompatibility.AMPERE_PLUS:
        is_fit = int(capability) >= _AMPERE
    if is_fit:
        return ""
    return f"was built on cuda:sm{built_for} with hardware compatibility {level}, not for {device}"
