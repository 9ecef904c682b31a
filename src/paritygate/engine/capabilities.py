"""Find out from its module what the library behind engines supports, and check requests against that.

A library may silently ignore an unknown setting, and versions differ. So every request is checked before a build.
"""

from __future__ import annotations

import re
from functools import cache
from types import ModuleType
from typing import Any

from msgspec import Struct

from paritygate.engine.library import DTYPE_OF_PRECISION, TENSORRT_RTX, EngineLibrary
from paritygate.engine.settings import EngineSettings, HardwareCompatibility
from paritygate.errors import UsageError
from paritygate.precision import Precision

# The library silently clips higher ones. Source: the library's documentation, because no member has the number.
_HIGHEST_OPTIMIZATION_LEVEL = 5


class Capabilities(Struct, frozen=True, kw_only=True):
    """Features of one library."""

    library: str  # tensorrt or tensorrt-rtx
    version: str
    title: str  # name and version for people
    strongly_typed_flag: bool
    has_tf32_flag: bool  # TF32 can be switched off
    compute_capabilities: tuple[str, ...]  # GPUs to build for ahead of time (8.9); empty: the one that builds
    hardware_compatibility: frozenset[str]  # levels that it honours, besides `none`
    has_version_compatible: bool  # later versions can run its engines
    has_timing_cache: bool  # it reads and extends a file of timings
    has_optimization_level: bool  # the effort of a build can be set
    has_workspace: bool  # scratch memory can be limited
    dtypes: frozenset[str]  # of tensors, under the library's names

    def check(self, settings: EngineSettings) -> None:
        """Raise UsageError for a setting that the library does not honour, with what it supports."""
        self._check_hardware_compatibility(settings.hardware_compatibility)
        self._check_compute_capabilities(settings.compute_capabilities)
        self._check_optimization_level(settings.optimization_level)
        self._check_workspace(settings.workspace_mb)
        if settings.version_compatible and not self.has_version_compatible:
            msg = f"{self.title} cannot make engines for other versions (version_compatible was requested)"
            raise UsageError(msg, hint="leave version_compatible out, and build again with every version that serves")
        if settings.timing_cache is not None and not self.has_timing_cache:
            msg = f"{self.title} keeps no timings (timing_cache {settings.timing_cache} was requested)"
            raise UsageError(msg, hint="leave timing_cache out")

    def check_precision(self, precision: Precision) -> None:
        """Raise UsageError if the library does not compute in the precision."""
        dtype = DTYPE_OF_PRECISION[precision]
        if dtype not in self.dtypes:
            msg = f"{self.title} has no dtype {dtype}, which {precision} needs (it has: {self._dtypes})"
            raise UsageError(msg, hint="install a later version, or choose another precision")
        # Also for fp32, because a library without the switch computes fp32 in TF32.
        if precision in {Precision.FP32, Precision.TF32} and not self.has_tf32_flag:
            msg = f"{self.title} has no switch for TF32, so {precision} would be the same"
            raise UsageError(msg, hint="install another version, or choose another precision")

    @property
    def _dtypes(self) -> str:
        return ", ".join(sorted(self.dtypes))

    def _check_hardware_compatibility(self, level: HardwareCompatibility) -> None:
        if level is HardwareCompatibility.NONE or str(level) in self.hardware_compatibility:
            return
        offered = ", ".join(["none", *sorted(self.hardware_compatibility)])
        msg = f"{self.title} does not honour hardware_compatibility {str(level)!r} (honoured: {offered})"
        if self.compute_capabilities:
            hint = f"name the GPUs instead: compute_capabilities, of {', '.join(self.compute_capabilities)}"
        else:
            hint = "choose one of these, and build on every kind of GPU that you serve on"
        raise UsageError(msg, hint=hint)

    def _check_compute_capabilities(self, asked: tuple[str, ...]) -> None:
        if not asked:
            return
        if not self.compute_capabilities:
            msg = f"{self.title} builds only for the GPU that it builds on ({_listed(asked)} was requested)"
            raise UsageError(
                msg, hint="leave compute_capabilities out and build on that GPU, or choose the target tensorrt-rtx-fp32"
            )
        unknown = [name for name in asked if name not in self.compute_capabilities]
        if unknown:
            offered = ", ".join(self.compute_capabilities)
            msg = f"{self.title} builds no engine for {_listed(unknown)} (it builds for: {offered})"
            # The list lacks GPUs of data centers: H100 and H200 have 9.0, B200 has 10.0.
            raise UsageError(msg, hint="for other GPUs choose a target such as tensorrt-fp32, and build it on that GPU")

    def _check_optimization_level(self, level: int | None) -> None:
        if level is None:
            return
        if not self.has_optimization_level:
            msg = f"{self.title} has no optimization levels (optimization_level {level} was requested)"
            raise UsageError(msg, hint="leave optimization_level out")
        if not 0 <= level <= _HIGHEST_OPTIMIZATION_LEVEL:
            msg = f"optimization_level is {level} (allowed: 0 to {_HIGHEST_OPTIMIZATION_LEVEL})"
            raise UsageError(msg, hint="0 builds fastest, 5 runs fastest; leave it out for the library's default")

    def _check_workspace(self, mebibytes: int | None) -> None:
        if mebibytes is None:
            return
        if not self.has_workspace:
            msg = f"{self.title} cannot limit its scratch memory (workspace_mb {mebibytes} was requested)"
            raise UsageError(msg, hint="leave workspace_mb out")
        if mebibytes < 1:
            msg = f"workspace_mb is {mebibytes} (allowed: 1 and more, in MiB)"
            raise UsageError(msg, hint="leave it out for the library's default")


@cache
def capabilities_of(library: EngineLibrary) -> Capabilities:
    """Return the library's capabilities, from the names in its module."""
    trt = library.module
    config = trt.IBuilderConfig
    flags = _members(trt, "BuilderFlag")
    # By name, because TensorRT-RTX has the names of all three and honours none. A hardware compatibility level
    # reads back as none, VERSION_COMPATIBLE needs a library that does not exist for it, and a timing cache stays
    # empty.
    is_rtx = library.name == TENSORRT_RTX
    levels = _members(trt, "HardwareCompatibilityLevel") if hasattr(config, "hardware_compatibility_level") else set()
    level_names = {level.name for level in HardwareCompatibility} - {HardwareCompatibility.NONE.name}
    return Capabilities(
        library=library.name,
        version=library.version,
        title=library.title,
        strongly_typed_flag="STRONGLY_TYPED" in _members(trt, "NetworkDefinitionCreationFlag"),
        has_tf32_flag="TF32" in flags,
        compute_capabilities=_compute_capabilities(trt) if hasattr(config, "set_compute_capability") else (),
        hardware_compatibility=frozenset() if is_rtx else frozenset(level.lower() for level in levels & level_names),
        has_version_compatible="VERSION_COMPATIBLE" in flags and not is_rtx,
        has_timing_cache=hasattr(config, "set_timing_cache") and not is_rtx,
        has_optimization_level=hasattr(config, "builder_optimization_level"),
        has_workspace=hasattr(config, "set_memory_pool_limit") and "WORKSPACE" in _members(trt, "MemoryPoolType"),
        dtypes=frozenset(_members(trt, "DataType")),
    )


def _members(trt: ModuleType, name: str) -> set[str]:
    enum: Any = getattr(trt, name, None)
    return set() if enum is None else set(enum.__members__)


def _compute_capabilities(trt: ModuleType) -> tuple[str, ...]:
    # SM89 is 8.9 and SM120 is 12.0; NONE and CURRENT name no GPU.
    matches = [match for name in _members(trt, "ComputeCapability") if (match := re.fullmatch(r"SM(\d+)(\d)", name))]
    pairs = sorted((int(match[1]), int(match[2])) for match in matches)
    return tuple(f"{major}.{minor}" for major, minor in pairs)


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return f"compute capability {', '.join(names)}"
