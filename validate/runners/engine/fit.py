"""Whether engines run here at all: on the device that was asked for, and in the version of the library there is.

The library refuses such an engine too, in words that do not say what to do, or after it has loaded all of it.
"""

from __future__ import annotations

from paritygate.engine.gpu_fit import BUILD_HERE
from paritygate.engine.library import TITLES
from paritygate.engine.record import EngineRecord
from paritygate.errors import BackendError
from paritygate.machine import Gpu, gpu_of_machine

__all__ = ["check_version", "gpu_for_engines"]

_ELSEWHERE = (
    "validate it where there is one, with --device cuda, or accept the emulated row of its precision: promote.accept"
)


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
    title = TITLES[record.library]
    built = f"the engine was built by {title} {record.version}, and {title} {version} is installed"
    if not record.settings.version_compatible:
        msg = f"{built}: it runs in the version that built it alone"
        raise BackendError(msg, hint=f"{BUILD_HERE}; or install {title} {record.version}")
    if _numbers(version) < _numbers(record.version):
        msg = f"{built}: it was built to run in later versions, not in earlier ones"
        raise BackendError(msg, hint=f"{BUILD_HERE}; or install {title} {record.version} or later")
    return (f"{built}: it was built to run in later versions too",)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
