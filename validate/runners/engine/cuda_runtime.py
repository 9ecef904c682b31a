"""Where the CUDA runtime lies, for Polygraphy: it does not look where the packages for CUDA 13 and later put it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from paritygate.machine import Gpu

__all__ = ["show_cuda_runtime"]

_SEARCHED = "LD_LIBRARY_PATH"


def show_cuda_runtime(gpu: Gpu) -> None:
    """Add the folder of the installed CUDA runtime to those that Polygraphy searches.

    Only a runtime of the driver's own major version: one of a later version would not start. For CUDA 12 there is
    nothing to do, because Polygraphy looks into the folder of its package; nor where no package is installed.

    Args:
        gpu: The GPU, whose driver says which version it serves.
    """
    folder = Path("nvidia", f"cu{gpu.cuda.split('.')[0]}", "lib")
    found = [str(Path(place) / folder) for place in sys.path if any((Path(place) / folder).glob("libcudart.so*"))]
    given = os.environ.get(_SEARCHED, "").split(os.pathsep)
    # After what the user set, which is asked first.
    os.environ[_SEARCHED] = os.pathsep.join(dict.fromkeys(item for item in (*given, *found) if item))
