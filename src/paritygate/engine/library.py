"""Open the library behind engines, TensorRT or TensorRT-RTX, once a process, together with Polygraphy.

It also has the library's names for dtypes and layers.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from types import ModuleType

from msgspec import Struct

from paritygate.backends import install_command, require_backend
from paritygate.errors import BackendError, MissingBackendError
from paritygate.precision import Precision
from paritygate.text import first_line

TENSORRT = "tensorrt"
TENSORRT_RTX = "tensorrt-rtx"
_SWITCH = "POLYGRAPHY_USE_TENSORRT_RTX"
_RTX_MODULE = "tensorrt_rtx"
_RTX_BINDINGS = "tensorrt_rtx_bindings"
TITLES: Mapping[str, str] = {TENSORRT: "TensorRT", TENSORRT_RTX: "TensorRT-RTX"}
# NumPy's names by the library's, which has more for weights alone.
NUMPY_DTYPES: Mapping[str, str] = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "BOOL": "bool",
}
# The library's dtype that an engine of a precision computes in, a mixed one in part; no engine has another precision.
DTYPE_OF_PRECISION: Mapping[Precision, str] = {
    Precision.FP32: "FLOAT",
    Precision.TF32: "FLOAT",
    Precision.FP16: "HALF",
    Precision.MIXED: "HALF",
    Precision.BF16: "BF16",
    Precision.INT8: "INT8",
}
QUANTIZE = "QUANTIZE"
# Layers of networks and engines that do not compute: a cast to HALF computes nothing in it. They are listed, not those
# that compute, because an unknown layer of a later version counts as computing.
MOVING = frozenset(
    {"ASSERTION", "CAST", "CONCATENATION", "CONDITION", "CONDITIONAL_INPUT", "CONDITIONAL_OUTPUT", "CONSTANT",
     "DEQUANTIZE", "FILL", "GATHER", "IDENTITY", "ITERATOR", "LOOP_OUTPUT", "NON_ZERO", "NOOP", "ONE_HOT", "PADDING",
     QUANTIZE, "RECURRENCE", "REFORMAT", "REVERSE_SEQUENCE", "SCATTER", "SELECT", "SHAPE", "SHUFFLE", "SLICE",
     "SQUEEZE", "TOPK", "TRIP_LIMIT", "UNSQUEEZE"}
)  # fmt: skip


class EngineLibrary(Struct, frozen=True, kw_only=True):
    """One of the two libraries, imported."""

    name: str  # tensorrt or tensorrt-rtx
    module: ModuleType

    @property
    def version(self) -> str:
        """Its version, such as `10.16.1.11`."""
        return str(self.module.__version__)

    @property
    def major(self) -> int:
        """The first number of its version."""
        return int(self.version.split(".")[0])

    @property
    def title(self) -> str:
        """Name and version for people, such as `TensorRT 10.16.1.11`."""
        return f"{TITLES[self.name]} {self.version}"


def open_library(name: str) -> EngineLibrary:
    """Return the library `tensorrt` or `tensorrt-rtx`, imported, and Polygraphy set to it.

    Raises:
        MissingBackendError: It or Polygraphy is not installed, or its own libraries do not load.
        BackendError: This process has Polygraphy set to the other one already.
    """
    require_backend(name)
    require_backend("polygraphy")
    _set_polygraphy(name)
    try:
        module = _import_rtx() if name == TENSORRT_RTX else importlib.import_module("tensorrt")
    except (ImportError, OSError) as err:
        reason = first_line(err)
        msg = f"{TITLES[name]} is installed but does not load: {reason}"
        extra = "tensorrt-rtx" if name == TENSORRT_RTX else "gpu"
        raise MissingBackendError(msg, hint=f"install it with its libraries: {install_command(extra)}") from err
    return EngineLibrary(name=name, module=module)


def _set_polygraphy(name: str) -> None:
    wanted = name == TENSORRT_RTX
    if "polygraphy" not in sys.modules:
        os.environ[_SWITCH] = "1" if wanted else "0"
    # Always imported here, so that Polygraphy has the library that is opened first.
    config = importlib.import_module("polygraphy.config")
    if bool(config.USE_TENSORRT_RTX) != wanted:
        msg = f"this process already uses Polygraphy with the other library, so it cannot open {TITLES[name]}"
        raise BackendError(msg, hint="open it in a separate process")


def _import_rtx() -> ModuleType:
    if importlib.util.find_spec(_RTX_MODULE) is not None:
        return importlib.import_module(_RTX_MODULE)
    return sys.modules.setdefault(_RTX_MODULE, importlib.import_module(_RTX_BINDINGS))
