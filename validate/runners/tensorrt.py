"""Run a TensorRT or TensorRT-RTX engine on the GPU, through Polygraphy.

Checks come before the library sees an engine. It refuses an engine that cannot run here too, but without advice, or
after it has loaded all of it.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.engine.builder_log import BuilderLog, make_logger
from paritygate.engine.capabilities import capabilities_of
from paritygate.engine.gpu_fit import BUILD_HERE, check_gpu
from paritygate.engine.inspecting import BUILD_AGAIN, LoadedEngine, check_engine, inspect_engine, load_engine
from paritygate.engine.library import DTYPE_OF_PRECISION, MOVING, QUANTIZE, TITLES, open_library
from paritygate.engine.record import RECORD_FILE, EngineRecord
from paritygate.errors import BackendError, InputFileError
from paritygate.machine import Gpu, device_name, gpu_of_machine, show_cuda_runtime
from paritygate.models.loading import LoadedModel
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec, rename_signature
from paritygate.validate.runners.engine_profile import check_profile, describe_profile
from paritygate.validate.runners.runner import ON_THE_GPU, Runner, RuntimeFacts, reason_of

_BFLOAT16 = "bfloat16"
_ELSEWHERE = (
    "validate it where there is one, with --device cuda, or accept the emulated row of its precision: promote.accept"
)
# INT8 outputs of QUANTIZE show that a network is quantized.
_NOT_COMPUTING = MOVING - {QUANTIZE}
# TF32 is a way to compute FLOAT, which no layer reports.
# These have the dtype of another precision.
_SHARING = frozenset({Precision.TF32, Precision.MIXED})
_PRECISIONS = {dtype: precision for precision, dtype in DTYPE_OF_PRECISION.items() if precision not in _SHARING}


def open_model(loaded: LoadedModel) -> TensorrtRunner:
    """Return the engine on the GPU, ready to run; its record must match the library, the GPU and the engine."""
    gpu = gpu_for_engines(loaded.device)
    path = loaded.ref.path
    record = _read_record(path, str(loaded.ref.kind))
    served = rename_signature(record.signature, loaded.ref.rename)
    library = open_library(record.library)
    offered = capabilities_of(library).compute_capabilities
    notes = (*check_version(record, library.version), *check_gpu(record, gpu, offered))
    engine = load_engine(path, library)
    check_engine(engine.cuda_engine, record)
    facts = engine_facts(engine, record, gpu, device=device_name(loaded.device), notes=notes)
    show_cuda_runtime(gpu)
    return TensorrtRunner(engine=engine, runner=_activate(engine), record=record, served=served, facts=facts)


def _read_record(path: Path, kind: str) -> EngineRecord:
    record = EngineRecord.load(path)
    if record.library != kind:
        msg = f"{path} was built by {record.library!r} (see its {RECORD_FILE}), so it cannot run as {kind!r}"
        raise InputFileError(msg, hint=BUILD_AGAIN)
    if set(record.profile) != {spec.name for spec in record.signature.inputs}:
        msg = (
            f"{path.parent / RECORD_FILE} is corrupt: shapes of {', '.join(record.profile) or 'nothing'}, but "
            f"inputs {', '.join(spec.name for spec in record.signature.inputs)}"
        )
        raise InputFileError(msg, hint=BUILD_AGAIN)
    if record.built_on is not None and not {"name", "capability"} <= set(record.built_on):
        msg = f"{path.parent / RECORD_FILE} is corrupt: name or capability of the GPU is missing"
        raise InputFileError(msg, hint=BUILD_AGAIN)
    return record


def _activate(engine: LoadedEngine) -> Any:  # noqa: ANN401 - a TrtRunner, and Polygraphy has no types
    from polygraphy.backend.trt import TrtRunner

    log = BuilderLog(engine.library.title)
    make_logger(engine.library, log)
    runner = TrtRunner(engine.cuda_engine)
    try:
        runner.activate()
    except Exception as err:
        msg = f"{engine.library.title} could not make the engine ready to run: {log.reason() or reason_of(err)}"
        hint = "check that the GPU has memory left, and that the CUDA runtime is installed: nvidia-cuda-runtime"
        raise BackendError(msg, hint=hint) from err
    return runner


def engine_facts(
    engine: LoadedEngine, record: EngineRecord, gpu: Gpu, *, device: str, notes: tuple[str, ...]
) -> RuntimeFacts:
    """Return what runs: the library, the GPU, and the facts of the engine and its record, which match."""
    inspected = inspect_engine(engine)
    level = record.settings.optimization_level
    compatibility = engine.cuda_engine.hardware_compatibility_level.name.lower()
    sentences = [
        f"it ran on {gpu.name}, driver {gpu.driver or 'of unknown version'}, CUDA {gpu.cuda}",
        *notes,
        f"it takes {describe_profile(record.profile)}",
    ]
    if record.dtype_counts:
        sentences.append(f"outputs of layers in its network, by dtype: {describe_dtypes(record.dtype_counts)}")
    if inspected:
        sentences.append(f"outputs of layers in the engine, by dtype: {describe_dtypes(inspected)}")
    return RuntimeFacts(
        runtime=record.library,
        version=engine.library.version,
        device=device,
        # The engine's own report is better where there is one: the network is its source.
        precision_found=precision_of_dtypes(inspected) or precision_of_dtypes(record.dtype_counts),
        tf32=record.tf32,
        optimisation=(
            f"builder optimization level {'of the library' if level is None else level}, "
            f"hardware compatibility {compatibility}"
        ),
        notes=tuple(sentences),
    )


class TensorrtRunner(Runner):
    """One engine in one execution context, from its opening to the end of the process or its last use."""

    _hint = "the log of the job holds all that the library said"

    def __init__(
        self,
        *,
        engine: LoadedEngine,
        runner: Any,  # noqa: ANN401 - a TrtRunner, and Polygraphy has no types
        record: EngineRecord,
        served: Signature,
        facts: RuntimeFacts,
    ) -> None:
        super().__init__(served, facts, record.signature)
        self._engine = engine
        self._runner = runner
        self._what = f"{engine.library.title} failed"
        self._log = BuilderLog(engine.library.title)
        self._profile = {
            its.name: record.profile[own.name] for own, its in zip(record.signature.inputs, served.inputs, strict=True)
        }
        # __del__ would run at the end of a process, when the library is half gone.
        weakref.finalize(self, _close, runner)

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        served = {spec.name: array for spec, array in zip(self._served.inputs, feed.values(), strict=True)}
        check_profile(self._served, self._profile, served)
        # Inputs that the library reads on the host have to live as long as the call.
        arrays = {name: _to_feed(array) for name, array in feed.items()}
        # The process has one logger: with several engines open, it has to know the current one.
        self._log = BuilderLog(self._engine.library.title)
        make_logger(self._engine.library, self._log)
        buffers = self._runner.infer(arrays, check_inputs=False, return_raw_buffers=True)
        return [_own_array(buffers, own) for own in self._own.outputs]

    def _reason(self, err: Exception) -> str:
        return self._log.reason() or reason_of(err)

    def on_one_thread(self) -> str:
        """Return why it does not run on one thread."""
        return ON_THE_GPU


def _close(runner: Any) -> None:  # noqa: ANN401 - a TrtRunner
    # Its outputs are complete, so errors in freeing memory do not matter.
    with contextlib.suppress(Exception):
        if runner.is_active:
            runner.deactivate()


def _to_feed(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.name == _BFLOAT16:
        # Polygraphy only has NumPy's dtypes, but copies bytes.
        return np.asarray(array, order="C").view(np.uint16)
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _own_array(found: Mapping[str, Any], spec: TensorSpec) -> NDArray[np.generic]:
    """Return a copy of one output: Polygraphy writes the next one to the same memory."""
    if spec.name not in found:
        msg = f"the engine returned {', '.join(found) or 'nothing'}, but not the output {spec.name!r}"
        raise BackendError(msg, hint=BUILD_AGAIN)
    raw = np.asarray(found[spec.name].array)
    shape = tuple(int(size) for size in found[spec.name].shape)
    dtype = _numpy_dtype(spec.dtype)
    if raw.nbytes != math.prod(shape) * dtype.itemsize or (spec.shape is not None and len(shape) != len(spec.shape)):
        msg = f"the engine returned {raw.nbytes} bytes of shape {list(shape)} for the output {spec}"
        raise BackendError(msg, hint=BUILD_AGAIN)
    own: NDArray[np.generic] = raw.reshape(-1).view(np.uint8).copy().view(dtype).reshape(shape)
    return own


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name != _BFLOAT16:
        return np.dtype(name)
    import ml_dtypes

    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def gpu_for_engines(device: str) -> Gpu:
    """Return the GPU that engines run on; raise BackendError without one, or for another device."""
    gpu = gpu_of_machine()
    if gpu is None:
        msg = "engines run on NVIDIA GPUs only, but the CUDA driver shows none to this process"
        raise BackendError(msg, hint=_ELSEWHERE)
    if device != "cuda":
        msg = f"engines run on NVIDIA GPUs only, but the requested device is {device!r}"
        raise BackendError(msg, hint="run it on the GPU: --device cuda")
    return gpu


def check_version(record: EngineRecord, version: str) -> tuple[str, ...]:
    """Return notes on the library's version, if it runs the engine.

    BackendError is raised for another version than the one that built the engine. An engine built to be compatible also
    runs in later ones.
    """
    if version == record.version:
        return ()
    title = TITLES[record.library]
    built = f"the engine was built by {title} {record.version} and runs"
    if not record.settings.version_compatible:
        msg = f"{built} only in that version (installed: {version})"
        raise BackendError(msg, hint=f"{BUILD_HERE}; or install {title} {record.version}")
    if _numbers(version) < _numbers(record.version):
        msg = f"{built} only in that version and later ones (installed: {version})"
        raise BackendError(msg, hint=f"{BUILD_HERE}; or install {title} {record.version} or later")
    return (f"{built} in later versions too (installed: {version})",)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def precision_of_dtypes(counts: Mapping[str, Mapping[str, int]]) -> Precision | None:
    """Return the lowest precision of the layers that compute; None if none computes in floats.

    `counts` are of layers' outputs, by dtype and type of layer, in the library's words. It is `mixed` where some layers
    compute in FP16 and others in BF16.
    """
    precisions = {
        _PRECISIONS[dtype]
        for dtype, layers in counts.items()
        if dtype in _PRECISIONS and any(count for layer, count in layers.items() if layer.upper() not in _NOT_COMPUTING)
    }
    if Precision.INT8 in precisions:
        return Precision.INT8
    if {Precision.FP16, Precision.BF16} <= precisions:
        return Precision.MIXED
    lower = precisions - {Precision.FP32}
    return lower.pop() if lower else next(iter(precisions), None)


def describe_dtypes(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return how many outputs of layers are of each dtype, such as `HALF 138, FLOAT 2`, the most first."""
    totals = Counter({dtype: sum(layers.values()) for dtype, layers in counts.items()})
    return ", ".join(f"{dtype} {count}" for dtype, count in totals.most_common())
