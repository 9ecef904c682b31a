"""Whether every variant that a run requires passed: only then does the run change a repository by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.pipelines.other_machines import documents_by_device
from paritygate.pipelines.result import NOT_RUN_HERE
from paritygate.pipelines.workspace import RunFolder, required_variants

__all__ = ["unmet_requirements"]

_WORST_FIRST = ("error", "fail", "inconclusive")


def unmet_requirements(run: RunFolder, evidence: Mapping[str, Any]) -> dict[str, str]:
    """Return the required variants that did not pass, each with its verdict.

    Where a run was validated on several devices, a variant has to pass on every one that runs it, and to run on one.

    Args:
        run: The run.
        evidence: Its evidence; that of other devices only as far as it is about the files that are there.
    """
    documents = documents_by_device(evidence).values()
    found: dict[str, str] = {}
    for name in required_variants(run):
        verdicts = {entry["verdict"] for item in documents for entry in item["variants"] if entry["variant"] == name}
        unmet = next((verdict for verdict in _WORST_FIRST if verdict in verdicts), None)
        if unmet is not None:
            found[name] = unmet
        elif "pass" not in verdicts:
            found[name] = NOT_RUN_HERE
    return found
