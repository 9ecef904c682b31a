"""Opening one side of a comparison, in a child process: the model loaded, in the runner of its kind."""

from __future__ import annotations

from paritygate.engine.record import EngineRecord
from paritygate.errors import UsageError
from paritygate.machine import check_environment
from paritygate.models.example import Example
from paritygate.models.fixed_shape import read_fixed_shape
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.job import Side
from paritygate.pipelines.compare.loading import LoadedModel, load_model
from paritygate.precision import Precision
from paritygate.validate.runners.emulated import open_emulated
from paritygate.validate.runners.engine.within_profile import WithinProfile
from paritygate.validate.runners.fixed_shape import FixedShapeRunner
from paritygate.validate.runners.runner import ModelToRun, Runner, open_runner

__all__ = ["open_side"]


def open_side(
    side: Side,
    device: str,
    *,
    emulate: Precision | None = None,
    is_optimised: bool = True,
    example: Example | None = None,
) -> tuple[Runner, LoadedModel]:
    """Return the runner of a side that is a model, and what was loaded for it.

    Args:
        side: A side with a model.
        device: Where it runs: `cpu`, or `cuda`.
        emulate: The precision that all of its values are rounded to; None to run it as it is.
        is_optimised: Whether ONNX Runtime rewrites the graph, as it does where it is deployed.
        example: Real inputs, by which a model object is asked for its signature if it does not say it.

    Raises:
        UsageError: It is to be emulated and is no ONNX model, or the source's callable is not found.
        ParitygateError: As `open_runner`.
    """
    assert side.model is not None  # noqa: S101 - a side is a model or recorded outputs
    loaded = load_model(side.model)
    model = ModelToRun(
        source=loaded.source,
        model=loaded.model,
        signature=side.signature,
        rename=side.rename,
        device=device,
        provider=side.provider,
        is_optimised=is_optimised,
        example=example,
    )
    runner = open_runner(model) if emulate is None else _open_emulated(side, model, emulate)
    if side.fixed_shape is not None:
        runner = FixedShapeRunner(runner, read_fixed_shape(side.fixed_shape))
    if side.engine is not None:
        runner = WithinProfile(runner, EngineRecord.load(side.engine))
    return runner, loaded


def _open_emulated(side: Side, model: ModelToRun, emulate: Precision) -> Runner:
    if model.source.kind is not SourceKind.ONNX:
        msg = f"{side.name} is a {model.source.kind} model, and only ONNX models are emulated"
        raise UsageError(msg, hint="export it to ONNX first")
    check_environment()
    return open_emulated(model, emulate)
