"""The job of diagnosing a candidate, run in a child process: a model may end the process that runs it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from paritygate.batch import Arrays, Batch
from paritygate.codec import from_data, to_data
from paritygate.errors import UsageError
from paritygate.importing import is_object_path
from paritygate.models.source import ModelRef, SourceKind, load_source_object
from paritygate.pipelines.diagnose.diagnose import DiagnosisRequest
from paritygate.pipelines.diagnose.minimal import minimal_pair
from paritygate.pipelines.diagnose.minimal_folder import write_minimal
from paritygate.pipelines.process.child import Progress
from paritygate.validate.divergence.locate import locate_in
from paritygate.validate.divergence.result import Divergence, Minimal
from paritygate.validate.divergence.stages import locate_stage
from paritygate.validate.runners.endpoint.stages import Stage, stages_of
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource
from paritygate.validate.tensors.emulated_values import EmulatedValues
from paritygate.validate.tensors.meter import Meter
from paritygate.validate.tensors.onnx_values import read_tensor_graph
from paritygate.validate.tensors.opening import open_graphs


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Locate where the candidate parts from the reference, and return it as JSON data."""
    request = from_data(DiagnosisRequest, args)
    feeds = feeds_of(request, report)
    stages = staged(request.reference, request.candidate)
    if stages is not None:
        return to_data(locate_stage(*stages, feeds))
    theirs, ours = open_graphs(request.reference, request.candidate, feeds, request.most_tensors)
    if request.is_emulated:
        ours = replace(ours, values=EmulatedValues(ours.model, ours.path))
    found = locate_in(theirs, ours, feeds)
    return to_data(found if request.minimal is None else replace(found, minimal=_minimal(request, feeds, found)))


def _minimal(request: DiagnosisRequest, feeds: list[Arrays], found: Divergence) -> Minimal | None:
    """Write the minimal models of the first place; None if no place is named, or a model is not an ONNX file."""
    are_files = request.reference.kind is request.candidate.kind is SourceKind.ONNX
    if not found.located or request.minimal is None or not are_files:
        return None
    graphs = read_tensor_graph(request.candidate.path, Meter()), read_tensor_graph(request.reference.path, Meter())
    minimal, pair = minimal_pair(graphs, feeds, found.located[0], with_inputs=request.has_real_inputs)
    if pair is not None:
        write_minimal(request.minimal, pair, minimal, found.located[0], graphs[0].model)
    return minimal


def staged(reference: ModelRef, candidate: ModelRef) -> tuple[list[Stage], list[Stage]] | None:
    """Return the stages of two functions; None if the reference is not a list of stages.

    Raises:
        UsageError: The candidate has no stages, and the reference has.
    """
    theirs = _stages(reference)
    if theirs is None:
        return None
    ours = _stages(candidate)
    if ours is None:
        msg = f"{reference.text} is a list of stages, but {candidate.text} is not"
        raise UsageError(msg, hint="give a function that returns a list of (name, callable)")
    return theirs, ours


def _stages(model: ModelRef) -> list[Stage] | None:
    is_code = model.kind is SourceKind.CALLABLE and is_object_path(model.text)
    return stages_of(load_source_object(model)[1]) if is_code else None


def feeds_of(request: DiagnosisRequest, report: Progress) -> list[Arrays]:
    """Return the inputs of a request by the reference's names, for each batch.

    Raises:
        UsageError: The samples have no rows.
    """
    report("reading the samples", 0, 0)
    feeds = [batch.inputs for source in request.samples for batch in _batches(source, request)]
    if not feeds:
        raise UsageError("the samples have no rows", hint="give a file with at least one row")
    own = {served: name for name, served in request.rename.items()}
    report("matching inner tensors", 0, 0)
    return [{own.get(name, name): array for name, array in feed.items()} for feed in feeds]


def _batches(source: SampleSource, request: DiagnosisRequest) -> Iterator[Batch]:
    """Yield the batches with a wanted row; the first ones if none of these is there, as in batches of probes."""
    rows = set(request.rows)
    batches = open_samples(source)
    wanted = (batch for batch in batches() if rows.intersection(batch.ids))
    found = list(itertools.islice(wanted, request.most_batches)) if rows else []
    yield from found or itertools.islice(batches(), request.most_batches)
