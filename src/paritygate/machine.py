"""What this machine is: the device that runs, the processor, the versions, as evidence records them."""

from __future__ import annotations

import ctypes
import functools
import getpass
import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.backends import BACKENDS, backend_state, version_of
from paritygate.errors import BackendError, UsageError

# Flags that decide which kernels run, and so how results are rounded. Linux names, x86 and ARM.
_TELLING_FLAGS = (
    "avx", "avx2", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8",
    "amx_tile", "f16c", "fma", "asimdhp", "bf16", "i8mm", "sve",
)  # fmt: skip
# One of these adds products of INT8 up in 32 bits.
_VNNI = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
_CPUINFO = Path("/proc/cpuinfo")
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
# CUdevice_attribute of the CUDA driver API: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
_COMPUTE_CAPABILITY = (75, 76)
_NAME_BYTES = 256
_LIBRARY_PATH = "LD_LIBRARY_PATH"
# Variables that make libraries below the frameworks compute float32 in less, and the values at which they do not.
# NVIDIA_TF32_OVERRIDE stands above what a framework asks for; the others are those of oneDNN and of TensorFlow.
_LOWERING_VARIABLES = {
    "NVIDIA_TF32_OVERRIDE": {"0"},
    "ONEDNN_DEFAULT_FPMATH_MODE": {"STRICT"},
    "DNNL_DEFAULT_FPMATH_MODE": {"STRICT"},
    "TF_SET_ONEDNN_FPMATH_MODE": set[str](),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """The first NVIDIA GPU that the CUDA driver shows to this process.

    Attributes:
        name: Its product name.
        capability: Compute capability as digits, such as `90`.
        driver: Version of the kernel driver; None where it does not say.
        cuda: Highest CUDA version that the driver serves, such as `12.4`.
    """

    name: str
    capability: str
    driver: str | None
    cuda: str


@functools.cache
def gpu_of_machine() -> Gpu | None:
    """Return the first GPU that the CUDA driver shows to this process; None where there is none.

    Asks the driver's library, so that CUDA_VISIBLE_DEVICES counts and no framework is imported.
    """
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    device = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    name = ctypes.create_string_buffer(_NAME_BYTES)
    cuda = ctypes.c_int()
    capability = [ctypes.c_int(), ctypes.c_int()]
    failed = [driver.cuDeviceGetName(name, _NAME_BYTES, device), driver.cuDriverGetVersion(ctypes.byref(cuda))]
    for number, attribute in zip(capability, _COMPUTE_CAPABILITY, strict=True):
        failed.append(driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device))
    if any(failed):
        return None
    return Gpu(
        name=name.value.decode(errors="replace"),
        capability="".join(str(number.value) for number in capability),
        driver=_nvidia_driver(),
        cuda=f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
    )


def _nvidia_driver() -> str | None:
    if not _NVIDIA_DRIVER.is_file():
        return None
    found = re.search(r"\b\d+\.\d+(?:\.\d+)?\b", _NVIDIA_DRIVER.read_text(encoding="utf-8", errors="replace"))
    return found[0] if found else None


def device_name(device: str) -> str:
    """Return the name of a device as evidence bears it: `cpu`, or `cuda:smXX` with the compute capability.

    Args:
        device: `cpu` or `cuda`.

    Raises:
        BackendError: `cuda` is asked for and there is no GPU.
        UsageError: It is neither of the two.
    """
    if device == "cpu":
        return "cpu"
    if device == "cuda":
        gpu = gpu_of_machine()
        if gpu is None:
            msg = "device 'cuda' was requested, but the CUDA driver shows no GPU to this process"
            raise BackendError(msg, hint="check nvidia-smi and CUDA_VISIBLE_DEVICES, or run on device cpu")
        return f"cuda:sm{gpu.capability}"
    msg = f"device {device!r} is not known (allowed: cpu, cuda)"
    raise UsageError(msg, hint="name one of the devices above")


def check_environment() -> None:
    """Check that no environment variable makes float32 be computed in a lower precision behind the frameworks.

    Raises:
        BackendError: One does.
    """
    for name, harmless in _LOWERING_VARIABLES.items():
        value = os.environ.get(name, "").strip().upper()
        if value and value not in harmless:
            msg = f"the environment variable {name}={value} lets float32 be computed in a lower precision"
            raise BackendError(msg, hint=f"unset {name}")


def machine_facts() -> dict[str, Any]:
    """Return what this machine is, as JSON data for evidence.

    Keys: `python`, `platform`, `cpu` (`model`, `flags` that decide which kernels run), `gpu` (None
    where there is none) and `versions` of NumPy and of the installed backends. Imports no framework.
    """
    return {**host_facts(), "versions": _versions()}


def host_facts() -> dict[str, Any]:
    """Return what `machine_facts` does, but for the versions of what is installed."""
    gpu = gpu_of_machine()
    return {
        "python": platform.python_version(),
        "platform": _platform(),
        "cpu": _cpu(),
        "gpu": None
        if gpu is None
        else {"name": gpu.name, "device": f"cuda:sm{gpu.capability}", "driver": gpu.driver, "cuda": gpu.cuda},
    }


def _platform() -> str:
    """Return what `platform.platform` does, which starts a program on Linux to ask for the processor."""
    if sys.platform != "linux":
        return platform.platform()
    found = os.uname()
    libc = "".join(platform.libc_ver())
    return "-".join((found.sysname, found.release, found.machine, *(("with", libc) if libc else ())))


def is_int8_cut_off() -> bool:
    """Return whether ONNX Runtime and OpenVINO add pairs of products of INT8 up in 16 bits on this processor.

    On x86 they do so without VNNI, and cut off a sum that is larger.
    """
    flags = set(_cpu()["flags"])
    return "avx" in flags and not flags & _VNNI


def _cpu() -> dict[str, Any]:
    # The first processor stands for all: /proc/cpuinfo has one block each.
    block = _CPUINFO.read_text(encoding="utf-8", errors="replace").split("\n\n")[0] if _CPUINFO.is_file() else ""
    fields = _cpuinfo_fields(block)
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    # As above: on Linux, asking for the processor starts a program.
    processor = "" if sys.platform == "linux" else platform.processor()
    return {
        "model": fields.get("model name") or processor or platform.machine(),
        "flags": [flag for flag in _TELLING_FLAGS if flag in flags],
    }


def _cpuinfo_fields(block: str) -> Mapping[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _versions() -> dict[str, str]:
    # They are asked for many times in a run, and change only with a folder that Python looks in.
    return dict(_versions_in(tuple((place, _written(place)) for place in sys.path)))


def _written(place: str) -> int | None:
    try:
        return Path(place or ".").stat().st_mtime_ns
    except OSError:
        return None


@functools.lru_cache(maxsize=1)
def _versions_in(places: tuple[tuple[str, int | None], ...]) -> dict[str, str]:
    del places
    found = {name: backend_state(name).version for name in BACKENDS}
    found["numpy"] = version_of("numpy")
    found["onnx"] = version_of("onnx")
    return {name: version for name, version in sorted(found.items()) if version}


def user_name() -> str:
    """Return the name of the user who runs this process; an empty text where there is none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def show_cuda_runtime(gpu: Gpu) -> None:
    """Add the folder of the installed CUDA runtime to those that Polygraphy searches.

    It does not look where the packages for CUDA 13 and later put it.

    Only a runtime of the driver's own major version: one of a later version would not start. For CUDA 12 there is
    nothing to do, because Polygraphy looks into the folder of its package; nor where no package is installed.

    Args:
        gpu: The GPU, whose driver says which version it serves.
    """
    folder = Path("nvidia", f"cu{gpu.cuda.split('.')[0]}", "lib")
    found = [str(Path(place) / folder) for place in sys.path if any((Path(place) / folder).glob("libcudart.so*"))]
    given = os.environ.get(_LIBRARY_PATH, "").split(os.pathsep)
    # After what the user set, which is asked first.
    os.environ[_LIBRARY_PATH] = os.pathsep.join(dict.fromkeys(item for item in (*given, *found) if item))
