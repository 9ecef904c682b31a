"""Diagnose a candidate in a child process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from paritygate.codec import to_data
from paritygate.errors import InputFileError
from paritygate.models.source import MODELS_WITH_INNER_TENSORS, WITH_INNER_TENSORS, ModelRef, SourceKind
from paritygate.pipelines.compare.models import parse_model
from paritygate.pipelines.process.child import ChildJob, Progress
from paritygate.pipelines.process.lone_child import result_of_lone_child
from paritygate.validate.divergence.graph_diff import GraphDiff
from paritygate.validate.divergence.result import Divergence
from paritygate.validate.samples.source import SampleSource

# More batches make no match clearer.
_MATCHED_BATCHES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class DiagnosisRequest:
    """Two models, and the rows that they run on.

    `rename` maps the reference's names of inputs to those of the samples. Of the samples, the batches with one of these
    `rows` are used, or the first ones if none is given. `most_tensors` limits the search; None does not.
    With `is_emulated`, the candidate's values are rounded as on a device of its precision.
    `minimal` is the folder for the minimal models of the first place, with drawn inputs unless `has_real_inputs`.
    """

    reference: ModelRef
    candidate: ModelRef
    samples: tuple[SampleSource, ...]
    rename: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    most_batches: int = 64
    most_tensors: int | None = None
    is_emulated: bool = False
    minimal: Path | None = None
    has_real_inputs: bool = False

    def job(self, place: Path, what: str, time_limit_s: float) -> ChildJob:
        """Return the job of the diagnosis, whose folder is `place`; `what` is for messages."""
        return ChildJob(
            name="diagnose",
            args=to_data(self),
            folder=place,
            what=what,
            time_limit_s=time_limit_s,
        )


def request_of(
    reference: str, candidate: str, samples: SampleSource, *, kinds: Collection[SourceKind] = WITH_INNER_TENSORS
) -> DiagnosisRequest:
    """Return the request for two models, whose paths are relative to the folder of the samples.

    Raises:
        InputFileError: A model does not exist, or is of none of these kinds.
    """
    models = [_model(parse_model(text, samples.folder), kinds) for text in (reference, candidate)]
    return DiagnosisRequest(reference=models[0], candidate=models[1], samples=(samples,))


def name_of(model: ModelRef) -> str:
    """Return the path of a model, or the name of the function that makes it."""
    return model.text if model.kind is SourceKind.CALLABLE else str(model.path)


def diagnose(request: DiagnosisRequest, progress: Progress, *, time_limit_s: float) -> Divergence:
    """Return where the candidate parts from the reference.

    Raises:
        InputFileError: The samples cannot be read.
        UsageError: The samples lack an input of the models.
        BackendError: A model cannot run on the samples.
    """
    what = f"the diagnosis of {request.candidate.path.name}"
    return result_of_lone_child(Divergence, lambda place: request.job(place, what, time_limit_s), progress)


def graph_diff(request: DiagnosisRequest, tolerance: float, progress: Progress, *, time_limit_s: float) -> GraphDiff:
    """Return the nodes of two files that compute equal values, within a relative error, and the others.

    Raises:
        InputFileError: The samples cannot be read.
        UsageError: The samples lack an input of the models, or these have different numbers of inputs.
        BackendError: ONNX Runtime cannot run a model on the samples.
    """

    def job_in(place: Path) -> ChildJob:
        return ChildJob(
            name="graph_diff",
            args={"request": to_data(replace(request, most_batches=_MATCHED_BATCHES)), "tolerance": tolerance},
            folder=place,
            what=f"the match of {request.candidate.path.name} with {request.reference.path.name}",
            time_limit_s=time_limit_s,
        )

    return result_of_lone_child(GraphDiff, job_in, progress)


def _model(model: ModelRef, kinds: Collection[SourceKind]) -> ModelRef:
    if model.kind in kinds:
        return model
    allowed = "an ONNX file" if len(kinds) == 1 else MODELS_WITH_INNER_TENSORS
    msg = f"the inner tensors of {model.text} cannot be compared (got {model.kind.value}, expected {allowed})"
    raise InputFileError(msg, hint="give the ONNX file that it was exported to, or built from")
