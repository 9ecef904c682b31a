"""Run a TFLite file in LiteRT, on the CPU."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import BackendError
from paritygate.models.tensorflow.tflite_file import TfliteModel, available_processors, open_tflite, tflite_reason
from paritygate.models.tensorflow.tflite_graph import precision_of_tflite
from paritygate.precision import Precision
from paritygate.signature import Signature, rename_signature
from paritygate.validate.runners.interface import check_inputs, describe_arrays
from paritygate.validate.runners.one_thread import ALL_THERE_IS
from paritygate.validate.runners.runner import ModelToRun, RuntimeFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LiteRtRunner", "open_model"]

_CPU = "cpu"


def open_model(model: ModelToRun) -> LiteRtRunner:
    """Return the TFLite file loaded in LiteRT, which may use all processors that this process may.

    Reads all weights, to find their precision.

    Raises:
        MissingBackendError: LiteRT is not installed.
        InputFileError: The file is no TFLite model, or has no signature to be called by name.
        BackendError: LiteRT cannot run it, or is asked for another device than the CPU.
        UsageError: A name to be renamed is not in the model.
    """
    if model.device != _CPU:
        msg = f"LiteRT runs TFLite models on the cpu, not on {model.device}"
        raise BackendError(msg, hint="use device cpu, or another format on this device")
    loaded = open_tflite(model.source.path, threads=available_processors())
    return LiteRtRunner(
        model=loaded, signature=rename_signature(loaded.signature, model.rename), path=model.source.path
    )


def _facts(model: TfliteModel) -> RuntimeFacts:
    precision = precision_of_tflite(model.graph)
    notes = []
    if precision in {Precision.FP16, Precision.BF16}:
        notes.append(
            f"LiteRT's CPU kernels widen weights of {precision} and compute in float32: "
            "this run says nothing of another device"
        )
    return RuntimeFacts(
        runtime="litert",
        version=model.version,
        device=_CPU,
        precision_found=precision,
        optimisation=_optimisation(model),
        notes=tuple(notes),
    )


def _optimisation(model: TfliteModel) -> str:
    kernels = {True: "xnnpack", False: "no xnnpack", None: "xnnpack not known"}[model.uses_xnnpack]
    return f"{kernels}, {model.threads} thread{'' if model.threads == 1 else 's'}"


class LiteRtRunner:
    """One TFLite model in one interpreter; calls from several threads wait for each other."""

    def __init__(self, *, model: TfliteModel, signature: Signature, path: Path) -> None:
        self._model = model
        self._path = path
        self._signature = signature
        self._facts = _facts(model)
        self._lock = threading.Lock()
        # All that LiteRT has complained of so far: it says it again in front of every new complaint.
        self._said = ""
        own = model.signature
        self._own_inputs = {
            spec.name: of_model.name for spec, of_model in zip(signature.inputs, own.inputs, strict=True)
        }
        self._own_outputs = {
            spec.name: of_model.name for spec, of_model in zip(signature.outputs, own.outputs, strict=True)
        }

    @property
    def signature(self) -> Signature:
        """Inputs and outputs under the names served, sorted by their names in the model."""
        return self._signature

    @property
    def facts(self) -> RuntimeFacts:
        """What runs, read back from LiteRT and from the file."""
        return self._facts

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name for one batch; the arrays belong to the caller.

        The model is given the shapes of the batch first, where they are others than those of the last one.

        Raises:
            BackendError: The inputs are not those of the model, or LiteRT failed on them or on their shapes.
        """
        check_inputs(self._signature, inputs)
        feed = {self._own_inputs[name]: np.asarray(array, order="C") for name, array in inputs.items()}
        with self._lock:
            try:
                found = self._model(feed)
            except Exception as err:
                msg = f"LiteRT failed on {describe_arrays(inputs)}: {self._newly_said(err)}"
                raise BackendError(
                    msg, hint="check that the samples are within what the model was converted for"
                ) from err
        # LiteRT copies its tensors, but returns a scalar as a NumPy scalar.
        return {name: np.asarray(found[own]) for name, own in self._own_outputs.items()}

    def on_one_thread(self) -> contextlib.AbstractContextManager[LiteRtRunner] | str:
        """Return what opens the file once more for one thread, or why it is not."""
        return self._opened_again() if self._model.threads > 1 else ALL_THERE_IS

    @contextlib.contextmanager
    def _opened_again(self) -> Iterator[LiteRtRunner]:
        model = open_tflite(self._path, threads=1)
        yield LiteRtRunner(model=model, signature=self._signature, path=self._path)

    def _newly_said(self, err: Exception) -> str:
        text = str(err)
        new = text.removeprefix(self._said)
        self._said = text
        return tflite_reason(RuntimeError(new or text))
