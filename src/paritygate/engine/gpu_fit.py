"""Decide on which GPUs an engine runs, and whether a format can be built on this machine.

An engine is code for kinds of GPUs, not a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paritygate.backends import require_backend
from paritygate.engine.library import TENSORRT, TENSORRT_RTX, TITLES
from paritygate.engine.record import EngineRecord
from paritygate.engine.settings import EngineSettings, HardwareCompatibility
from paritygate.errors import BackendError, MissingGpuError
from paritygate.formats import FORMATS
from paritygate.machine import Gpu, gpu_of_machine

# It lacks data centre GPUs of capability 9.0 or 10.0. Source: ComputeCapability of tensorrt_rtx 1.7.
RTX_CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
# The lowest capability of TensorRT-RTX's default, and of `ampere_plus`.
_AMPERE = 80
_AMPERE_AND_ABOVE = "8.0 and above"
_CUDA = re.compile(r"cuda:sm(\d{2,3})")
BUILD_HERE = "build it again on this machine: convert-and-validate build"


def _dotted(capability: str) -> str:
    """Return the digits of a compute capability with a dot: `8.9` of `89`, `12.0` of `120`."""
    return f"{capability[:-1]}.{capability[-1]}"


def _targets(asked: tuple[str, ...], offered: tuple[str, ...]) -> tuple[str, ...]:
    """Return the compute capabilities that TensorRT-RTX builds for."""
    return asked or tuple(name for name in offered if int(name.replace(".", "")) >= _AMPERE)


def _is_for(level: str, built_on: str, capability: str) -> bool:
    """Return whether TensorRT's engine, built on the first capability, runs on the second."""
    return int(capability) >= _AMPERE if level == HardwareCompatibility.AMPERE_PLUS else capability == built_on


def targets_in_words(settings: EngineSettings, gpu: Gpu | None) -> str:
    """Return the GPUs that an engine is built to run on; `gpu` builds it, or None ahead of time."""
    if gpu is None:
        return f"compute capability {', '.join(settings.compute_capabilities) or _AMPERE_AND_ABOVE}"
    if settings.hardware_compatibility is HardwareCompatibility.AMPERE_PLUS:
        return f"compute capability {_AMPERE_AND_ABOVE}"
    if settings.hardware_compatibility is HardwareCompatibility.SAME_COMPUTE_CAPABILITY:
        return f"compute capability {_dotted(gpu.capability)}"
    return f"{gpu.name} (compute capability {_dotted(gpu.capability)})"


def check_gpu(record: EngineRecord, gpu: Gpu, offered: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return notes on the GPU if the engine was built for it.

    `offered` has every compute capability that the library builds for ahead of time, such as `8.9`. It is empty for a
    library that builds for its own GPU.

    Raises:
        BackendError: The engine was built for other GPUs.
    """
    if record.library == TENSORRT_RTX:
        _check_target(record.settings.compute_capabilities, gpu, offered)
        return ()
    if record.built_on is None:
        return ("its record does not name the GPU that it was built on",)
    return _check_built_on(record.settings.hardware_compatibility, record.built_on, gpu)


def _check_target(asked: tuple[str, ...], gpu: Gpu, offered: tuple[str, ...]) -> None:
    here = _dotted(gpu.capability)
    if here in _targets(asked, offered):
        return
    built = ", ".join(asked) or _AMPERE_AND_ABOVE
    msg = f"the engine was built for compute capability {built}; the GPU here, {gpu.name}, has {here}"
    if here not in offered:
        msg += f", which TensorRT-RTX has no engines for (it has: {', '.join(offered)})"
        raise BackendError(msg, hint="build a tensorrt target on this GPU instead")
    wanted = ", ".join(f'"{item}"' for item in (*asked, here))
    raise BackendError(msg, hint=f"build it for this GPU: tensorrt_rtx: {{compute_capabilities: [{wanted}]}}")


def _check_built_on(level: HardwareCompatibility, built_on: Mapping[str, Any], gpu: Gpu) -> tuple[str, ...]:
    there = str(built_on["capability"])
    built = f"the engine was built on {built_on['name']} (compute capability {_dotted(there)})"
    here = f"the GPU here, {gpu.name}, has {_dotted(gpu.capability)}"
    if not _is_for(level, there, gpu.capability):
        if level is HardwareCompatibility.AMPERE_PLUS:
            raise BackendError(f"{built} for compute capability 8.0 and later; {here}", hint=BUILD_HERE)
        msg = f"{built}, and runs only there; {here}"
        hint = f"{BUILD_HERE}; tensorrt: {{hardware_compatibility: ampere_plus}} makes one for 8.0 and later"
        raise BackendError(msg, hint=hint)
    if built_on["name"] == gpu.name:
        return ()
    advice = "; TensorRT advises to build on the GPU that runs it" if level is HardwareCompatibility.NONE else ""
    return (f"{built}, and runs on {gpu.name}{advice}",)


def why_not_built_for(device: str, facts: Mapping[str, Any]) -> str:
    """Return why an engine does not run on a device, such as `cuda:sm89`; empty if it does.

    `facts` of the conversion are its library, its settings, and the GPU it was built on.
    """
    match = _CUDA.fullmatch(device)
    if match is None:
        return f"is built for GPUs, not for {device}"
    settings = facts.get("engine_settings")
    library = facts.get("library")
    if not isinstance(settings, Mapping) or library not in {TENSORRT, TENSORRT_RTX}:
        return "does not name the GPUs that it was built for"
    if library == TENSORRT_RTX:
        return _why_not_rtx(device, match[1], settings)
    return _why_not_tensorrt(device, match[1], settings, facts.get("built_on"))


def _why_not_rtx(device: str, capability: str, settings: Mapping[str, Any]) -> str:
    targets = _targets(tuple(settings.get("compute_capabilities") or ()), RTX_CAPABILITIES)
    if _dotted(capability) in targets:
        return ""
    return f"was built for compute capability {', '.join(targets)}, not for {device}"


def _why_not_tensorrt(
    device: str, capability: str, settings: Mapping[str, Any], built_on: Mapping[str, Any] | None
) -> str:
    built_for = str((built_on or {}).get("capability", ""))
    if not built_for.isdecimal():
        return "does not name the GPU that it was built on"
    level = str(settings.get("hardware_compatibility"))
    if _is_for(level, built_for, capability):
        return ""
    return f"was built on cuda:sm{built_for} with hardware compatibility {level}, not for {device}"


def require_builder(name: str) -> None:
    """Check that artifacts of the format can be built and checked here.

    Raises:
        MissingGpuError: It is built on the GPU that will run it, and there is none.
        MissingBackendError: Its backend is not installed; the hint is the command that installs it.
    """
    # Before the packages, whose installation is useless without a GPU.
    if FORMATS[name].is_built_on_gpu and gpu_of_machine() is None:
        msg = f"{TITLES[name]} builds engines on the GPU that runs them, but this machine has none"
        hint = (
            "move the run to a machine with a GPU: convert-and-validate pack --run DIR; on that machine: "
            "convert-and-validate unpack PACK, then convert-and-validate build --run DIR"
        )
        raise MissingGpuError(msg, hint=hint)
    require_backend(FORMATS[name].runtime)
