"""Asking an INT8 candidate what it would answer if its activations had no ranges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.errors import NotAskedBeforeError, ParitygateError
from paritygate.models.onnx.file import read_onnx
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.kept_answers import KeptAnswers
from paritygate.precision import Precision
from paritygate.validate.emulation.unclipped import answer_beyond_ranges, without_ranges
from paritygate.validate.runners.opening import open_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.models.source import ModelRef
    from paritygate.validate.runners.runner import Runner

__all__ = ["Unclipped"]

_ROLE = "unclipped"
_WEIGHTS = "model.onnx.data"
# A protocol buffer holds 2 GB at the most.
_ONE_FILE_BYTES = 1_800_000_000


class Unclipped:
    """Opens the candidate's graph without ranges when it is first needed, which of most candidates is never."""

    def __init__(self, job: ComparisonJob, folder: Path, models: KeptAnswers) -> None:
        """Begin.

        Args:
            job: The comparison.
            folder: Where the graph may be written.
            models: Keeps the answers of models, or has them.
        """
        self._job = job
        self._folder = folder / _ROLE
        self._models = models
        self._runner: Runner | None = None
        ref = job.candidate
        is_onnx = ref.kind is SourceKind.ONNX and job.device == "cpu" and not job.is_emulated
        self._is_possible = is_onnx and job.rules.precision is Precision.INT8

    def __call__(self, batch: Batch) -> dict[str, NDArray[np.generic]] | None:
        """Return the answer without ranges to a batch in which an activation goes beyond its own; None otherwise."""
        if not self._is_possible:
            return None
        try:
            runner = self._runner or self._models.opened(_ROLE, self._job.candidate, self._open)
            self._runner = runner
            return answer_beyond_ranges(runner, batch)
        except NotAskedBeforeError:
            raise
        except ParitygateError:
            # What cannot be looked at excuses nothing.
            self._is_possible = False
            return None

    def _open(self) -> Runner:
        import onnx

        ref: ModelRef = self._job.candidate
        model = read_onnx(ref.path)
        onnx.load_external_data_for_model(model, str(ref.path.parent))
        if not without_ranges(model):
            msg = f"{ref.name} holds no activation that is quantized within a range"
            raise ParitygateError(msg)
        self._folder.mkdir(exist_ok=True)
        path = self._folder / "model.onnx"
        is_large = model.ByteSize() >= _ONE_FILE_BYTES
        onnx.save(model, str(path), save_as_external_data=is_large, location=_WEIGHTS if is_large else None)
        return open_model(replace(ref, text=path.name, folder=path.parent), self._job.device)
