"""Describe this machine for evidence: the device that runs, the processor, the versions."""

from __future__ import annotations

import ctypes
import functools
import getpass
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.backends import BACKENDS, backend_state, version_of
from paritygate.errors import BackendError, UsageError

# Flags that select kernels, and so the rounding of results. Linux names, x86 and ARM.
_TELLING_FLAGS = (
    "avx", "avx2", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8",
    "amx_tile", "f16c", "fma", "asimdhp", "bf16", "i8mm", "sve",
)  # fmt: skip
# Any of these adds products of INT8 in 32 bits.
_VNNI = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
_CPUINFO = Path("/proc/cpuinfo")
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
# CUdevice_attribute of the CUDA driver API: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
_COMPUTE_CAPABILITY = (75, 76)
_NAME_BYTES = 256
_LIBRARY_PATH = "LD_LIBRARY_PATH"
THREADS = "PARITYGATE_THREADS"
# Variables that make libraries below the frameworks compute float32 in less, and the values that do not.
# NVIDIA_TF32_OVERRIDE overrides the framework; the others belong to oneDNN and TensorFlow.
_LOWERING_VARIABLES = {
    "NVIDIA_TF32_OVERRIDE": {"0"},
    "ONEDNN_DEFAULT_FPMATH_MODE": {"STRICT"},
    "DNNL_DEFAULT_FPMATH_MODE": {"STRICT"},
    "TF_SET_ONEDNN_FPMATH_MODE": set[str](),
}


class Gpu(Struct, frozen=True, kw_only=True):
    """The first NVIDIA GPU that the CUDA driver shows to this process."""

    name: str  # of the product
    capability: str  # compute capability as digits, such as 90
    driver: str | None  # version of the kernel driver, if known
    cuda: str  # highest CUDA version of the driver, such as 12.4


@functools.cache
def gpu_of_machine() -> Gpu | None:
    """Return the first GPU that the CUDA driver shows to this process; None where there is none.

    It calls the driver's library, so that CUDA_VISIBLE_DEVICES counts and no framework is imported.
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
    match = re.search(r"\b\d+\.\d+(?:\.\d+)?\b", _NVIDIA_DRIVER.read_text(encoding="utf-8", errors="replace"))
    return match[0] if match else None


def device_name(device: str) -> str:
    """Return the name of `cpu` or `cuda` in evidence: `cpu`, or `cuda:smXX` with the compute capability.

    Raises:
        BackendError: `cuda` is requested and there is no GPU.
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
    raise UsageError(f"device {device!r} is not known (allowed: cpu, cuda)", hint="name one of the devices above")


def check_environment() -> None:
    """Raise BackendError if an environment variable makes frameworks compute float32 in a lower precision."""
    for name, harmless in _LOWERING_VARIABLES.items():
        value = os.environ.get(name, "").strip().upper()
        if value and value not in harmless:
            msg = f"the environment variable {name}={value} lets float32 be computed in a lower precision"
            raise BackendError(msg, hint=f"unset {name}")


def machine_facts() -> dict[str, Any]:
    """Return the description of this machine, as JSON data for evidence; it imports no framework.

    Keys: `python`, `platform`, `cpu` (`model`, `flags`), `gpu` (or None), and `versions` of NumPy and backends.
    """
    return {**host_facts(), "versions": _versions()}


def host_facts() -> dict[str, Any]:
    """Return `machine_facts` without the versions."""
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
    """Return `platform.platform()`, which on Linux would start a program for the processor's name."""
    if sys.platform != "linux":
        return platform.platform()
    system = os.uname()
    libc = "".join(platform.libc_ver())
    return "-".join((system.sysname, system.release, system.machine, *(("with", libc) if libc else ())))


def is_int8_cut_off() -> bool:
    """Return whether ONNX Runtime and OpenVINO add pairs of INT8 products in 16 bits, and so clip larger sums.

    They do on x86 without VNNI.
    """
    flags = set(_cpu()["flags"])
    return "avx" in flags and not flags & _VNNI


def _cpu() -> dict[str, Any]:
    # /proc/cpuinfo has one block for each processor, which are alike.
    block = _CPUINFO.read_text(encoding="utf-8", errors="replace").split("\n\n")[0] if _CPUINFO.is_file() else ""
    fields = _cpuinfo_fields(block)
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    # As above: on Linux, it would start a program.
    processor = "" if sys.platform == "linux" else platform.processor()
    return {
        "model": fields.get("model name") or processor or platform.machine(),
        "flags": [flag for flag in _TELLING_FLAGS if flag in flags],
    }


def _cpuinfo_fields(block: str) -> Mapping[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _versions() -> dict[str, str]:
    # Read many times in a run, they change only with a folder on Python's path.
    return dict(_versions_in(tuple((place, _written(place)) for place in sys.path)))


def _written(place: str) -> int | None:
    try:
        return Path(place or ".").stat().st_mtime_ns
    except OSError:
        return None


@functools.lru_cache(maxsize=1)
def _versions_in(places: tuple[tuple[str, int | None], ...]) -> dict[str, str]:
    del places
    versions = {name: backend_state(name).version for name in BACKENDS}
    versions["numpy"] = version_of("numpy")
    versions["onnx"] = version_of("onnx")
    return {name: version for name, version in sorted(versions.items()) if version}


def available_processors() -> int:
    """Return how many processors this process may use, or has where the system does not show that."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(processors, threads_allowed() or processors)


def threads_allowed() -> int | None:
    """Return the most threads of a model, from the environment variable PARITYGATE_THREADS; None without it.

    Raises:
        UsageError: It is not a number above 0.
    """
    text = os.environ.get(THREADS, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        msg = f"{THREADS} is {text!r} (allowed: a number above 0)"
        raise UsageError(msg, hint=f"unset {THREADS}, or give it the number of processors for one model")
    return int(text)


def user_name() -> str:
    """Return the name of the user who runs this process; empty where there is none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def show_cuda_runtime(gpu: Gpu) -> None:
    """Add the folder of the installed CUDA runtime to Polygraphy's search path.

    Polygraphy does not search the folder of the packages for CUDA 13 and later. It does for CUDA 12. Only a runtime of
    the driver's own major version is added, because a later one would not start.
    """
    folder = Path("nvidia", f"cu{gpu.cuda.split('.')[0]}", "lib")
    folders = [str(Path(place) / folder) for place in sys.path if any((Path(place) / folder).glob("libcudart.so*"))]
    own_folders = os.environ.get(_LIBRARY_PATH, "").split(os.pathsep)
    # The user's own folders stay first.
    os.environ[_LIBRARY_PATH] = os.pathsep.join(dict.fromkeys(item for item in (*own_folders, *folders) if item))
