"""What came of a probe, in words: where it failed, what was answered alike, and what was left out and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paritygate.validate.probes.drops import batches_in_words, drop_words
from paritygate.validate.probes.probe import PROBES
from paritygate.validate.probes.recording import ProbeRecord

if TYPE_CHECKING:
    from paritygate.validate.probes.run import ProbeFailure

__all__ = ["DOES_NOT_APPLY", "failed_itself", "in_words"]

# So begins the detail of a probe that has nothing to derive; what is missing follows.
DOES_NOT_APPLY = "does not apply: "


def in_words(failures: Sequence[ProbeFailure], probe: ProbeRecord, error: str, *, rows: int, unfit: int) -> str:
    """Return what came of a probe.

    Args:
        failures: The batches failed.
        probe: What was recorded.
        error: What of ours failed, and where; empty where nothing did.
        rows: Rows asked.
        unfit: Batches that the candidate was not asked.
    """
    left_out = _left_out(probe, unfit)
    rest = f" (left out: {', '.join(left_out)})" if left_out else ""
    if failures:
        first = failures[0]
        more = f", and {batches_in_words(len(failures) - 1, 'more')}" if len(failures) > 1 else ""
        also = f"; {failed_itself(error)}" if error else ""
        return f"at {first.about}: {first.check}: {first.detail}{more}{also}{rest}"
    if error:
        before = f"; {rows} rows were answered alike before that" if rows else ""
        return f"{failed_itself(error)}{before}{rest}"
    if rows:
        return f"{rows} rows answered alike{rest}"
    return f"nothing of it could be asked{rest}" if left_out else f"{DOES_NOT_APPLY}{PROBES[probe.name].missing}"


def failed_itself(error: str) -> str:
    """Return that a probe failed and no model did, and what can be done."""
    return (
        f"the probe itself failed, by a fault of paritygate and not of a model: {error} (the traceback is in the log; "
        "--probes can leave the probe out, which a release records; please report it)"
    )


def _left_out(probe: ProbeRecord, unfit: int) -> list[str]:
    not_taken = f"{batches_in_words(unfit)} of sizes or values that the candidate does not take or is not held to"
    return [
        *drop_words(probe.dropped_counts, rows=probe.allowed_rows),
        *([not_taken] if unfit else []),
        *probe.notes,
    ]
