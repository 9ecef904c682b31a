"""Whether an engine can run here: the library that built it against the one there is, its GPUs against this one.

The library refuses such an engine too, in words that do not say what to do, or after it has loaded all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.engine.library import TENSORRT, TENSORRT_RTX
from paritygate.engine.record import EngineRecord
from paritygate.engine.settings import HardwareCompatibility
from paritygate.errors import BackendError
from paritygate.machine import Gpu, gpu_of_machine

__all__ = ["check_gpu", "check_version", "gpu_for_engines"]

_TITLES: Mapping[str, str] = {TENSORRT: "TensorRT", TENSORRT_RTX: "TensorRT-RTX"}
_BUILD_HERE = "build it again on this machine: convert-and-validate build"
_ELSEWHERE = (
    "validate it where there is one, with --device cuda, or accept the emulated row of its precision: promote.accept"
)
_AMPERE = 80


def gpu_for_engines(device: str) -> Gpu:
    """Return the GPU that engines run on.

    Args:
        device: What was asked for: `cpu`, or `cuda`.

    Raises:
        BackendError: There is none, or another device was asked for.
    """
    gpu = gpu_of_machine()
    if gpu is None:
        msg = "engines run on NVIDIA GPUs only, and the CUDA driver shows none to this process"
        raise BackendError(msg, hint=_ELSEWHERE)
    if device != "cuda":
        msg = f"engines run on NVIDIA GPUs only, and the device asked for is {device!r}"
        raise BackendError(msg, hint="run it on the GPU: --device cuda")
    return gpu


def check_version(record: EngineRecord, version: str) -> tuple[str, ...]:
    """Return what is to be noted of the library's version, once it is one that runs the engine.

    Args:
        record: What is known of the engine.
        version: Version of the library that is here.

    Raises:
        BackendError: An engine runs in the very version that built it, or, if it was built to, in later ones; and
            this is neither.
    """
    if version == record.version:
        return ()
    title = _TITLES[record.library]
    built = f"the engine was built by {title} {record.version}, and {title} {version} is installed"
    if not record.settings.version_compatible:
        msg = f"{built}: it runs in the version that built it alone"
        raise BackendError(msg, hint=f"{_BUILD_HERE}; or install {title} {record.version}")
    if _numbers(version) < _numbers(record.version):
        msg = f"{built}: it was built to run in later versions, not in earlier ones"
        raise BackendError(msg, hint=f"{_BUILD_HERE}; or install {title} {record.version} or later")
    return (f"{built}: it was built to run in later versions too",)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def check_gpu(record: EngineRecord, gpu: Gpu, offered: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return what is to be noted of the GPU, once it is one that the engine was built for.

    Args:
        record: What is known of the engine.
        gpu: The GPU that it is to run on.
        offered: Every compute capability that the library builds for ahead of time, such as `8.9`; empty where it
            builds for the GPU it is on.

    Raises:
        BackendError: It is not.
    """
    if record.library == TENSORRT_RTX:
        _check_target(record.settings.compute_capabilities, gpu, offered)
        return ()
    if record.built_on is None:
        return ("its record does not say on which GPU it was built",)
    return _check_built_on(record.settings.hardware_compatibility, record.built_on, gpu)


def _check_target(targets: tuple[str, ...], gpu: Gpu, offered: tuple[str, ...]) -> None:
    here = _dotted(gpu.capability)
    if here in targets or (not targets and int(gpu.capability) >= _AMPERE and here in offered):
        return
    built = ", ".join(targets) or "8.0 and above"
    msg = f"the engine was built for compute capability {built}; the GPU here, {gpu.name}, has {here}"
    if here not in offered:
        msg += f", which TensorRT-RTX has no engines for (it has: {', '.join(offered)})"
        raise BackendError(msg, hint="build a tensorrt target on this GPU instead")
    wanted = ", ".join(f'"{item}"' for item in (*targets, here))
    raise BackendError(msg, hint=f"build it for this GPU: tensorrt_rtx: {{compute_capabilities: [{wanted}]}}")


def _check_built_on(level: HardwareCompatibility, built_on: Mapping[str, Any], gpu: Gpu) -> tuple[str, ...]:
    there = str(built_on["capability"])
    built = f"the engine was built on {built_on['name']} (compute capability {_dotted(there)})"
    if level is HardwareCompatibility.AMPERE_PLUS:
        if int(gpu.capability) < _AMPERE:
            msg = (
                f"{built} for compute capability 8.0 and later; the GPU here, {gpu.name}, has {_dotted(gpu.capability)}"
            )
            raise BackendError(msg, hint=_BUILD_HERE)
    elif there != gpu.capability:
        msg = f"{built}, and runs on that alone; the GPU here, {gpu.name}, has {_dotted(gpu.capability)}"
        hint = f"{_BUILD_HERE}; tensorrt: {{hardware_compatibility: ampere_plus}} makes one for 8.0 and later"
        raise BackendError(msg, hint=hint)
    if built_on["name"] == gpu.name:
        return ()
    advice = "; TensorRT advises to build on the GPU that runs it" if level is HardwareCompatibility.NONE else ""
    return (f"{built}, and runs on {gpu.name}{advice}",)


def _dotted(capability: str) -> str:
    """Return the digits of a compute capability as they are written: `8.9` of `89`, `12.0` of `120`."""
    return f"{capability[:-1]}.{capability[-1]}"
