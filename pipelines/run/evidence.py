"""The evidence of a run: what ran where, by digest, and the outcome.

A run folder may move between machines. Each validation writes the evidence of its device, and keeps the others'.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paritygate import __version__
from paritygate.artifact import Artifact
from paritygate.codec import from_data, from_json, to_data
from paritygate.errors import InputFileError
from paritygate.files import json_of, write_json_atomically
from paritygate.machine import available_processors, machine_facts
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.rules.strictness import check_record
from paritygate.pipelines.run.stage import Stage
from paritygate.validate.reference.health import Health
from paritygate.validate.reference.recording import Recording
from paritygate.validate.words.sentence import Sentence

_SCHEMA = 2
VERIFIED = "verified"
EMULATED = "emulated"
BUILT = "built"
NONE = "none"
# The keys of a tolerance that are no limits.
_NO_LIMITS = frozenset({"declared", "outputs", "precision"})
_OF_GPU = frozenset({"name", "device", "driver", "cuda"})


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceEntry:
    """The evidence of one target on one device."""

    variant: str
    evidence: str  # `verified`, `emulated`, `built` or `none`
    verdict: str  # of the result where there is one
    exit_code: int
    reason: str = ""  # why it was not compared
    artifact: str | None = None  # digest; None where there is none, or its files are corrupt
    stage: Stage | None = None  # all inputs of the result; None where there was nothing to compare
    result: ComparisonResult | None = None  # None where the target could not be made
    asked: Mapping[str, Any] | None = None  # rules that can ask less; None in evidence of earlier versions

    def __post_init__(self) -> None:
        check_record(self.asked or {})
        result = self.result
        if result is None:
            wrong = "its verdict is pass, and it holds no result" if self.verdict == "pass" else ""
        elif (result.verdict, result.exit_code) != (self.verdict, self.exit_code):
            wrong = f"its verdict is {self.verdict} ({self.exit_code}), and that of its result {result.verdict}"
        else:
            wrong = _wrong_limits(result) or _wrong_machine(result.machine)
        if self.artifact is not None and self.stage is None:
            wrong = "it does not name what it follows from"
        if wrong:
            raise ValueError(f"the evidence of {self.variant}: {wrong}")

    @classmethod
    def of(
        cls, variant: str, result: ComparisonResult, stage: Stage, artifact: Artifact | None, *, is_emulated: bool
    ) -> EvidenceEntry:
        """Return the entry of a comparison; without an artifact where its files are corrupt or could not run."""
        # What failed to run has no evidence. What no runtime here can run was at least built.
        kind = EMULATED if is_emulated else VERIFIED
        return cls(
            variant=variant,
            evidence=kind if result.is_measured else NONE if artifact is None else BUILT,
            verdict=result.verdict,
            exit_code=result.exit_code,
            reason=result.why_not_measured,
            artifact=None if artifact is None else artifact.digest,
            stage=stage,
            result=result,
        )

    def with_result(self, result: ComparisonResult) -> EvidenceEntry:
        """Return the entry with this result and its verdict."""
        return replace(self, result=result, verdict=result.verdict, exit_code=result.exit_code)

    @property
    def device(self) -> str | None:
        """The device that it ran on; None if it did not."""
        return None if self.result is None else self.result.candidate.device

    @property
    def rows(self) -> int:
        """The number of compared rows."""
        return 0 if self.result is None else self.result.rows

    @property
    def max_abs_diff(self) -> float | None:
        """The largest difference of any output; None without one."""
        outputs = () if self.result is None else self.result.outputs.values()
        return max((item.max_abs_diff for item in outputs if item.max_abs_diff is not None), default=None)


def _wrong_machine(machine: Mapping[str, Any]) -> str:
    """Return an error about the description of a machine; empty for none."""
    cpu, gpu, versions = (machine.get(name) for name in ("cpu", "gpu", "versions"))
    are_mappings = all(isinstance(part, dict | None) for part in (cpu, gpu, versions))
    has_parts = are_mappings and isinstance((cpu or {}).get("flags", []), list) and (not gpu or gpu.keys() >= _OF_GPU)
    return "" if has_parts else "it does not name the machine that it was made on"


def _wrong_limits(result: ComparisonResult) -> str:
    """Return an error about the limits; empty for none."""
    tolerance = result.tolerance
    declared = tolerance.get("declared", [])
    if not isinstance(declared, list) or not all(isinstance(name, str) for name in declared):
        return f"the limits that the tolerance declares are {declared!r}, not a list of names"
    try:
        outputs = from_data(dict[str, dict[str, list[float | None]]], tolerance.get("outputs", {}))
    except ValueError as err:
        return f"the limits of single outputs are wrong: {err}"
    own = {f"{output}:{name}": values for output, limits in outputs.items() for name, values in limits.items()}
    for name in (*declared, *result.looser_than_default):
        if name not in own and not isinstance(tolerance.get(name), int | float):
            return f"{name} is named as a limit of the tolerance, which holds no such number"
    for name, value in tolerance.items():
        if name not in _NO_LIMITS and not isinstance(value, int | float | None):
            return f"{name} of the tolerance is {value!r}, not a number"
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierFailure:
    """An earlier failure of a variant of the same source, which this run replaces or asks less of."""

    run: str
    variant: str
    failed: tuple[str, ...]  # checks, as messages
    asked_less: tuple[str, ...]  # messages on what the run asks less of the variant now
    asked: Mapping[str, Any] | None = None  # the rules of then; None where they are unknown
    failed_words: tuple[tuple[Sentence, ...], ...] = ()  # the parts of `failed`; empty in evidence of earlier versions

    def __post_init__(self) -> None:
        check_record(self.asked or {})


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplesFacts:
    """Digest and number of rows of the samples."""

    digest: str
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceFacts:
    """The recorded reference: its model, digest and runtime, and the findings on its health."""

    model: dict[str, Any]
    digest: str
    runtime: dict[str, Any]
    health: list[list[str]] = field(default_factory=list)
    health_checks: tuple[Health, ...] = ()

    def __post_init__(self) -> None:
        files, digest = self.model.get("files", {}), self.model.get("digest")
        if not isinstance(files, dict) or not isinstance(digest, str | None):
            msg = "the reference's record does not name its model"
            raise ValueError(msg)  # noqa: TRY004 - pydantic takes no TypeError


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """All that a run measured on one device, and on others before."""

    schema_version: int = _SCHEMA
    paritygate: str  # the version that measured
    model: str
    run: str
    device: str
    machine: dict[str, Any]
    samples: SamplesFacts
    reference: ReferenceFacts
    variants: tuple[EvidenceEntry, ...]  # one entry a target, in the spec's order
    emulated: tuple[EvidenceEntry, ...] = ()  # no verdicts on files
    unpacked: str = ""  # the mark of the unpacked run that measured
    earlier_failures: tuple[EarlierFailure, ...] = ()  # those that this run replaced or asks less of
    others: tuple[Evidence, ...] = ()  # of other devices, the newest first, one a device

    def __post_init__(self) -> None:
        if "cores" not in self.machine or _wrong_machine(self.machine):
            raise ValueError(f"the evidence of {self.device} does not name the machine that it was made on")
        devices = [self.device, *(item.device for item in self.others)]
        if len(set(devices)) != len(devices):
            raise ValueError(f"a device occurs twice ({', '.join(devices)})")

    @classmethod
    def of(cls, name: str, run: str, recording: Recording, device: str, **found: Any) -> Evidence:  # noqa: ANN401 - fields
        """Return evidence of a device of this machine; `found` are the fields that do not follow from the rest."""
        return cls(
            paritygate=__version__,
            model=name,
            run=run,
            device=device,
            # Speed on one machine does not predict that on another.
            machine={**machine_facts(), "cores": available_processors()},
            samples=SamplesFacts(digest=recording.samples_digest, rows=recording.rows),
            reference=ReferenceFacts(
                model=dict(recording.model),
                digest=recording.digest,
                runtime=dict(recording.runtime),
                health=[list(item) for item in recording.health],
                health_checks=recording.health_checks,
            ),
            **found,
        )

    @property
    def entries(self) -> tuple[EvidenceEntry, ...]:
        """All entries of this device: those of files, then the emulated ones."""
        return (*self.variants, *self.emulated)

    def entry(self, variant: str) -> EvidenceEntry | None:
        """Return the entry of a variant itself; None where there is none."""
        return next((entry for entry in self.variants if entry.variant == variant), None)

    def emulated_entry(self, variant: str) -> EvidenceEntry | None:
        """Return the emulated row of a variant; None where there is none."""
        return next((entry for entry in self.emulated if entry.variant == variant), None)

    def by_device(self) -> dict[str, Evidence]:
        """Return the evidence of each device, that of the last validation first."""
        return {item.device: item for item in (self, *self.others)}

    def documents(self) -> Iterator[Evidence]:
        """Yield the evidence of each device alone, that of the last validation first."""
        return (replace(item, others=()) for item in (self, *self.others))

    def write(self, path: Path) -> None:
        """Write the evidence to a file, or raise a `StorageError` if the disk is full."""
        write_json_atomically(path, to_data(self))


def read_evidence(path: Path) -> Evidence:
    """Return the evidence in a file, or raise an `InputFileError` if it is corrupt or of another version."""
    again = f"convert-and-validate validate --run {shlex.quote(str(path.parent))}"
    try:
        return _evidence_of(path.read_text(encoding="utf-8"))
    except _OtherSchemaError as err:
        msg = f"{path} is of another version of paritygate (schema {err.args[0]!r}, supported: {_SCHEMA})"
        raise InputFileError(msg, hint=again) from err
    except (OSError, ValueError, RecursionError) as err:
        raise InputFileError(f"{path} is corrupt: {err}", hint=again) from err


class _OtherSchemaError(Exception):
    """Evidence has another schema."""


# All stages of a run read the same evidence.
@functools.lru_cache(maxsize=4)
def _evidence_of(text: str) -> Evidence:
    data = json_of(text)
    if isinstance(data, dict) and data.get("schema_version") not in {None, _SCHEMA}:
        raise _OtherSchemaError(data["schema_version"])
    return from_json(Evidence, data)
