"""A comparison as a job: its models, samples and rules."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.errors import ExitCode, NotRunHereError, ParitygateError, UsageError
from paritygate.files import MARKER, make_temporary_folder
from paritygate.models.source import OBJECTS, ModelRef, SourceKind
from paritygate.pipelines.compare.progress_file import PartialResult, PartialResultFile, side_not_opened
from paritygate.pipelines.compare.result import (
    CHILD_PROCESS,
    NOT_RUN_HERE,
    THIS_PROCESS,
    ComparisonResult,
    code_notes,
    error_result,
)
from paritygate.pipelines.process.child import ChildJob, DoJob, ModelAnswers, Progress, do_job, run_here
from paritygate.pipelines.process.child_result import NOT_OURS, reading_result
from paritygate.text import echo_traceback
from paritygate.validate.gate.rules import EdgeRule, GateRules
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.probes.inputs.roles import DeclaredRole
from paritygate.validate.samples.source import SampleSource

_HERE = "a model is an object of this process, and ran in it: without a limit of time or memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonJob:
    """A comparison: its models, samples and rules."""

    reference: ModelRef
    candidate: ModelRef
    samples: SampleSource
    rules: GateRules
    # In a run the source itself may be a target: equal bytes are then a note, not an error.
    may_be_the_source: bool = False
    # Whether the candidate runs as on a device of its precision, with every value rounded.
    is_emulated: bool = False
    # The file of the rows that the candidate was calibrated on.
    calibrated_rows: Path | None = None
    # The folder for probe batches that the candidate fails.
    failures: Path | None = None
    # The command that compares such a batch again: None for `compare`, empty where no command can, because models or
    # samples are objects of Python code.
    again: str | None = None
    # The model of a recorded reference, which runs again on rows that fail.
    source: ModelRef | None = None
    # The user's roles of inputs, for a reference that is not recorded.
    roles: Mapping[str, DeclaredRole] = field(default_factory=dict)
    device: str = "cpu"

    @property
    def is_here(self) -> bool:
        """Whether the comparison runs in this process, because a model is an object of it."""
        return SourceKind.LIVE in {self.reference.kind, self.candidate.kind}


def compare(
    job: ComparisonJob,
    *,
    time_limit_s: float,
    folder: Path | None = None,
    progress: Progress = lambda *_: None,
    do: DoJob = do_job,
) -> ComparisonResult:
    """Run the comparison in a child process, or in this one if it needs an object of it, and return its result.

    It never raises a `ParitygateError`. The result of a failed comparison has the verdict `error`, and the exit code of
    its cause. `time_limit_s` stops a child process only. `folder` is for job, log and temporary files. By default it is
    a temporary one, which stays after an error. `do` does the job unless it runs in this process.
    """
    itself = _itself(job)
    if itself:
        return _compared_with_itself(job, itself)
    own = make_temporary_folder("compare") if folder is None else None
    place = own or folder
    assert place is not None  # noqa: S101 - one of the two is set
    (place / MARKER).touch() if own else None
    is_clean = False
    try:
        args = {"job": to_data(job), "folder": str(place), "time_limit_s": time_limit_s}
        child = ChildJob(
            name="compare",
            args=args,
            folder=place,
            # A model may have both.
            what=f"the {'emulated ' if job.is_emulated else ''}comparison "
            f"of {job.candidate.name} with {job.reference.name}",
            time_limit_s=time_limit_s,
        )
        value = (
            run_here(child, progress)
            if job.is_here
            else do(
                child,
                progress,
                makes=[job.failures] if job.failures else (),
                is_kept=_is_kept,
                answers=ModelAnswers(
                    folder=place / "answers",
                    asked=_asked_of_models(args),
                    needs_own_code=any(rule.is_function for rule in job.rules.gold),
                ),
            )
        )
        with reading_result(child):
            result = from_data(ComparisonResult, value)
        if job.is_here:
            is_clean = True
            return replace(result, ran_in=THIS_PROCESS, notes=[*result.notes, _HERE])
        # The log shows why a probe failed by itself.
        is_clean = not any(probe.error for probe in result.probes.asked.values())
        log_notes = [f"the log of the comparison is in {place}"] if own and not is_clean else []
        return replace(result, notes=[*result.notes, *log_notes])
    except NotRunHereError as err:
        is_clean = True
        return comparison_not_run(job, f"{err}: {err.hint}" if err.hint else str(err))
    except ParitygateError as err:
        is_clean = str(place) not in str(err)
        echo_traceback(err)
        return failed_comparison(job, err, PartialResultFile(place).take())
    except BaseException:
        is_clean = True
        raise
    finally:
        if own and is_clean:
            shutil.rmtree(own, ignore_errors=True)


def _asked_of_models(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that change the models' outputs, not the verdict on them.

    Which inputs they get is recorded. How often, in which order, and by which probes does not matter.
    """
    rules = args["job"]["rules"]
    inputs = {name: rules[name] for name in ("passes", "probes", "seed")}
    inputs |= {"precision": rules["tolerance"]["precision"], "edge": rules["edge"] != EdgeRule.OFF}
    return {**args, "job": {**args["job"], "rules": inputs}}


def _is_kept(value: Any) -> bool:  # noqa: ANN401 - the result as JSON data
    """Return whether a later run may reuse the result: failures, and probes that did not run, are repeated."""
    # Whoever reads a malformed result reports it.
    with contextlib.suppress(*NOT_OURS):
        is_whole = not any(item.get("error") for item in value["probes"]["asked"].values())
        return value["verdict"] in {"pass", "inconclusive"} and is_whole
    return False


def _itself(job: ComparisonJob) -> str:
    """Return a message if reference and candidate are the same model by name; else nothing, as with rounded values."""
    one, other = ((model.text, model.folder, model.kind) for model in (job.candidate, job.reference))
    if job.candidate.place is not None and job.candidate.place == job.reference.place and not job.is_emulated:
        return f"reference and candidate are both {job.candidate.place}, and a file always equals itself"
    if job.candidate.kind in OBJECTS and one == other:
        return f"reference and candidate are both {job.candidate.name}, and a model always equals itself"
    return ""


def _compared_with_itself(job: ComparisonJob, detail: str) -> ComparisonResult:
    err = UsageError(detail, hint="name the original as the reference, and the converted model as the candidate")
    failed = failed_comparison(job, err)
    return replace(
        failed,
        checks=[Check(name="distinct", status=Status.ERROR, kind=Kind.NOT_MEASURED, detail=detail), *failed.checks],
    )


def failed_comparison(
    job: ComparisonJob, error: ParitygateError, known: PartialResult | None = None
) -> ComparisonResult:
    """Return the result of a failed comparison, with what was known when it stopped."""
    code = error.exit_code if error.exit_code is not ExitCode.PASS else ExitCode.NOT_MEASURED
    result, known = _not_measured(job, "error", str(error)), known or PartialResult()
    reference, candidate = known.reference or result.reference, known.candidate or result.candidate
    return replace(
        result,
        exit_code=int(code),
        error=error_result(error),
        rows=known.rows,
        reference=reference,
        candidate=candidate,
        notes=[*result.notes, *code_notes(reference, candidate)],
    )


def comparison_not_run(job: ComparisonJob, reason: str) -> ComparisonResult:
    """Return the result of a comparison whose candidate does not run on this machine."""
    return replace(_not_measured(job, NOT_RUN_HERE, reason), not_run_here=reason)


def _not_measured(job: ComparisonJob, verdict: str, reason: str) -> ComparisonResult:
    return ComparisonResult(
        verdict=verdict,
        exit_code=int(ExitCode.NOT_MEASURED),
        rows=0,
        precision=str(job.rules.precision),
        reference=side_not_opened(job.reference),
        candidate=side_not_opened(job.candidate),
        samples=job.samples.path or job.samples.text,
        tolerance=to_data(job.rules.tolerance),
        checks=[Check(name="measured", status=Status(verdict), kind=Kind.NOT_MEASURED, detail=reason)],
        ran_in=THIS_PROCESS if job.is_here else CHILD_PROCESS,
    )
