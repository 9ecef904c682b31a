"""A comparison as a job: what is compared with what, on which samples, held to what."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paritygate.errors import BackendError, ExitCode, NotRunHereError, ParitygateError
from paritygate.files import MARKER
from paritygate.models.source import Source, SourceKind
from paritygate.pipelines.compare.result import (
    CHILD_PROCESS,
    NOT_RUN_HERE,
    THIS_PROCESS,
    CheckResult,
    ComparisonResult,
    SideResult,
    error_result,
    result_from_json,
)
from paritygate.pipelines.process.child import ChildJob, Progress, run_child, run_here
from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.validate.detections.rule import MatchRule
from paritygate.validate.gate.decisions import Decision
from paritygate.validate.gate.tolerance import Tolerance
from paritygate.validate.gold.rule import GoldRule
from paritygate.validate.samples.samples import SampleSource

__all__ = ["ComparisonJob", "Side", "compare", "comparison_not_run", "failed_comparison"]


_HERE = "a model is an object of this process, and ran in it: without a limit of time or memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side of a comparison: a model to run, or outputs recorded before.

    Attributes:
        name: What to call it.
        model: The model, or None.
        outputs: The npz file or recording folder, or None.
        signature: Names and dtypes, where the model does not say them itself.
        rename: The side's own name: the name compared by.
        fixed_shape: The file with the rule by which inputs are brought to its fixed dims; None where none is fixed.
        provider: The execution provider of ONNX Runtime that runs an ONNX model; None for that of the device.
        engine: The engine that the model stands for, whose shapes alone it is run on; None where it is itself.
    """

    name: str
    model: Source | None = None
    outputs: Path | None = None
    signature: Signature | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    fixed_shape: Path | None = None
    provider: str | None = None
    engine: Path | None = None

    @property
    def place(self) -> Path | None:
        """The file or folder of the side, links followed; None for a `module:callable`."""
        path = self.outputs or (self.model.path if self.model else None)
        return path.resolve() if path and path.exists() else None

    def to_json(self) -> dict[str, Any]:
        """Return the side as JSON data."""
        return {
            "name": self.name,
            "model": self.model.to_json() if self.model else None,
            "outputs": str(self.outputs) if self.outputs else None,
            "signature": self.signature.to_json() if self.signature else None,
            "rename": dict(self.rename),
            "fixed_shape": str(self.fixed_shape) if self.fixed_shape else None,
            "provider": self.provider,
            "engine": str(self.engine) if self.engine else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Side:
        """Return the side that `to_json` wrote."""
        return cls(
            name=data["name"],
            model=Source.from_json(data["model"]) if data["model"] else None,
            outputs=Path(data["outputs"]) if data["outputs"] else None,
            signature=Signature.from_json(data["signature"]) if data["signature"] else None,
            rename=data["rename"],
            fixed_shape=Path(data["fixed_shape"]) if data["fixed_shape"] else None,
            provider=data["provider"],
            engine=Path(data["engine"]) if data["engine"] else None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonJob:
    """Everything a comparison needs to know; see the attributes of `GatePlan` and `RecordPlan`."""

    reference: Side
    candidate: Side
    samples: SampleSource
    precision: Precision
    tolerance: Tolerance
    decisions: tuple[Decision, ...] = ()
    outputs: tuple[str, ...] = ()
    argmax_of: Mapping[str, str] = field(default_factory=dict)
    gold: tuple[GoldRule, ...] = ()
    matches: tuple[MatchRule, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)
    axes: Mapping[str, int] = field(default_factory=dict)
    passes: int = 1
    min_rows: int = 1
    is_non_finite_declared: bool = False
    strata: tuple[str, ...] = ()
    # In a run the source itself may be a target: then equal bytes are what was asked for, and said.
    may_be_the_source: bool = False
    # Whether the candidate runs as a device of the precision would, every value rounded to it.
    is_emulated: bool = False
    # Where the rows are written down that the candidate was calibrated on; None where it was on none.
    calibrated_rows: Path | None = None
    # The probes to ask, by the table of those there are.
    probes: tuple[str, ...] = ()
    # Where batches of probes go that the candidate fails; None for nowhere.
    failures: Path | None = None
    # What makes the comparison of such a batch again, where it is no `compare`; None where it is, and empty where no
    # command does, because models or samples are objects of Python code.
    again: str | None = None
    device: str = "cpu"
    seed: int = 0

    @property
    def is_here(self) -> bool:
        """Whether a side is an object of this process, so that the comparison is made in it."""
        models = (self.reference.model, self.candidate.model)
        return any(model is not None and model.kind is SourceKind.LIVE for model in models)

    def to_json(self) -> dict[str, Any]:
        """Return the job as JSON data."""
        return {
            "reference": self.reference.to_json(),
            "candidate": self.candidate.to_json(),
            "samples": self.samples.to_json(),
            "precision": str(self.precision),
            "tolerance": self.tolerance.to_json(),
            "decisions": [decision.to_json() for decision in self.decisions],
            "outputs": list(self.outputs),
            "argmax_of": dict(self.argmax_of),
            "gold": [rule.to_json() for rule in self.gold],
            "matches": [rule.to_json() for rule in self.matches],
            "ignored": dict(self.ignored),
            "axes": dict(self.axes),
            "passes": self.passes,
            "min_rows": self.min_rows,
            "is_non_finite_declared": self.is_non_finite_declared,
            "strata": list(self.strata),
            "may_be_the_source": self.may_be_the_source,
            "is_emulated": self.is_emulated,
            "calibrated_rows": str(self.calibrated_rows) if self.calibrated_rows else None,
            "probes": list(self.probes),
            "failures": str(self.failures) if self.failures else None,
            "again": self.again,
            "device": self.device,
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ComparisonJob:
        """Return the job that `to_json` wrote."""
        return cls(
            reference=Side.from_json(data["reference"]),
            candidate=Side.from_json(data["candidate"]),
            samples=SampleSource.from_json(data["samples"]),
            precision=Precision(data["precision"]),
            tolerance=Tolerance.from_json(data["tolerance"]),
            decisions=tuple(Decision.from_json(item) for item in data["decisions"]),
            outputs=tuple(data["outputs"]),
            argmax_of=data["argmax_of"],
            gold=tuple(GoldRule.from_json(item) for item in data["gold"]),
            matches=tuple(MatchRule.from_json(item) for item in data["matches"]),
            ignored=data["ignored"],
            axes=data["axes"],
            passes=data["passes"],
            min_rows=data["min_rows"],
            is_non_finite_declared=data["is_non_finite_declared"],
            strata=tuple(data["strata"]),
            may_be_the_source=data["may_be_the_source"],
            is_emulated=data["is_emulated"],
            calibrated_rows=Path(data["calibrated_rows"]) if data["calibrated_rows"] else None,
            probes=tuple(data["probes"]),
            failures=Path(data["failures"]) if data["failures"] else None,
            again=data["again"],
            device=data["device"],
            seed=data["seed"],
        )


def compare(
    job: ComparisonJob,
    *,
    time_limit_s: float,
    folder: Path | None = None,
    progress: Progress = lambda *_: None,
) -> ComparisonResult:
    """Run the comparison in a child process, or in this one if it needs an object of it, and return its result.

    Never raises a `ParitygateError`: what kept the comparison from being made is in the result, with
    verdict `error` and the exit code of its cause.

    Args:
        job: What to compare.
        time_limit_s: Seconds after which it is stopped; in this process nothing stops it.
        folder: Where job, log and temporary files go; a temporary folder by default, which is kept if
            something went wrong, for the log in it.
        progress: Called with the stage and the rows done.
    """
    own = Path(tempfile.mkdtemp(prefix="paritygate-compare-")) if folder is None else None
    place = own or folder
    assert place is not None  # noqa: S101 - one of the two is set
    (place / MARKER).touch() if own else None
    is_clean = False
    try:
        value = (run_here if job.is_here else run_child)(
            ChildJob(
                name="compare",
                args={"job": job.to_json(), "folder": str(place), "time_limit_s": time_limit_s},
                folder=place,
                what=f"the comparison of {job.candidate.name} with {job.reference.name}",
                time_limit_s=time_limit_s,
                crash_error=BackendError,
            ),
            progress,
        )
        result = result_from_json(value)
        if job.is_here:
            is_clean = True
            return replace(result, ran_in=THIS_PROCESS, notes=[*result.notes, _HERE])
        # Where a probe failed by itself, the log says why.
        is_clean = not any(probe.error for probe in result.probes.asked.values())
        kept = [f"the log of the comparison is in {place}"] if own and not is_clean else []
        return replace(result, notes=[*result.notes, *kept])
    except NotRunHereError as err:
        is_clean = True
        return comparison_not_run(job, f"{err}: {err.hint}" if err.hint else str(err))
    except ParitygateError as err:
        is_clean = str(place) not in str(err)
        return failed_comparison(job, err)
    except BaseException:
        is_clean = True
        raise
    finally:
        if own and is_clean:
            shutil.rmtree(own, ignore_errors=True)


def failed_comparison(job: ComparisonJob, error: ParitygateError) -> ComparisonResult:
    """Return the result of a comparison that could not be made."""
    code = error.exit_code if error.exit_code is not ExitCode.PASS else ExitCode.NOT_MEASURED
    return replace(_not_measured(job, "error", str(error)), exit_code=int(code), error=error_result(error))


def comparison_not_run(job: ComparisonJob, reason: str) -> ComparisonResult:
    """Return the result of a comparison whose candidate does not run on this machine, for the reason given."""
    return replace(_not_measured(job, NOT_RUN_HERE, reason), not_run_here=reason)


def _not_measured(job: ComparisonJob, verdict: str, reason: str) -> ComparisonResult:
    return ComparisonResult(
        verdict=verdict,
        exit_code=int(ExitCode.NOT_MEASURED),
        rows=0,
        precision=str(job.precision),
        reference=SideResult(name=job.reference.name, kind="unknown"),
        candidate=SideResult(name=job.candidate.name, kind="unknown"),
        samples=job.samples.path or job.samples.text,
        tolerance=job.tolerance.to_json(),
        checks=[CheckResult(name="measured", status=verdict, detail=reason)],
        ran_in=THIS_PROCESS if job.is_here else CHILD_PROCESS,
    )
