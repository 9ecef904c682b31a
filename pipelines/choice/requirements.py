"""Whether every variant that a run requires passed: only then does the run change a repository by itself."""

from __future__ import annotations

from collections.abc import Collection

from paritygate.pipelines.choice.eligibility import can_run_on
from paritygate.pipelines.compare.result import NOT_RUN_HERE
from paritygate.pipelines.run.evidence import Evidence
from paritygate.pipelines.run.workspace import RunFolder, required_variants

__all__ = ["unmet_requirements"]

_WORST_FIRST = ("error", "fail", "inconclusive")


def unmet_requirements(run: RunFolder, evidence: Evidence, devices: Collection[str]) -> dict[str, str]:
    """Return the required variants that did not pass, each with its verdict.

    What was found on a device of the release counts; on the others, where the variant was validated on none of these.
    A variant has to pass on every device that counts and runs it, and to run on one.

    Args:
        run: The run.
        evidence: Its evidence; that of other devices only as far as it is about the files that are there.
        devices: Where the release will run.
    """
    documents = evidence.by_device()
    found: dict[str, str] = {}
    for name in required_variants(run):
        wanted = [item for device, item in documents.items() if device in devices and can_run_on(name, device)]
        counting = wanted or documents.values()
        verdicts = {entry.verdict for item in counting if (entry := item.entry(name)) is not None}
        unmet = next((verdict for verdict in _WORST_FIRST if verdict in verdicts), None)
        if unmet is not None:
            found[name] = unmet
        elif "pass" not in verdicts:
            found[name] = NOT_RUN_HERE if verdicts else "not measured"
    return found
