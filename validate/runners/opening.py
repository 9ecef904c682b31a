"""Opens a model: the table of runners, and the wrappers around a runner."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import cast

from msgspec.structs import replace

from paritygate.engine.record import EngineRecord
from paritygate.errors import UsageError
from paritygate.importing import collecting_rarely
from paritygate.machine import check_environment
from paritygate.models.example import Example
from paritygate.models.fixed_shape import read_fixed_shape
from paritygate.models.loading import LoadedModel, load_model
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.text import a_or_an
from paritygate.validate.runners.engine_profile import WithinProfile
from paritygate.validate.runners.fixed_shape import FixedShapeRunner
from paritygate.validate.runners.runner import Runner

# Each of these modules offers `open_model(loaded)`, which returns a `Runner` of it.
RUNNERS: Mapping[SourceKind, str] = {
    SourceKind.ONNX: "paritygate.validate.runners.onnxruntime",
    SourceKind.TORCH: "paritygate.validate.runners.torch",
    SourceKind.TORCHSCRIPT: "paritygate.validate.runners.torch",
    SourceKind.PT2: "paritygate.validate.runners.torch",
    SourceKind.OPENVINO: "paritygate.validate.runners.openvino",
    SourceKind.TFLITE: "paritygate.validate.runners.litert",
    SourceKind.TENSORRT: "paritygate.validate.runners.tensorrt",
    SourceKind.TENSORRT_RTX: "paritygate.validate.runners.tensorrt",
    SourceKind.KERAS: "paritygate.validate.runners.tensorflow",
    SourceKind.SAVEDMODEL: "paritygate.validate.runners.tensorflow",
    SourceKind.FUNCTION: "paritygate.validate.runners.function",
    SourceKind.STAGES: "paritygate.validate.runners.endpoint.stages",
    SourceKind.ENDPOINT: "paritygate.validate.runners.endpoint.runner",
}


@collecting_rarely()
def open_model(  # noqa: PLR0913 - how one model runs, by name
    ref: ModelRef,
    device: str,
    *,
    emulate: Precision | None = None,
    is_optimised: bool = True,
    example: Example | None = None,
    side: str = "",
) -> Runner:
    """Return the runner of a model, ready to run; its `loaded` describes the model. Recorded outputs have none.

    All values are rounded to the precision `emulate`; None runs the model as it is. `is_optimised` lets ONNX Runtime
    rewrite the graph, as in production. `example` are real inputs that show the signature of a model object without
    one. Messages name the `side`, if any. UsageError is raised where anything but ONNX is to be emulated, or a callable
    is not found; see also `open_runner`.
    """
    loaded = replace(load_model(ref), device=device, is_optimised=is_optimised, example=example, side=side)
    runner = open_runner(loaded) if emulate is None else _open_emulated(loaded, emulate)
    if ref.fixed_shape is not None:
        runner = FixedShapeRunner(runner, read_fixed_shape(ref.fixed_shape))
    if ref.engine is not None:
        runner = WithinProfile(runner, EngineRecord.load(ref.engine))
    runner.loaded = loaded
    return runner


def open_runner(loaded: LoadedModel) -> Runner:
    """Return the runner of a loaded model, by its kind, without wrappers.

    Raises:
        UsageError: There is no runner for the kind.
        MissingBackendError: The runtime is not installed.
        InputFileError: The file is not a model of its kind.
        BackendError: The runtime refused the model, or the environment lowers the precision of float32.
    """
    check_environment()
    if loaded.ref.kind not in RUNNERS:
        allowed = ", ".join(str(kind) for kind in RUNNERS)
        msg = f"no runner for a model of kind {str(loaded.ref.kind)!r} (allowed: {allowed})"
        raise UsageError(msg, hint="see what can run here", command="convert-and-validate backends")
    module = importlib.import_module(RUNNERS[loaded.ref.kind])
    return cast("Runner", module.open_model(loaded))


def _open_emulated(loaded: LoadedModel, precision: Precision) -> Runner:
    if loaded.ref.kind is not SourceKind.ONNX:
        msg = f"{loaded.ref.name} is {a_or_an(str(loaded.ref.kind))} model, and only ONNX models are emulated"
        raise UsageError(msg, hint="export it to ONNX first")
    from paritygate.validate.runners.emulated import open_emulated

    check_environment()
    return open_emulated(loaded, precision)
