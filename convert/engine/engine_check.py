"""What the library reads from an engine, held against the record beside it. Only on a GPU that the engine runs on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paritygate.convert.engine.network import DTYPES, library_errors
from paritygate.convert.engine.targets import capability_of, is_built_for
from paritygate.engine.builder_log import BuilderLog, make_logger
from paritygate.engine.capabilities import capabilities_of
from paritygate.engine.library import TENSORRT_RTX, EngineLibrary, open_library
from paritygate.engine.record import EngineRecord
from paritygate.errors import ConversionError
from paritygate.machine import gpu_of_machine
from paritygate.signature import TensorSpec

__all__ = ["engine_differences", "outputs_by_dtype", "read_engine", "why_not_loaded"]

# What the inspectors of different versions call it.
_DATATYPES = ("Datatype", "Format/Datatype")
_OPEN = -1


def why_not_loaded(record: EngineRecord) -> str | None:
    """Return why the engine cannot be loaded on this machine; None if it can."""
    gpu = gpu_of_machine()
    if gpu is None:
        return "engines are loaded on a GPU, and there is none here"
    if record.library != TENSORRT_RTX:
        return None
    offered = capabilities_of(open_library(record.library)).compute_capabilities
    if is_built_for(gpu, record.settings, offered):
        return None
    return f"it was built for {record.targets}, and the GPU here, {gpu.name}, has {capability_of(gpu)}"


def read_engine(path: Path, record: EngineRecord) -> dict[str, Any]:
    """Return what the library says of the engine, once it is what the record says.

    Raises:
        ConversionError: The library does not load it, or its tensors or shapes are others.
    """
    from polygraphy.backend.trt import engine_from_bytes

    library = open_library(record.library)
    trt = library.module
    log = BuilderLog(library.title)
    logger = make_logger(library, log)
    with library_errors(library, log, "load the engine that it built"):
        trt.init_libnvinfer_plugins(logger, "")
        # Has to live as long as the engine does.
        runtime = trt.Runtime(logger)
        engine = engine_from_bytes(path.read_bytes(), runtime=runtime)
    differences = list(engine_differences(engine, record))
    if differences:
        msg = f"the engine is not what its record says: {'; '.join(differences)}"
        raise ConversionError(msg, hint="build the engine again: convert-and-validate build --run DIR")
    return {"loaded_in": f"{library.name} {library.version}", "engine_layers": _layers(library, engine)}


def engine_differences(engine: Any, record: EngineRecord) -> Iterator[str]:  # noqa: ANN401 - an ICudaEngine
    """Yield each difference between an engine's inputs, outputs and profile, and its record."""
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    modes = {name: engine.get_tensor_mode(name).name for name in names}
    for side, specs in (("input", record.signature.inputs), ("output", record.signature.outputs)):
        found = [name for name in names if modes[name] == side.upper()]
        wanted = [spec.name for spec in specs]
        if sorted(found) != sorted(wanted):
            yield f"its {side}s are {', '.join(found) or 'none'}, recorded are {', '.join(wanted) or 'none'}"
            continue
        for spec in specs:
            yield from _tensor_differences(engine, f"{side} {spec.name!r}", spec)
    for name, shapes in record.profile.items():
        # Only what is open has a profile.
        if modes.get(name) == "INPUT" and _OPEN in tuple(engine.get_tensor_shape(name)):
            low, opt, high = (tuple(shape) for shape in engine.get_tensor_profile_shape(name, 0))
            if (low, opt, high) != (shapes.min, shapes.opt, shapes.max):
                recorded = f"{shapes.min}, {shapes.opt}, {shapes.max}"
                yield f"input {name!r} is built for {low}, {opt}, {high} (min, opt, max), recorded are {recorded}"


def _tensor_differences(engine: Any, what: str, spec: TensorSpec) -> Iterator[str]:  # noqa: ANN401 - an ICudaEngine
    dtype = engine.get_tensor_dtype(spec.name).name
    if DTYPES.get(dtype) != spec.dtype:
        yield f"{what} is {dtype}, recorded is {spec.dtype}"
    shape = tuple(engine.get_tensor_shape(spec.name))
    if spec.shape is None:
        return
    # What is a size in the record is a size in the network, and what is a name may have been found to be one size.
    is_other = any(isinstance(dim, int) and size != dim for size, dim in zip(shape, spec.shape, strict=False))
    if len(shape) != len(spec.shape) or is_other:
        yield f"{what} has shape {shape}, recorded is {spec}"


def _layers(library: EngineLibrary, engine: Any) -> Mapping[str, int]:  # noqa: ANN401 - an ICudaEngine
    text = engine.create_engine_inspector().get_engine_information(library.module.LayerInformationFormat.JSON)
    return outputs_by_dtype(text)


def outputs_by_dtype(information: str) -> Mapping[str, int]:
    """Return how many outputs of the engine's own layers there are, by what the inspector calls their dtype.

    Args:
        information: What the inspector says of the engine, as JSON. Where it knows only names of layers, nothing is
            counted.
    """
    layers = json.loads(information).get("Layers", [])
    outputs = [output for layer in layers if isinstance(layer, dict) for output in layer.get("Outputs", [])]
    said = (next((str(output[key]) for key in _DATATYPES if key in output), "unknown") for output in outputs)
    return dict(sorted(Counter(said).items()))
