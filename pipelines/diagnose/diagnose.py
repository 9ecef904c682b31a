"""Diagnose a candidate in a child process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paritygate.codec import to_data
from paritygate.errors import BackendError, InputFileError
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.models import parse_model
from paritygate.pipelines.process.child import ChildJob, Progress
from paritygate.pipelines.process.lone_child import result_of_lone_child
from paritygate.validate.divergence.result import Divergence
from paritygate.validate.samples.source import SampleSource


@dataclass(frozen=True, kw_only=True, slots=True)
class DiagnosisRequest:
    """Two ONNX files and the rows they run on; paths are relative to the folder of the samples."""

    reference: str
    candidate: str
    samples: SampleSource
    time_limit_s: float


def diagnose(request: DiagnosisRequest, progress: Progress) -> Divergence:
    """Return where the candidate parts from the reference.

    Raises:
        InputFileError: A model is no ONNX file, or the samples cannot be read.
        BackendError: ONNX Runtime cannot run a model on the samples.
    """
    here = request.samples.folder
    reference, candidate = (_onnx_file(text, here) for text in (request.reference, request.candidate))

    def job_in(place: Path) -> ChildJob:
        return ChildJob(
            name="diagnose",
            args={"reference": str(reference), "candidate": str(candidate), "samples": to_data(request.samples)},
            folder=place,
            what=f"the diagnosis of {request.candidate}",
            time_limit_s=request.time_limit_s,
            crash_error=BackendError,
        )

    return result_of_lone_child(Divergence, job_in, progress)


def _onnx_file(text: str, here: Path) -> Path:
    model = parse_model(text, here)
    if model.kind is not SourceKind.ONNX:
        msg = f"diagnose cannot read {text} (got {model.kind.value}, expected an ONNX file)"
        raise InputFileError(msg, hint="give the ONNX file that it was exported to, or built from")
    return model.path
