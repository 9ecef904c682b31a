"""By which rules a comparison is judged, as one digest: evidence counts for as long as the spec asks for these rules.

What is compared is bound otherwise: a file by the digest of its artifact, the reference with its probes and samples by
the digest of the recording, the device by its name in the evidence. All else that a comparison is told is a rule. Of a
path only the content counts, so that the digest is the same wherever the run lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.artifact import Artifact
from paritygate.files import digest_of_file, digest_of_json
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.run.comparison_job import comparison_job
from paritygate.pipelines.run.emulated_rows import emulated_row
from paritygate.pipelines.run.workspace import RunFolder

__all__ = ["JUDGED_BY", "RunRules", "judged_by"]

JUDGED_BY = "judged_by"
# What is left counts: a part that a comparison gets one day is a rule, unless it is named here.
_NO_RULES = ("reference", "device", "failures", "again")
_NO_RULES_OF_SIDE = ("name", "model", "outputs", "fixed_shape", "engine")
_NO_RULES_OF_SAMPLES = ("text", "folder", "path", "key")


def judged_by(job: ComparisonJob) -> str:
    """Return the digest of the rules that the comparison is judged by; of two machines, the same for the same rules."""
    rules = _without(job.to_json(), _NO_RULES)
    rows = job.calibrated_rows
    return digest_of_json(
        {
            **rules,
            "candidate": _without(rules["candidate"], _NO_RULES_OF_SIDE),
            "samples": _without(rules["samples"], _NO_RULES_OF_SAMPLES),
            "calibrated_rows": None if rows is None else digest_of_file(rows) if rows.is_file() else "missing",
        }
    )


def _without(data: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in names}


class RunRules:
    """The rules that the spec in a run's folder asks for now.

    What the command line had left out of the probes is no rule: the evidence says itself what was not asked, and so
    does a release.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._artifacts = {name: Artifact.read_record(run.variant_folder(name)) for name in run.exported()}

    def allow(self, entry: Mapping[str, Any], device: str, *, is_emulated: bool = False) -> bool:
        """Return whether an entry of the evidence was judged by them, if it is about the file that is there.

        Args:
            entry: The entry.
            device: The device of the evidence that it stands in.
            is_emulated: Whether it is an emulated row.

        Raises:
            ParitygateError: What the rules follow from is not there or damaged, such as the file that an engine was
                built from.
        """
        artifact = self._artifacts.get(entry["variant"])
        if artifact is None or entry.get("artifact") != artifact.digest:
            # Of another file the rules are not known, and it does not count anyway.
            return True
        job = comparison_job(self._run, artifact, device.partition(":")[0])
        if is_emulated:
            row = emulated_row(self._run, artifact, job)
            if row is None:
                return False
            if row.damage is not None:
                raise row.damage
            job = row.job
        return bool(entry.get(JUDGED_BY) == judged_by(job))
