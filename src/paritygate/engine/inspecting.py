"""Open an engine on a GPU, compare it with the record beside it, and read the dtypes of its layers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.engine.builder_log import BuilderLog, make_logger, said
from paritygate.engine.library import NUMPY_DTYPES, EngineLibrary
from paritygate.engine.record import RECORD_FILE, EngineRecord
from paritygate.engine.settings import ProfileShapes
from paritygate.errors import BackendError, InputFileError
from paritygate.signature import TensorSpec

BUILD_AGAIN = "build the engine again: convert-and-validate build"
# A size that is only known at run time.
_OPEN = -1
# Formats in the inspector's output, which differ between versions: `Half NC/8HW8`, `Row major linear FP16 format`.
_WORDS: Mapping[str, str] = {
    "float": "FLOAT",
    "fp32": "FLOAT",
    "half": "HALF",
    "fp16": "HALF",
    "bfloat16": "BF16",
    "bf16": "BF16",
    "int8": "INT8",
}
_WORD = re.compile(r"[a-z0-9]+")


class LoadedEngine(Struct, frozen=True, kw_only=True):
    """An engine in the memory of the GPU."""

    library: EngineLibrary  # that loaded it
    cuda_engine: Any  # the library's ICudaEngine
    runtime: Any  # must live as long as the engine


def load_engine(path: Path, library: EngineLibrary) -> LoadedEngine:
    """Return the engine, deserialized.

    Raises:
        InputFileError: The file is empty.
        BackendError: The library refused it; the message has the errors that it logged.
    """
    from polygraphy.backend.trt import engine_from_bytes

    content = path.read_bytes()
    if not content:
        raise InputFileError(f"{path} is empty, so it is not an engine", hint=BUILD_AGAIN)
    log = BuilderLog(library.title)
    # Ours before Polygraphy's, because the library logs to the first logger that it gets.
    logger = make_logger(library, log)
    try:
        # Some ONNX operators are plugins of the library.
        library.module.init_libnvinfer_plugins(logger, "")
        runtime = library.module.Runtime(logger)
        cuda_engine = engine_from_bytes(content, runtime=runtime)
    except Exception as err:
        reason = log.reason() or said(f"{type(err).__name__}: {err}").rstrip(": ")
        msg = f"{library.title} could not load the engine {path}: {reason}"
        raise BackendError(msg, hint=f"{BUILD_AGAIN}, with this library and for this GPU") from err
    return LoadedEngine(library=library, cuda_engine=cuda_engine, runtime=runtime)


def check_engine(engine: Any, record: EngineRecord) -> None:  # noqa: ANN401 - an ICudaEngine of either library
    """Raise BackendError if inputs, outputs or shapes of the engine differ from its record."""
    modes = _found_tensors(engine)
    for mode, specs in (("INPUT", record.signature.inputs), ("OUTPUT", record.signature.outputs)):
        names = [name for name, its_mode in modes.items() if its_mode == mode]
        wanted = [spec.name for spec in specs]
        if sorted(names) != sorted(wanted):
            _differs(f"its {mode.lower()}s are {', '.join(names) or 'none'}", ", ".join(wanted))
        for spec in specs:
            _check_tensor(engine, spec)
    if engine.num_optimization_profiles != 1:
        _differs(f"it has {engine.num_optimization_profiles} optimization profiles", "1")
    for name, shapes in record.profile.items():
        _check_profile_of(engine, name, shapes)


def _found_tensors(engine: Any) -> dict[str, str]:  # noqa: ANN401
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    return {name: engine.get_tensor_mode(name).name for name in names}


def _check_tensor(engine: Any, spec: TensorSpec) -> None:  # noqa: ANN401
    dtype = engine.get_tensor_dtype(spec.name).name
    if NUMPY_DTYPES.get(dtype) != spec.dtype:
        _differs(f"{spec.name!r} is of dtype {dtype}", spec.dtype)
    shape = tuple(engine.get_tensor_shape(spec.name))
    if spec.shape is not None and not _agrees(shape, spec.shape):
        _differs(f"{spec.name!r} has shape {list(shape)}", str(spec))
    layout = engine.get_tensor_format(spec.name).name
    if layout != "LINEAR":
        _differs(f"{spec.name!r} has the layout {layout}", "LINEAR")


def _agrees(found: tuple[int, ...], wanted: tuple[int | str | None, ...]) -> bool:
    # A size that only the engine knows is not a contradiction.
    return len(found) == len(wanted) and all(
        not isinstance(dim, int) or size in {dim, _OPEN} for size, dim in zip(found, wanted, strict=True)
    )


def _check_profile_of(engine: Any, name: str, shapes: ProfileShapes) -> None:  # noqa: ANN401
    if _OPEN not in tuple(engine.get_tensor_shape(name)):
        return
    profile_shapes = tuple(tuple(shape) for shape in engine.get_tensor_profile_shape(name, 0))
    if profile_shapes != (shapes.min, shapes.opt, shapes.max):
        _differs(
            f"{name!r} takes shapes {' '.join(str(list(shape)) for shape in profile_shapes)} (min, opt, max)",
            f"{list(shapes.min)} {list(shapes.opt)} {list(shapes.max)}",
        )


def _differs(found: str, recorded: str) -> None:
    raise BackendError(f"the engine differs from its {RECORD_FILE}: {found}, expected {recorded}", hint=BUILD_AGAIN)


def inspect_engine(loaded: LoadedEngine) -> dict[str, dict[str, int]]:
    """Return the number of layers' outputs, by dtype and layer; empty for an engine built without details."""
    trt = loaded.library.module
    if loaded.cuda_engine.profiling_verbosity != trt.ProfilingVerbosity.DETAILED:
        return {}
    inspector = loaded.cuda_engine.create_engine_inspector()
    return inspected_dtypes(inspector.get_engine_information(trt.LayerInformationFormat.JSON))


def inspected_dtypes(inspection: str) -> dict[str, dict[str, int]]:
    """Return `inspect_engine` from the inspector's JSON; empty where it has only names, or an unknown form."""
    try:
        layers = json.loads(inspection)["Layers"]
    except (ValueError, KeyError, TypeError):
        return {}
    counts: dict[str, Counter[str]] = {}
    for layer in layers:
        # An engine built without details has only names of layers.
        if not isinstance(layer, dict):
            continue
        for dtype in _dtypes_of_outputs(layer):
            counts.setdefault(dtype, Counter())[str(layer.get("LayerType", "unknown"))] += 1
    return {dtype: dict(layers) for dtype, layers in counts.items()}


def _dtypes_of_outputs(layer: Mapping[str, Any]) -> Iterator[str]:
    for output in layer.get("Outputs", ()):
        if not isinstance(output, dict):
            continue
        formats = " ".join(str(output.get(key, "")) for key in ("Format/Datatype", "Datatype", "Format"))
        dtypes = [_WORDS[word] for word in _WORD.findall(formats.lower()) if word in _WORDS]
        if dtypes:
            yield dtypes[0]
