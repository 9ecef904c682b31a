"""Build an engine from ONNX: parse it, count its dtypes, configure the library, write engine and record.

A setting that the library does not keep is an error.
"""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from paritygate.backends import version_of
from paritygate.codec import to_data
from paritygate.convert.contract import agreed_signature
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.engine.dtype_counts import check_dtypes, count_dtypes, quantized_products
from paritygate.convert.engine.network import (
    ParsedNetwork,
    check_inputs_and_outputs,
    library_errors,
    parse_network,
    signature_of_network,
)
from paritygate.convert.engine.quantized import check_quantization, fold_integer_biases, has_integer_biases
from paritygate.convert.onnx.rewrite import save_onnx
from paritygate.engine.builder_log import BuilderLog
from paritygate.engine.capabilities import capabilities_of
from paritygate.engine.gpu_fit import require_builder, targets_in_words
from paritygate.engine.library import TENSORRT, TENSORRT_RTX, EngineLibrary, open_library
from paritygate.engine.record import ENGINE_FILE, EngineRecord
from paritygate.engine.settings import EngineSettings, HardwareCompatibility, ProfileShapes, profile_of
from paritygate.errors import ConversionError
from paritygate.files import digest_of_file, digest_of_files, storage_errors, write_bytes_atomically
from paritygate.machine import gpu_of_machine
from paritygate.models.onnx.file import external_files, read_onnx, signature_of_onnx
from paritygate.models.onnx.graph import all_nodes, graphs_in
from paritygate.signature import Signature

if TYPE_CHECKING:
    import onnx

_MIB = 1 << 20
_LOW = {"FLOAT16": "HALF", "BFLOAT16": "BF16", "FLOAT8E4M3FN": "FP8", "FLOAT4E2M1": "FP4"}
# Attributes of operators that name the dtype of a result.
_NAMING = frozenset({"to", "dtype", "output_dtype"})


def build_engine(job: ConversionJob, name: str) -> Conversion:
    """Write the engine as `model.plan`, and its record as `engine.json`, with the library `tensorrt` or `tensorrt-rtx`.

    The job's source is an ONNX artifact in the job's precision. Its signature declares the sizes of every symbolic dim.
    """
    require_builder(name)
    library = open_library(name)
    capabilities = capabilities_of(library)
    capabilities.check(job.engine)
    capabilities.check_precision(job.precision)
    model = read_onnx(job.source.path)
    promised = job.signature or signature_of_onnx(model)
    profile = profile_of(promised)
    check_quantization(model, title=library.title)
    log = BuilderLog(library.title)
    work = _Work(job=job, library=library, log=log, model=model, promised=promised, profile=profile)
    with tempfile.TemporaryDirectory(dir=job.folder) as place:
        path, folded = _readable(work, Path(place))
        built = _build(work, parse_network(library, log, path, model))
    built.record.save(job.folder / ENGINE_FILE)
    return Conversion(
        main=ENGINE_FILE,
        signature=built.record.signature,
        notes=tuple(_notes(work, built, folded)),
        facts=_facts(work, built),
    )


class _Work(Struct, frozen=True, kw_only=True):
    job: ConversionJob
    library: EngineLibrary
    log: BuilderLog
    model: onnx.ModelProto
    promised: Signature
    profile: Mapping[str, ProfileShapes]


class _Built(Struct, frozen=True, kw_only=True):
    record: EngineRecord
    products: Mapping[str, int]
    layers: int
    computes: str
    engine_bytes: int


def _readable(work: _Work, place: Path) -> tuple[Path, int]:
    """Return a model that the parser can read, and how many biases became float for that."""
    import onnx

    path = work.job.source.path
    if not has_integer_biases(work.model):
        return path, 0
    whole = onnx.load(str(path))
    folded = fold_integer_biases(whole)
    save_onnx(whole, place / path.name)
    return place / path.name, folded


def _build(work: _Work, parsed: ParsedNetwork) -> _Built:
    job, library, network = work.job, work.library, parsed.network
    check_inputs_and_outputs(network, work.model, title=library.title)
    # Only names and dtypes, because a network has no names for the dims of its outputs.
    signature = agreed_signature(signature_of_network(network), work.promised, keeps_names=False)
    counts, products = count_dtypes(network), quantized_products(network)
    low_dtypes = frozenset(_LOW[name] for name in _dtypes(work.model) if name in _LOW)
    computes = check_dtypes(counts, job.precision, products=products, given=low_dtypes, title=library.title)
    size = _write_engine(work, parsed)
    gpu = gpu_of_machine() if library.name == TENSORRT else None
    record = EngineRecord(
        library=library.name,
        version=library.version,
        precision=job.precision,
        signature=signature,
        profile=work.profile,
        tf32=False,
        settings=job.engine,
        dtype_counts=counts,
        built_on=None if gpu is None else asdict(gpu),
        targets=targets_in_words(job.engine, gpu),
    )
    return _Built(record=record, products=products, layers=network.num_layers, computes=computes, engine_bytes=size)


def _write_engine(work: _Work, parsed: ParsedNetwork) -> int:
    """Build the engine, write it and return its size in bytes."""
    from polygraphy.backend.trt import engine_bytes_from_network

    job, library = work.job, work.library
    cache = job.engine.timing_cache
    if cache is not None:
        # Now, not after a build of minutes.
        with storage_errors(cache):
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.open("ab").close()
    with library_errors(library, work.log, "build the engine"):
        config = create_config(library, parsed, work.profile, job.engine)
        plan = engine_bytes_from_network(
            (parsed.builder, parsed.network), config=config, save_timing_cache=None if cache is None else str(cache)
        )
    if cache is not None and not (cache.is_file() and cache.stat().st_size):
        msg = f"{library.title} wrote no timings to the timing_cache {cache}"
        raise ConversionError(msg, hint="leave timing_cache out, or name a file in a folder that can be written")
    # Its own memory, because engines are too large to copy.
    write_bytes_atomically(job.folder / ENGINE_FILE, plan)
    return int(plan.nbytes)


def _notes(work: _Work, built: _Built, folded: int) -> Iterator[str]:
    how = "built" if built.record.built_on else "built ahead of time"
    yield f"{how} by {work.library.title} for {built.record.targets}"
    yield built.computes
    yield "TF32 is off, so FP32 values of the network are computed in FP32"
    if folded:
        yield f"{folded} biases that were stored in int32 became float constants: TensorRT dequantizes no int32"
    if "DOUBLE" in _dtypes(work.model):
        yield "float64 inside the model is computed in float32, because engines have no float64"
    warned = work.log.warned()
    if warned:
        yield f"warnings of {work.library.title}: {warned}"


def _facts(work: _Work, built: _Built) -> dict[str, Any]:
    record, path = built.record, work.job.source.path
    names = [path.name, *external_files(work.model)]
    facts: dict[str, Any] = {
        "library": record.library,
        "version": record.version,
        "polygraphy": version_of("polygraphy"),
        "tf32": record.tf32,
        "dtype_counts": record.dtype_counts,
        "layers": built.layers,
        "profile": {name: to_data(shapes) for name, shapes in record.profile.items()},
        "targets": record.targets,
        "engine_settings": to_data(record.settings),
        "built_on": record.built_on,
        "engine_bytes": built.engine_bytes,
        "onnx": digest_of_files({name: digest_of_file(path.parent / name) for name in names}),
    }
    return facts | ({"int8_products": dict(built.products)} if built.products else {})


def create_config(
    library: EngineLibrary, parsed: ParsedNetwork, profile: Mapping[str, ProfileShapes], settings: EngineSettings
) -> Any:  # noqa: ANN401 - an IBuilderConfig
    """Return the builder's configuration: one profile, no TF32, the settings, and no flag of precision.

    Raises:
        ConversionError: The library does not apply a setting.
    """
    config = _loader(library, profile, settings)(parsed.builder, parsed.network)
    # Polygraphy leaves it on for TensorRT-RTX, and FP32 products would have a mantissa of 10 bits.
    config.clear_flag(library.module.BuilderFlag.TF32)
    for what, wanted, actual in _read_back(library, config, settings):
        if wanted != actual:
            msg = f"{library.title} does not apply {what} (got {actual}, expected {wanted})"
            raise ConversionError(msg, hint="leave the setting out, or install another version of the library")
    return config


def _loader(library: EngineLibrary, profile: Mapping[str, ProfileShapes], settings: EngineSettings) -> Any:  # noqa: ANN401
    from polygraphy.backend.tensorrt_rtx import CreateConfigRTX
    from polygraphy.backend.trt import CreateConfig

    trt = library.module
    options: dict[str, Any] = {"profiles": [_polygraphy_profile(profile)]}
    if settings.workspace_mb is not None:
        options["memory_pool_limits"] = {trt.MemoryPoolType.WORKSPACE: settings.workspace_mb * _MIB}
    if settings.optimization_level is not None:
        options["builder_optimization_level"] = settings.optimization_level
    if settings.hardware_compatibility is not HardwareCompatibility.NONE:
        options["hardware_compatibility_level"] = _level(library, settings)
    if settings.version_compatible:
        options["version_compatible"] = True
    cache = settings.timing_cache
    # An empty one is still to be written.
    if cache is not None and cache.is_file() and cache.stat().st_size:
        options["load_timing_cache"] = str(cache)
    if library.name != TENSORRT_RTX:
        return CreateConfig(**options)
    if settings.compute_capabilities:
        options["compute_capabilities"] = [_capability(name) for name in settings.compute_capabilities]
    return CreateConfigRTX(**options)


def _polygraphy_profile(profile: Mapping[str, ProfileShapes]) -> Any:  # noqa: ANN401 - a Profile
    from polygraphy.backend.trt import Profile

    ranges = Profile()
    for name, shapes in profile.items():
        # Names are patterns there: `x[0]` would be the input `x0`.
        ranges.add(glob.escape(name), min=shapes.min, opt=shapes.opt, max=shapes.max)
    return ranges


def _level(library: EngineLibrary, settings: EngineSettings) -> Any:  # noqa: ANN401 - a HardwareCompatibilityLevel
    return getattr(library.module.HardwareCompatibilityLevel, settings.hardware_compatibility.name)


def _capability(name: str) -> tuple[int, int]:
    major, _, minor = name.partition(".")
    return int(major), int(minor)


def _read_back(library: EngineLibrary, config: Any, settings: EngineSettings) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401
    """Yield each setting's name, its requested value and the configuration's."""
    trt = library.module
    yield "TF32", "off", "on" if config.get_flag(trt.BuilderFlag.TF32) else "off"
    yield "optimization profiles", 1, config.num_optimization_profiles
    if settings.workspace_mb is not None:
        limit = config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE)
        yield "workspace_mb", settings.workspace_mb, limit // _MIB
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


def _dtypes(model: onnx.ModelProto) -> set[str]:
    """Return the dtypes of weights, constants, casts, inputs and outputs."""
    import onnx

    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    numbers: set[int] = set()
    for graph in graphs_in(model.graph):
        numbers |= {tensor.data_type for tensor in graph.initializer}
        numbers |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    for node in all_nodes(model):
        numbers |= {item.t.data_type for item in node.attribute if item.HasField("t")}
        numbers |= {item.i for item in node.attribute if item.name in _NAMING}
    return {names[number] for number in numbers if number in names}
