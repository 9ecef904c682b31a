"""Ask for changes of a converted file, in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paritygate.codec import from_data, to_data
from paritygate.models.source import ModelRef
from paritygate.pipelines.calibration.calibration import CalibrationRequest
from paritygate.pipelines.process.child import ChildJob, DoJob, Progress
from paritygate.pipelines.process.child_result import reading_result
from paritygate.pipelines.repair.proposals import Proposal


@dataclass(frozen=True, kw_only=True, slots=True)
class ProposalRequest:
    """Two models, the rows of the search, and the folder for the changed file and their digests.

    `rename` maps the reference's names of inputs to those of the samples.
    """

    reference: ModelRef
    candidate: ModelRef
    rows: CalibrationRequest
    folder: Path
    rename: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchedRows:
    """How many rows were searched by, and the digest of their digests."""

    rows: int
    digest: str


def propose(
    request: ProposalRequest, place: Path, *, time_limit_s: float, progress: Progress, do: DoJob
) -> tuple[Proposal, SearchedRows]:
    """Return the changes that were found, and the rows of the search; `place` is the folder of the job.

    Raises:
        UsageError: The samples have too few rows.
        BackendError: A model cannot run.
        InputFileError: The inner tensors of the source cannot be read.
    """
    job = ChildJob(
        name="repair_conversion",
        args=to_data(request),
        folder=place,
        what=f"the search of a repair of {request.candidate.name or request.candidate.path.name}",
        time_limit_s=time_limit_s,
    )
    data = do(job, progress, makes=[request.folder])
    with reading_result(job):
        rows = SearchedRows(rows=int(data["rows"]["rows"]), digest=str(data["rows"]["digest"]))
        return from_data(Proposal, {key: data[key] for key in Proposal.__dataclass_fields__}), rows
