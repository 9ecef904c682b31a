"""The evidence of a run: what ran where, by digest, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from paritygate import __version__
from paritygate.artifact import Artifact
from paritygate.machine import machine_facts
from paritygate.pipelines.benchmark.load import cores
from paritygate.pipelines.compare.result import ComparisonResult, ProbesResult
from paritygate.pipelines.run.judged_by import JUDGED_BY
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
from paritygate.validate.reference.recording import Recording

__all__ = ["EmulatedResult", "Evidence", "evidence_to_json"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EmulatedResult:
    """The comparison that stands for a variant where the device is absent.

    Attributes:
        result: The comparison.
        artifact: The artifact that it is about; None if its files are not what was made.
        emulated_from: Digest of the artifact that ran in its place; its own where that is what ran.
        judged_by: Digest of the rules that it was judged by.
    """

    result: ComparisonResult
    artifact: Artifact | None
    emulated_from: str | None
    judged_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Everything that a run measured.

    Attributes:
        recording: The reference.
        artifacts: The artifact of each variant that ran, or that was built and runs elsewhere only.
        results: The comparison of each variant that was exported, as it ran on the device.
        emulated: The comparison that stands for a variant on a device that is absent, where that was made.
        judged_by: Digest of the rules that each of the results was judged by.
        device: The device.
    """

    recording: Recording
    artifacts: Mapping[str, Artifact]
    results: Mapping[str, ComparisonResult]
    emulated: Mapping[str, EmulatedResult]
    judged_by: Mapping[str, str]
    device: str


def evidence_to_json(run: RunFolder, evidence: Evidence) -> dict[str, Any]:
    """Return the evidence of a run as JSON data, one entry a target."""
    failures = run.failures()
    recording = evidence.recording
    entries = []
    for name in run.resolved.target_names:
        if name in evidence.results:
            entry = _entry(name, evidence.artifacts.get(name), evidence.results[name], kind="verified")
            entries.append({**entry, JUDGED_BY: evidence.judged_by[name]})
        elif name in failures:
            entries.append(_failure_entry(failures[name]))
        else:
            entries.append(
                {
                    "variant": name,
                    "artifact": None,
                    "evidence": "none",
                    "verdict": "error",
                    "exit_code": 5,
                    "reason": "not exported",
                }
            )
    return {
        "schema_version": 1,
        "paritygate": __version__,
        "model": run.resolved.name,
        "run": run.run_id,
        "device": evidence.device,
        # A benchmark of another machine says nothing of how fast the variants are on this one.
        "machine": {**machine_facts(), "cores": cores()},
        "samples": {"digest": recording.samples_digest, "rows": recording.rows},
        "reference": {
            "model": dict(recording.model),
            "digest": recording.digest,
            "runtime": dict(recording.runtime),
            "health": [list(item) for item in recording.health],
        },
        "variants": entries,
        # How a file would answer where its precision is real; it decides no verdict.
        "emulated": [
            {
                **_entry(name, row.artifact, row.result, kind="emulated"),
                "emulated_from": row.emulated_from,
                JUDGED_BY: row.judged_by,
            }
            for name, row in evidence.emulated.items()
        ],
    }


def _entry(name: str, artifact: Artifact | None, result: ComparisonResult, *, kind: str) -> dict[str, Any]:
    # What could not be run has no evidence; what no runtime here runs was at least built.
    found = kind if result.is_measured else "none" if artifact is None else "built"
    return {
        "variant": name,
        "artifact": artifact.digest if artifact is not None else None,
        "evidence": found,
        "device": result.candidate.device,
        "runtime": result.candidate.runtime,
        "version": result.candidate.version,
        "precision_found": result.candidate.precision_found,
        "verdict": result.verdict,
        "exit_code": result.exit_code,
        "rows": result.rows,
        "tolerance": result.tolerance,
        "looser_than_default": result.looser_than_default,
        "outputs": {output: asdict(item) for output, item in result.outputs.items()},
        "decisions": {output: asdict(item) for output, item in result.decisions.items()},
        "strata": {
            name: {value: asdict(item) for value, item in values.items()} for name, values in result.strata.items()
        },
        "gold": {rule: asdict(item) for rule, item in result.gold.items()},
        "matches": {rule: asdict(item) for rule, item in result.matches.items()},
        "outputs_ignored": result.outputs_ignored,
        "checks": [asdict(check) for check in result.checks],
        "probes": _probes(result.probes),
        "edge_findings": [asdict(finding) for finding in result.edge_findings],
        "notes": result.notes,
        "reason": result.why_not_measured,
    }


def _probes(probes: ProbesResult) -> dict[str, Any]:
    kept = ("status", "detail", "batches", "rows", "dropped", "unfit", "edge_off", "failed", "error")
    return {
        "asked": {
            name: {
                **{key: getattr(probe, key) for key in kept},
                "dropped_by": {kind: item.batches for kind, item in probe.dropped_by.items()},
            }
            for name, probe in probes.asked.items()
        },
        "switched_off": probes.switched_off,
        "edge": probes.edge,
        "not_recorded": probes.not_recorded,
        "skipped": probes.skipped,
        "seed": probes.seed,
    }


def _failure_entry(failure: FailedVariant) -> dict[str, Any]:
    return {
        "variant": failure.variant,
        "artifact": None,
        "evidence": "none",
        "verdict": failure.verdict,
        "exit_code": failure.exit_code,
        "reason": failure.message,
    }
