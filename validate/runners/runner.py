"""The contract of a runner, and the table of those there are.

A runner module offers `open_model(model)`, which loads the model and returns a `Runner`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from paritygate.errors import UsageError
from paritygate.machine import check_environment
from paritygate.models.example import Example
from paritygate.models.source import Source, SourceKind
from paritygate.precision import Precision
from paritygate.signature import Signature

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["RUNNERS", "ModelToRun", "Runner", "RuntimeFacts", "open_runner"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelToRun:
    """A model and how to run it.

    Attributes:
        source: The model, its kind known.
        model: The model object of a `module:callable` source, already made; None for a path.
        signature: Names (as served), order and dtypes of inputs and outputs where the model itself
            does not say (PyTorch); None where it does.
        rename: `{name in the model: name served}`; a name that is not in it is served as it is. The runner
            takes and returns the names served.
        device: `cpu`, or `cuda`.
        provider: What of ONNX Runtime runs it: `cpu`, `cuda` or `tensorrt`; None for that of the device. Nothing
            to the other runners.
        is_optimised: Whether ONNX Runtime rewrites the graph, as it does where nothing is said. Nothing to the other
            runners.
        example: Real inputs, by which a model object is asked for its signature where it does not say it and none is
            given; None where none is to be asked.
    """

    source: Source
    model: Any = None
    signature: Signature | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"
    provider: str | None = None
    is_optimised: bool = True
    example: Example | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeFacts:
    """What ran, read back from the runtime, not from what was asked.

    Attributes:
        runtime: Name of the runtime, such as `onnxruntime`.
        version: Its version.
        device: The device that really ran: `cpu`, `cuda:sm90`.
        provider: The execution provider that runs it; None where the runtime has no such thing.
        precision_found: The precision of the weights found in the model; None where it cannot be read.
        tf32: Whether TF32 may be used; None where the question does not arise.
        optimisation: Optimisation level of the runtime; None where there is none.
        notes: What the user should know, one sentence each.
        warnings: What was not seen so far and weakens what a pass says, one sentence each.
        provider_warnings: What the provider leaves open or does otherwise than asked, one sentence each.
        may_be_called_at_once: Whether `run` may be called from several threads at once.
    """

    runtime: str
    version: str
    device: str
    provider: str | None = None
    precision_found: Precision | None = None
    tf32: bool | None = None
    optimisation: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    provider_warnings: tuple[str, ...] = ()
    may_be_called_at_once: bool = False


class Runner(Protocol):
    """One loaded model."""

    @property
    def signature(self) -> Signature:
        """Inputs and outputs under the names served."""
        ...

    @property
    def facts(self) -> RuntimeFacts:
        """What runs, read back from the runtime."""
        ...

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name for one batch; the arrays belong to the caller.

        Raises:
            BackendError: The inputs are not those of the signature, or the runtime failed.
            UsageError: The model does not return the outputs of a signature that was declared for it.
        """
        ...


RUNNERS: Mapping[SourceKind, str] = {
    SourceKind.ONNX: "paritygate.validate.runners.onnxruntime.runner",
    SourceKind.TORCH: "paritygate.validate.runners.torch.torch",
    SourceKind.TORCHSCRIPT: "paritygate.validate.runners.torch.torchscript",
    SourceKind.PT2: "paritygate.validate.runners.torch.pt2",
    SourceKind.OPENVINO: "paritygate.validate.runners.openvino",
    SourceKind.TFLITE: "paritygate.validate.runners.tensorflow.litert",
    SourceKind.TENSORRT: "paritygate.validate.runners.engine.tensorrt",
    SourceKind.TENSORRT_RTX: "paritygate.validate.runners.engine.tensorrt",
    SourceKind.KERAS: "paritygate.validate.runners.tensorflow.keras",
    SourceKind.SAVEDMODEL: "paritygate.validate.runners.tensorflow.savedmodel",
    SourceKind.FUNCTION: "paritygate.validate.runners.function",
}


def open_runner(model: ModelToRun) -> Runner:
    """Return the loaded model, by the runner of its kind.

    Raises:
        UsageError: There is no runner for the kind.
        MissingBackendError: The runtime is not installed.
        InputFileError: The file is not a model of its kind.
        BackendError: The runtime refused the model, or the environment lowers the precision of float32.
    """
    check_environment()
    if model.source.kind not in RUNNERS:
        allowed = ", ".join(str(kind) for kind in RUNNERS)
        msg = f"no runner for a model of kind {str(model.source.kind)!r} (allowed: {allowed})"
        raise UsageError(msg, hint="convert-and-validate backends lists what can run here")
    module = importlib.import_module(RUNNERS[model.source.kind])
    return cast("Runner", module.open_model(model))
