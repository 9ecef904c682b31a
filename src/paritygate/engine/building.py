"""Whether a format can be built on this machine: its backend is installed, and the GPU is there that it is built on."""

from __future__ import annotations

from paritygate.backends import require_backend
from paritygate.engine.library import TITLES
from paritygate.errors import MissingGpuError
from paritygate.formats import FORMATS
from paritygate.machine import gpu_of_machine

__all__ = ["require_builder"]


def require_builder(name: str) -> None:
    """Do nothing if artifacts of the format can be built and checked here.

    Args:
        name: The format.

    Raises:
        MissingGpuError: It is built on the GPU that will run it, and there is none.
        MissingBackendError: Its backend is not installed; the hint is the command that installs it.
    """
    # Before the packages: on a machine without a GPU they would be installed for nothing.
    if FORMATS[name].is_built_on_gpu and gpu_of_machine() is None:
        msg = f"{TITLES[name]} builds an engine on the GPU that it will run on, and there is none here"
        hint = (
            "take the run to a machine with one: convert-and-validate pack --run DIR here, "
            "unpack and build --run DIR there"
        )
        raise MissingGpuError(msg, hint=hint)
    require_backend(FORMATS[name].runtime)
