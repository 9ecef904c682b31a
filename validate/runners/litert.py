"""Run a TFLite file in LiteRT, on the CPU."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.errors import BackendError
from paritygate.machine import available_processors
from paritygate.models.loading import LoadedModel
from paritygate.models.tensorflow.tflite_file import TfliteModel, open_tflite, tflite_reason
from paritygate.models.tensorflow.tflite_graph import precision_of_tflite
from paritygate.precision import Precision
from paritygate.signature import Signature, rename_signature
from paritygate.validate.runners.runner import ALL_THERE_IS, Runner, RuntimeFacts

_CPU = "cpu"


def open_model(loaded: LoadedModel) -> LiteRtRunner:
    """Return the TFLite file loaded in LiteRT, on all processors of this process; it reads all weights.

    BackendError is raised where LiteRT cannot run it, and for another device than the CPU.
    """
    if loaded.device != _CPU:
        msg = f"LiteRT runs TFLite models on the cpu, not on {loaded.device}"
        raise BackendError(msg, hint="use device cpu, or another format on this device")
    path = loaded.ref.path
    model = open_tflite(path, threads=available_processors())
    return LiteRtRunner(model=model, signature=rename_signature(model.signature, loaded.ref.rename), path=path)


def _facts(model: TfliteModel) -> RuntimeFacts:
    precision = precision_of_tflite(model.graph)
    notes = []
    if precision in {Precision.FP16, Precision.BF16}:
        notes.append(
            f"LiteRT's CPU kernels widen weights of {precision} and compute in float32: "
            "this run shows nothing about another device"
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


class LiteRtRunner(Runner):
    """One TFLite model in one interpreter; calls from several threads wait for each other."""

    _what = "LiteRT failed"
    _hint = "check that the model was converted for such samples"

    def __init__(self, *, model: TfliteModel, signature: Signature, path: Path) -> None:
        super().__init__(signature, _facts(model), model.signature)
        self._model = model
        self._path = path
        self._lock = threading.Lock()
        # All complaints of LiteRT so far, because it repeats them before every new one.
        self._said = ""

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        # The model gets new shapes first, if they differ from those of the last batch.
        arrays = {name: np.asarray(array, order="C") for name, array in feed.items()}
        with self._lock:
            try:
                answers = self._model(arrays)
            except Exception as err:
                raise RuntimeError(self._newly_said(err)) from err
        # LiteRT copies its tensors, but returns a scalar as a NumPy scalar.
        return [np.asarray(answers[spec.name]) for spec in self._own.outputs]

    def on_one_thread(self) -> contextlib.AbstractContextManager[LiteRtRunner] | str:
        """Return an opener of the file on one thread, or why there is none."""
        return self._opened_again() if self._model.threads > 1 else ALL_THERE_IS

    @contextlib.contextmanager
    def _opened_again(self) -> Iterator[LiteRtRunner]:
        yield LiteRtRunner(model=open_tflite(self._path, threads=1), signature=self._served, path=self._path)

    def _newly_said(self, err: Exception) -> str:
        text = str(err)
        new = text.removeprefix(self._said)
        self._said = text
        return new or text

    def _reason(self, err: Exception) -> str:
        return tflite_reason(err)
