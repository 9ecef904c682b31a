"""By which rules a comparison is judged, as one digest: evidence counts for as long as the spec asks for these rules.

What is compared is bound otherwise: a file by the digest of its artifact, the reference with its probes and samples by
the digest of the recording, the device by its name in the evidence. Of a path only the content counts, so that the
digest is the same wherever the run lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.artifact import Artifact
from paritygate.codec import digest_of
from paritygate.files import digest_of_file
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.run.comparison_job import comparison_job
from paritygate.pipelines.run.emulated_rows import emulated_row
from paritygate.pipelines.run.workspace import RunFolder

__all__ = ["JUDGED_BY", "RunRules", "judged_by"]

JUDGED_BY = "judged_by"


def judged_by(job: ComparisonJob) -> str:
    """Return the digest of the rules that the comparison is judged by; of two machines, the same for the same rules."""
    candidate, samples, rows = job.candidate, job.samples, job.calibrated_rows
    return digest_of(
        {
            "rules": job.rules,
            "may_be_the_source": job.may_be_the_source,
            "is_emulated": job.is_emulated,
            "signature": candidate.signature,
            "rename": candidate.rename,
            "provider": candidate.provider,
            "batch_size": samples.batch_size,
            "pad": samples.pad,
            "split": samples.split,
            "calibrated_rows": None if rows is None else digest_of_file(rows) if rows.is_file() else "missing",
        }
    )


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
