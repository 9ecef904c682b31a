"""Measure one shard of a comparison: some whole batches, into a file that `merge` reads."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.codec import from_data, to_data
from paritygate.errors import LostWorkerError, UsageError
from paritygate.files import temporary_folder
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.shards.part import MOST_SHARDS
from paritygate.pipelines.process.child import ChildJob, do_job
from paritygate.pipelines.process.child_result import reading_result
from paritygate.validate.reference.recorded_outputs import RECORD_FILE

if TYPE_CHECKING:
    from paritygate.pipelines.compare.job import ComparisonJob
    from paritygate.pipelines.process.child import Progress
    from paritygate.validate.gate.rules import GateRules

# The metrics of gold need all rows at once: 24 bytes a row.
MOST_GOLD_ROWS = 200_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """One of so many shards, from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardResult:
    """The part that was made, or found unchanged; `last` is the batch after its last one."""

    part: str
    shard: int
    shards: int
    first: int
    last: int
    batches: int
    rows: int
    is_unchanged: bool


def parse_shard(text: str) -> Shard:
    """Return the shard of a text such as `2/7`; raise UsageError for another text."""
    number, slash, of = text.partition("/")
    if not (slash and number.isascii() and number.isdigit() and of.isascii() and of.isdigit()):
        msg = f"--shard {text!r} is not of the form I/N"
        raise UsageError(msg, hint="write for example --shard 1/7")
    if not 1 <= int(number) <= int(of) <= MOST_SHARDS:
        msg = f"--shard {text} is not allowed (allowed: from 1/N to N/N)"
        raise UsageError(msg, hint=f"write for example --shard 1/{of if of.strip('0') else 7}")
    return Shard(number=int(number), of=int(of))


def check_can_be_cut(job: ComparisonJob, option: str = "--shard") -> None:
    """Check that a comparison can be measured in parts, as `option` asks; raise UsageError if not."""
    if not (job.reference.is_recorded and (job.reference.path / RECORD_FILE).is_file()):
        msg = f"{option} needs a recorded reference, but {job.reference.name} is not a recording"
        record = ["convert-and-validate", "record", job.reference.name, "--samples", job.samples.text]
        record += ["--batch-size", str(job.samples.batch_size)]
        raise UsageError(
            msg,
            hint="the reference folder of a run has probes; without them, record it once, and compare with that folder",
            command=shlex.join([*record, "--out", "reference"]),
        )
    check_rules_can_be_cut(job.rules, option)
    model = job.candidate
    reasons = {
        "recorded outputs as the candidate": model.is_recorded,
        "a model on a server or an object": model.kind in {SourceKind.ENDPOINT, SourceKind.LIVE},
        "a model of fixed shapes": model.fixed_shape is not None,
        "--takes": bool(job.reference.takes or model.takes),
        "rows that calibrated the candidate": job.calibrated_rows is not None,
    }
    _refuse(reasons, option)


def check_rules_can_be_cut(rules: GateRules, option: str = "--shard") -> None:
    """Check that rules can judge a comparison in parts; raise UsageError if not."""
    _refuse({"a metric that is your own function": any(rule.is_function for rule in rules.gold)}, option)


def _refuse(reasons: dict[str, bool], option: str) -> None:
    for what, is_so in reasons.items():
        if is_so:
            msg = f"{option} does not accept {what}"
            raise UsageError(msg, hint=f"compare without {option}, or leave that out")


def measure_shard(
    job: ComparisonJob, shard: Shard, out: Path, *, time_limit_s: float, progress: Progress = lambda *_: None
) -> ShardResult:
    """Measure a shard in a child process, and write its part; nothing if the part is there already.

    Raises:
        UsageError: The comparison cannot be measured in parts, or the file is not a part.
        ParitygateError: The shard could not be measured.
    """
    check_can_be_cut(job)
    with temporary_folder("shard") as folder:
        child = shards_job(job, folder, time_limit_s=time_limit_s, request=request_of(shard, out))
        value = do_job(child, progress)
        with reading_result(child):
            return from_data(ShardResult, {**value, "part": str(out)})


def request_of(shard: Shard, out: Path) -> dict[str, Any]:
    """Return the request to measure a shard into a file, as JSON data."""
    return {"shard": [shard.number, shard.of], "out": str(out.absolute())}


def shards_job(job: ComparisonJob, folder: Path, *, time_limit_s: float, **args: Any) -> ChildJob:  # noqa: ANN401 - JSON data
    """Return the job that keeps the models open and measures a shard for each request, or only for `request`."""
    return ChildJob(
        name="shard",
        args={"job": to_data(job), "folder": str(folder), "time_limit_s": time_limit_s, **args},
        folder=folder,
        what=f"the comparison of {job.candidate.name} with {job.reference.name} in shards",
        time_limit_s=time_limit_s,
        killed_error=LostWorkerError,
        is_log_kept=False,
    )
