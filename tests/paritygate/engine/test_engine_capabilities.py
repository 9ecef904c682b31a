"""What the libraries behind engines can do is found by looking, and what they would ignore is refused in words."""

from __future__ import annotations

import enum
import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paritygate.engine.builder_log import BuilderLog, make_logger
from paritygate.engine.capabilities import Capabilities, capabilities_of
from paritygate.engine.library import TENSORRT, TENSORRT_RTX, EngineLibrary
from paritygate.engine.settings import EngineSettings, HardwareCompatibility
from paritygate.errors import UsageError
from paritygate.precision import Precision

_ALL_OF_CONFIG = (
    "builder_optimization_level",
    "hardware_compatibility_level",
    "set_memory_pool_limit",
    "set_timing_cache",
)
_ENUMS = {
    "BuilderFlag": ("TF32", "VERSION_COMPATIBLE"),
    "DataType": ("FLOAT", "HALF", "BF16", "INT8"),
    "HardwareCompatibilityLevel": ("NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"),
    "MemoryPoolType": ("WORKSPACE", "TACTIC_DRAM"),
    "NetworkDefinitionCreationFlag": ("STRONGLY_TYPED",),
}


def stand_in(
    name: str = TENSORRT,
    *,
    config: tuple[str, ...] = _ALL_OF_CONFIG,
    version: str = "10.16.1.11",
    **enums: tuple[str, ...] | None,
) -> EngineLibrary:
    """Return a library whose module has these names alone: what a machine without a GPU cannot import."""
    module: Any = ModuleType("stand_in")
    module.__version__ = version
    module.IBuilderConfig = type("IBuilderConfig", (), dict.fromkeys(config))
    for title, members in (_ENUMS | enums).items():
        if members is not None:
            setattr(module, title, enum.Enum(title, members))
    return EngineLibrary(name=name, module=module)


def refusal(capabilities: Capabilities, settings: EngineSettings) -> UsageError:
    """Return the error that these settings are refused with."""
    with pytest.raises(UsageError) as caught:
        capabilities.check(settings)
    assert caught.value.hint
    return caught.value


@pytest.fixture(scope="module")
def rtx() -> ModuleType:
    return importlib.import_module("tensorrt_rtx_bindings")


@pytest.fixture(scope="module")
def capable_rtx(rtx: ModuleType) -> Capabilities:
    return capabilities_of(EngineLibrary(name=TENSORRT_RTX, module=rtx))


def test_a_full_library_honours_all_but_targets() -> None:
    capabilities = capabilities_of(stand_in())

    capabilities.check(
        EngineSettings(
            workspace_mb=64,
            optimization_level=5,
            hardware_compatibility=HardwareCompatibility.SAME_COMPUTE_CAPABILITY,
            version_compatible=True,
            timing_cache=Path("timings"),
        )
    )
    assert capabilities.title == "TensorRT 10.16.1.11"
    assert capabilities.strongly_typed_flag
    assert capabilities.has_tf32_flag
    assert capabilities.hardware_compatibility == {"ampere_plus", "same_compute_capability"}


def test_a_library_is_looked_at_once() -> None:
    library = stand_in()

    assert capabilities_of(library) is capabilities_of(EngineLibrary(name=library.name, module=library.module))


def test_a_library_with_none_of_the_names_takes_the_defaults() -> None:
    library = stand_in(
        config=(), BuilderFlag=None, HardwareCompatibilityLevel=None, MemoryPoolType=None, DataType=("FLOAT",)
    )

    capabilities = capabilities_of(library)

    capabilities.check(EngineSettings())
    assert not capabilities.has_tf32_flag
    assert not capabilities.hardware_compatibility


def test_a_level_that_the_library_lacks_is_refused_with_those_it_has() -> None:
    library = stand_in(HardwareCompatibilityLevel=("NONE", "AMPERE_PLUS"))

    err = refusal(
        capabilities_of(library), EngineSettings(hardware_compatibility=HardwareCompatibility.SAME_COMPUTE_CAPABILITY)
    )

    assert str(err) == (
        "TensorRT 10.16.1.11 does not honour hardware_compatibility 'same_compute_capability' "
        "(honoured: none, ampere_plus)"
    )
    assert err.hint == "choose one of these, and build on every kind of GPU that you serve on"


@pytest.mark.parametrize("missing", ["config", "enum"])
def test_no_level_is_honoured_where_either_half_of_it_is_missing(missing: str) -> None:
    library = stand_in(config=()) if missing == "config" else stand_in(HardwareCompatibilityLevel=None)

    err = refusal(capabilities_of(library), EngineSettings(hardware_compatibility=HardwareCompatibility.AMPERE_PLUS))

    assert str(err).endswith("does not honour hardware_compatibility 'ampere_plus' (honoured: none)")


def test_tensorrt_builds_for_no_gpu_but_the_one_it_builds_on() -> None:
    err = refusal(capabilities_of(stand_in()), EngineSettings(compute_capabilities=("8.9", "9.0")))

    assert str(err) == (
        "TensorRT 10.16.1.11 builds only for the GPU that it builds on (compute capability 8.9, 9.0 was requested)"
    )
    assert err.hint == ("leave compute_capabilities out and build on that GPU, or choose the target tensorrt-rtx-fp32")


def test_targets_are_read_from_the_members_in_order_and_name_gpus_alone() -> None:
    config = (*_ALL_OF_CONFIG, "set_compute_capability")
    library = stand_in(config=config, ComputeCapability=("NONE", "CURRENT", "SM120", "SM90", "SM89"))

    assert capabilities_of(library).compute_capabilities == ("8.9", "9.0", "12.0")


def test_version_compatible_is_refused_without_the_flag() -> None:
    err = refusal(capabilities_of(stand_in(BuilderFlag=("TF32",))), EngineSettings(version_compatible=True))

    assert str(err) == "TensorRT 10.16.1.11 cannot make engines for other versions (version_compatible was requested)"
    assert err.hint == "leave version_compatible out, and build again with every version that serves"


def test_a_timing_cache_is_refused_where_none_is_kept() -> None:
    err = refusal(capabilities_of(stand_in(config=())), EngineSettings(timing_cache=Path("timings.cache")))

    assert str(err) == "TensorRT 10.16.1.11 keeps no timings (timing_cache timings.cache was requested)"
    assert err.hint == "leave timing_cache out"


def test_an_optimization_level_is_refused_where_there_are_none() -> None:
    err = refusal(capabilities_of(stand_in(config=())), EngineSettings(optimization_level=0))

    assert str(err) == "TensorRT 10.16.1.11 has no optimization levels (optimization_level 0 was requested)"
    assert err.hint == "leave optimization_level out"


@pytest.mark.parametrize("level", [-1, 6])
def test_an_optimization_level_out_of_range_is_refused(level: int) -> None:
    err = refusal(capabilities_of(stand_in()), EngineSettings(optimization_level=level))

    assert str(err) == f"optimization_level is {level} (allowed: 0 to 5)"
    assert err.hint == "0 builds fastest, 5 runs fastest; leave it out for the library's default"


@pytest.mark.parametrize("level", [0, 5])
def test_the_ends_of_the_range_of_optimization_levels_are_allowed(level: int) -> None:
    capabilities_of(stand_in()).check(EngineSettings(optimization_level=level))


@pytest.mark.parametrize("missing", ["config", "enum"])
def test_a_workspace_is_refused_where_it_cannot_be_limited(missing: str) -> None:
    library = stand_in(config=()) if missing == "config" else stand_in(MemoryPoolType=("TACTIC_DRAM",))

    err = refusal(capabilities_of(library), EngineSettings(workspace_mb=64))

    assert str(err) == "TensorRT 10.16.1.11 cannot limit its scratch memory (workspace_mb 64 was requested)"
    assert err.hint == "leave workspace_mb out"


@pytest.mark.parametrize("mebibytes", [0, -1])
def test_a_workspace_of_nothing_is_refused(mebibytes: int) -> None:
    err = refusal(capabilities_of(stand_in()), EngineSettings(workspace_mb=mebibytes))

    assert str(err) == f"workspace_mb is {mebibytes} (allowed: 1 and more, in MiB)"
    assert err.hint == "leave it out for the library's default"


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32, Precision.FP16, Precision.BF16, Precision.INT8])
def test_a_full_library_computes_in_every_precision_of_engines(precision: Precision) -> None:
    capabilities_of(stand_in()).check_precision(precision)


@pytest.mark.parametrize(
    ("precision", "dtype"), [(Precision.FP16, "HALF"), (Precision.BF16, "BF16"), (Precision.INT8, "INT8")]
)
def test_a_precision_whose_dtype_is_missing_is_refused(precision: Precision, dtype: str) -> None:
    has = tuple(name for name in _ENUMS["DataType"] if name != dtype)

    with pytest.raises(UsageError) as caught:
        capabilities_of(stand_in(DataType=has)).check_precision(precision)

    assert str(caught.value) == (
        f"TensorRT 10.16.1.11 has no dtype {dtype}, which {precision} needs (it has: {', '.join(sorted(has))})"
    )
    assert caught.value.hint == "install a later version, or choose another precision"


def test_fp32_is_refused_where_tf32_cannot_be_switched_off() -> None:
    capabilities = capabilities_of(stand_in(BuilderFlag=("VERSION_COMPATIBLE",)))

    capabilities.check_precision(Precision.FP16)
    with pytest.raises(UsageError) as caught:
        capabilities.check_precision(Precision.FP32)

    assert str(caught.value) == "TensorRT 10.16.1.11 has no switch for TF32, so fp32 would be the same"
    assert caught.value.hint == "install another version, or choose another precision"


@pytest.mark.rtx
def test_rtx_builds_ahead_of_time_and_computes_in_every_precision(capable_rtx: Capabilities, rtx: ModuleType) -> None:
    capable_rtx.check(EngineSettings(workspace_mb=512, optimization_level=3, compute_capabilities=("8.6", "8.9")))
    for precision in (Precision.FP32, Precision.FP16, Precision.BF16, Precision.INT8):
        capable_rtx.check_precision(precision)
    assert capable_rtx.title == f"TensorRT-RTX {rtx.__version__}"
    assert {"8.0", "8.6", "8.9", "12.0"} <= set(capable_rtx.compute_capabilities)
    assert capable_rtx.strongly_typed_flag


@pytest.mark.rtx
@pytest.mark.parametrize("asked", ["9.0", "10.0", "8.7"])
def test_rtx_refuses_a_gpu_that_it_does_not_build_for(capable_rtx: Capabilities, asked: str) -> None:
    err = refusal(capable_rtx, EngineSettings(compute_capabilities=("8.9", asked)))

    offered = ", ".join(capable_rtx.compute_capabilities)
    assert str(err) == f"{capable_rtx.title} builds no engine for compute capability {asked} (it builds for: {offered})"
    assert err.hint == "for other GPUs choose a target such as tensorrt-fp32, and build it on that GPU"


@pytest.mark.rtx
@pytest.mark.parametrize("level", [HardwareCompatibility.AMPERE_PLUS, HardwareCompatibility.SAME_COMPUTE_CAPABILITY])
def test_rtx_refuses_hardware_compatibility(capable_rtx: Capabilities, level: HardwareCompatibility) -> None:
    err = refusal(capable_rtx, EngineSettings(hardware_compatibility=level))

    assert str(err) == f"{capable_rtx.title} does not honour hardware_compatibility '{level}' (honoured: none)"
    assert re.fullmatch(r"name the GPUs instead: compute_capabilities, of 7\.5, 8\.0, .*", err.hint)


@pytest.mark.rtx
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (EngineSettings(version_compatible=True), "cannot make engines for other versions"),
        (EngineSettings(timing_cache=Path("timings")), "keeps no timings"),
    ],
)
def test_rtx_refuses_what_it_has_only_the_name_of(
    capable_rtx: Capabilities, settings: EngineSettings, words: str
) -> None:
    assert words in str(refusal(capable_rtx, settings))


class AllLines(BuilderLog):
    """All that the library says, the thousands of lines too."""

    def __init__(self) -> None:
        super().__init__("test")
        self.said: list[str] = []

    def add(self, severity: str, message: str) -> None:
        self.said.append(f"{severity}: {message}")


class Build:
    """A tiny network on the way to an engine: what the library does with a setting, and what it says of it."""

    def __init__(self, trt: ModuleType) -> None:
        self.log = AllLines()
        self.builder = trt.Builder(make_logger(EngineLibrary(name=TENSORRT_RTX, module=trt), self.log))
        self.network = self.builder.create_network(0)
        x = self.network.add_input("x", trt.float32, (2, 4))
        product = self.network.add_matrix_multiply(x, trt.MatrixOperation.NONE, x, trt.MatrixOperation.TRANSPOSE)
        self.network.mark_output(product.get_output(0))
        self.config = self.builder.create_builder_config()

    def is_built(self) -> bool:
        return self.builder.build_serialized_network(self.network, self.config) is not None

    def lines(self, words: str) -> list[str]:
        return [line for line in self.log.said if words in line]


@pytest.fixture
def build(rtx: ModuleType) -> Build:
    return Build(rtx)


# What follows holds the reasons in capabilities.py against the library itself: once it honours one of these, or
# ignores what we let through, a test says so.
@pytest.mark.rtx
def test_rtx_reads_a_hardware_compatibility_level_back_as_none(build: Build, rtx: ModuleType) -> None:
    build.config.hardware_compatibility_level = rtx.HardwareCompatibilityLevel.AMPERE_PLUS

    assert build.config.hardware_compatibility_level == rtx.HardwareCompatibilityLevel.NONE
    assert build.lines("setHardwareCompatibilityLevel() is unsupported in TensorRT-RTX")


@pytest.mark.rtx
def test_rtx_builds_nothing_that_is_version_compatible(build: Build, rtx: ModuleType) -> None:
    build.config.set_flag(rtx.BuilderFlag.VERSION_COMPATIBLE)

    assert not build.is_built()
    assert build.lines("Unable to load library: libnvinfer_lean")


@pytest.mark.rtx
@pytest.mark.filterwarnings("ignore:Use Deprecated:DeprecationWarning")
def test_rtx_keeps_its_timing_cache_empty(build: Build) -> None:
    with pytest.warns(DeprecationWarning, match="Timing cache operations are no-ops in TensorRT-RTX"):
        build.config.set_timing_cache(build.config.create_timing_cache(b""), ignore_mismatch=False)
    before = bytes(build.config.get_timing_cache().serialize())

    assert build.is_built()
    assert bytes(build.config.get_timing_cache().serialize()) == before


@pytest.mark.rtx
def test_rtx_takes_an_optimization_level_and_clamps_what_is_beyond(build: Build) -> None:
    for level in range(6):
        build.config.builder_optimization_level = level
        assert build.config.builder_optimization_level == level
    build.config.builder_optimization_level = 6
    assert build.config.builder_optimization_level == 5
    build.config.builder_optimization_level = 0

    assert build.is_built()
    assert build.lines("at optimization level 0")


@pytest.mark.rtx
def test_rtx_holds_the_workspace(build: Build, rtx: ModuleType) -> None:
    build.config.set_memory_pool_limit(rtx.MemoryPoolType.WORKSPACE, 1)

    assert build.config.get_memory_pool_limit(rtx.MemoryPoolType.WORKSPACE) == 1
    assert not build.is_built()
    assert build.lines("no tactics to implement the operation within workspace limit")


@pytest.mark.rtx
def test_rtx_takes_every_compute_capability_that_it_names(
    build: Build, rtx: ModuleType, capable_rtx: Capabilities
) -> None:
    names = capable_rtx.compute_capabilities
    build.config.num_compute_capabilities = len(names)
    asked = [getattr(rtx.ComputeCapability, "SM" + name.replace(".", "")) for name in names]

    assert [build.config.set_compute_capability(target, index) for index, target in enumerate(asked)] == [True] * len(
        asked
    )
    assert [build.config.get_compute_capability(index) for index in range(len(asked))] == asked
