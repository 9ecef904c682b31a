"""How the library is told to build, and what it says back: a setting that it does not keep is an error."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from typing import Any

from paritygate.convert.engine.network import ParsedNetwork
from paritygate.engine.library import TENSORRT_RTX, EngineLibrary
from paritygate.engine.profile import ProfileShapes
from paritygate.engine.settings import EngineSettings, HardwareCompatibility
from paritygate.errors import ConversionError

__all__ = ["create_config"]

_MIB = 1 << 20


def create_config(
    library: EngineLibrary, parsed: ParsedNetwork, profile: Mapping[str, ProfileShapes], settings: EngineSettings
) -> Any:  # noqa: ANN401 - an IBuilderConfig
    """Return the builder's configuration: one profile, no TF32, the settings, and no flag of precision.

    Args:
        library: The library; its capabilities allow the settings.
        parsed: The network to build.
        profile: The shapes of each input.
        settings: What was asked for.

    Raises:
        ConversionError: The library does not keep what it was told.
    """
    config = _loader(library, profile, settings)(parsed.builder, parsed.network)
    # Polygraphy leaves it on for TensorRT-RTX, and products in FP32 would have a mantissa of 10 bits.
    config.clear_flag(library.module.BuilderFlag.TF32)
    for what, wanted, found in _read_back(library, config, settings):
        if wanted != found:
            msg = f"{library.title} does not keep {what} {wanted}: it reads back {found}"
            raise ConversionError(msg, hint="leave the setting out, or install another version of the library")
    return config


def _loader(library: EngineLibrary, profile: Mapping[str, ProfileShapes], settings: EngineSettings) -> Any:  # noqa: ANN401
    from polygraphy.backend.tensorrt_rtx import CreateConfigRTX
    from polygraphy.backend.trt import CreateConfig

    trt = library.module
    asked: dict[str, Any] = {"profiles": [_polygraphy_profile(profile)]}
    if settings.workspace_mb is not None:
        asked["memory_pool_limits"] = {trt.MemoryPoolType.WORKSPACE: settings.workspace_mb * _MIB}
    if settings.optimization_level is not None:
        asked["builder_optimization_level"] = settings.optimization_level
    if settings.hardware_compatibility is not HardwareCompatibility.NONE:
        asked["hardware_compatibility_level"] = _level(library, settings)
    if settings.version_compatible:
        asked["version_compatible"] = True
    cache = settings.timing_cache
    # An empty one is about to be written.
    if cache is not None and cache.is_file() and cache.stat().st_size:
        asked["load_timing_cache"] = str(cache)
    if library.name != TENSORRT_RTX:
        return CreateConfig(**asked)
    if settings.compute_capabilities:
        asked["compute_capabilities"] = [_capability(name) for name in settings.compute_capabilities]
    return CreateConfigRTX(**asked)


def _polygraphy_profile(profile: Mapping[str, ProfileShapes]) -> Any:  # noqa: ANN401 - a Profile
    from polygraphy.backend.trt import Profile

    found = Profile()
    for name, shapes in profile.items():
        # It takes names for patterns: `x[0]` would be the input `x0`.
        found.add(glob.escape(name), min=shapes.min, opt=shapes.opt, max=shapes.max)
    return found


def _level(library: EngineLibrary, settings: EngineSettings) -> Any:  # noqa: ANN401 - a HardwareCompatibilityLevel
    return getattr(library.module.HardwareCompatibilityLevel, settings.hardware_compatibility.name)


def _capability(name: str) -> tuple[int, int]:
    major, _, minor = name.partition(".")
    return int(major), int(minor)


def _read_back(library: EngineLibrary, config: Any, settings: EngineSettings) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401
    """Yield what was asked for in words, as it should be, and as the configuration has it."""
    trt = library.module
    yield "TF32", "off", "on" if config.get_flag(trt.BuilderFlag.TF32) else "off"
    yield "optimization profiles", 1, config.num_optimization_profiles
    if settings.workspace_mb is not None:
        found = config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE)
        yield "workspace_mb", settings.workspace_mb, found // _MIB
    if settings.optimization_level is not None:
        yield "optimization_level", settings.optimization_level, config.builder_optimization_level
    if settings.hardware_compatibility is not HardwareCompatibility.NONE:
        yield "hardware_compatibility", _level(library, settings), config.hardware_compatibility_level
    if settings.version_compatible:
        yield "version_compatible", True, config.get_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    if settings.compute_capabilities:
        wanted = [f"SM{name.replace('.', '')}" for name in settings.compute_capabilities]
        count = range(config.num_compute_capabilities)
        yield "compute_capabilities", wanted, [config.get_compute_capability(index).name for index in count]
