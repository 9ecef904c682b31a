"""Open the candidate again in other ways: for session probes, in a fresh process, and without activation ranges."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.batch import Batch
from paritygate.codec import from_data, to_data
from paritygate.errors import CacheMissError, ParitygateError
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.output_cache import AnsweredAfresh, OutputCache
from paritygate.pipelines.process.child import ChildJob, Progress, run_child
from paritygate.pipelines.process.child_result import reading_result
from paritygate.precision import Precision
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.probes.probe_budget import SamplesCost, rows_asked_again
from paritygate.validate.reference.recording import ChunkWriter
from paritygate.validate.runners.opening import open_model
from paritygate.validate.samples.feeding import fit_inputs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.models.source import ModelRef
    from paritygate.validate.probes.sessions.session import RerunBatch, SessionPlan
    from paritygate.validate.runners.runner import Runner

    Outputs = Mapping[str, NDArray[np.generic]]

_ANSWERS = "fresh-answers"
_ASKED = "fresh-asked"
_UNCLIPPED = "unclipped"
_WITH_RANGES = frozenset({SourceKind.ONNX, SourceKind.OPENVINO})
_EMULATED = "an emulation stands for a device, and its process for none"


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonContext:
    """The place and the deadline of a comparison."""

    folder: Path
    deadline: float  # by the monotonic clock
    samples: SamplesCost  # cost of the candidate's pass over the samples
    report: Progress
    models: OutputCache


def session_plan(
    job: ComparisonJob,
    candidate: ModelCandidate,
    outputs: tuple[str, ...],
    place: ComparisonContext,
    *,
    failed_before: frozenset[int],
) -> SessionPlan:
    """Return how the candidate runs again; `failed_before` are batches that fail, of the probe that runs again."""
    from paritygate.validate.probes.sessions.session import SessionPlan

    return SessionPlan(
        seed=job.rules.seed,
        why_not_at_once="" if candidate.facts.may_be_called_at_once else "its runner is called once at a time",
        why_not_plain=why_not_plain(job),
        open_plain=plain_opener(job, place.models, "plain"),
        why_not_afresh=_why_not_afresh(job),
        answer_afresh=functools.partial(_answered_afresh, job, {*outputs, *job.rules.matched}, place),
        most_rows=rows_asked_again(place.samples),
        failed_before=failed_before,
        progress=lambda name: place.report(f"running the candidate: probe {name}", 0, 0),
    )


def why_not_plain(job: ComparisonJob) -> str:
    """Return why the candidate cannot run without graph optimisations; empty if it can."""
    if job.is_emulated:
        return "it is emulated with its operators unfused"
    if job.candidate.kind is not SourceKind.ONNX or job.device != "cpu":
        return "graph optimisations are turned off in ONNX Runtime on the CPU alone"
    return ""


def _why_not_afresh(job: ComparisonJob) -> str:
    if job.candidate.kind is SourceKind.LIVE:
        return "the candidate is an object, which no other process has"
    if job.candidate.kind is SourceKind.ENDPOINT:
        return "the candidate is on a server, which another process asks no otherwise"
    return _EMULATED if job.is_emulated else ""


def plain_opener(job: ComparisonJob, models: OutputCache, role: str) -> Callable[[], ModelCandidate]:
    """Return a function that opens the candidate without graph optimisations, under its own role."""

    def opened() -> ModelCandidate:
        ref = job.candidate
        return ModelCandidate(models.opened(role, ref, lambda: open_model(ref, job.device, is_optimised=False)))

    return opened


def _answered_afresh(
    job: ComparisonJob, outputs: Collection[str], place: ComparisonContext, asked: Sequence[RerunBatch]
) -> list[Outputs | str]:
    """Load and run the candidate in another process, and return its outputs for each batch."""
    batches = [
        Batch(inputs=item.stored.inputs, ids=[str(row) for row in range(item.stored.record.rows)]) for item in asked
    ]
    return place.models.afresh(batches, place.folder / _ANSWERS, functools.partial(_answer, job, outputs, place))


def _answer(
    job: ComparisonJob, outputs: Collection[str], place: ComparisonContext, asked: Mapping[str, Batch], answers: Path
) -> AnsweredAfresh:
    inputs = place.folder / _ASKED
    inputs.mkdir(exist_ok=True)
    writer = ChunkWriter(inputs)
    for case, batch in asked.items():
        writer.add(batch.inputs, rows=batch.rows, case=case)
    writer.flush()
    args: dict[str, Any] = {
        "model": to_data(job.candidate),
        "device": job.device,
        "inputs": str(inputs),
        "chunks": writer.chunks,
        "answers": str(answers),
        "outputs": sorted(outputs),
    }
    child = ChildJob(
        name="answer",
        args=args,
        folder=place.folder / "fresh",
        what=f"{job.candidate.name} in a fresh process",
        time_limit_s=max(place.deadline - time.monotonic(), 1.0),
    )
    answered = run_child(child)
    with reading_result(child):
        return from_data(AnsweredAfresh, answered)


class Unclipped:
    """Runs an INT8 candidate without activation ranges; opened when first needed."""

    def __init__(
        self, job: ComparisonJob, folder: Path, models: OutputCache | None = None, ref: ModelRef | None = None
    ) -> None:
        """Prepare; `folder` may get the graph, and `ref` replaces the candidate's file."""
        self._device = job.device
        self._ref = ref or job.candidate
        self._folder = folder / _UNCLIPPED
        self._models = models or OutputCache()
        self._runner: Runner | None = None
        is_known = self._ref.kind in _WITH_RANGES and not job.is_emulated
        self._is_possible = is_known and job.device == "cpu" and job.rules.precision is Precision.INT8

    def __call__(self, batch: Batch) -> dict[str, NDArray[np.generic]] | None:
        """Return the outputs without ranges for a batch in which an activation exceeds its range; None otherwise."""
        if not self._is_possible:
            return None
        from paritygate.validate.emulation.unclipped import answer_beyond_ranges

        try:
            self._runner = self._runner or self._models.opened(_UNCLIPPED, self._ref, self._open)
            return answer_beyond_ranges(self._runner.run(fit_inputs(batch, self._runner.signature)))
        except CacheMissError:
            raise
        except ParitygateError:
            # An error excuses nothing.
            self._is_possible = False
            return None

    def _open(self) -> Runner:
        from paritygate.validate.emulation.unclipped import write_without_ranges
        from paritygate.validate.emulation.unclipped_openvino import write_openvino_without_ranges

        write = write_without_ranges if self._ref.kind is SourceKind.ONNX else write_openvino_without_ranges
        path = write(self._ref.path, self._folder)
        if path is None:
            raise ParitygateError(f"{self._ref.name} holds no activation that is quantized within a range")
        return open_model(replace(self._ref, text=path.name, folder=path.parent), self._device)
