"""What came of a probe, in words: where it failed, what was answered alike, and what was left out and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paritygate.validate.probes.drops import LEFT_OUT_FOR_WANT, batches_in_words, drop_words
from paritygate.validate.probes.edge import Edge, edges_in_words
from paritygate.validate.probes.probe import PROBES
from paritygate.validate.probes.recording import ProbeRecord

__all__ = ["DOES_NOT_APPLY", "ProbeFailure", "failed_itself", "finding_words", "in_words"]

# Edges that are named in one line; the report lists more.
_EDGES_NAMED = 3


# So begins the detail of a probe that has nothing to derive; what is missing follows.
DOES_NOT_APPLY = "does not apply: "


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeFailure:
    """One batch of a probe that a candidate failed, or answered otherwise where no sample is.

    Attributes:
        batch: Its position among the batches of the probe, from 0.
        about: What is special about it.
        check: The name of the check that it failed.
        detail: In words, with the numbers.
        inputs: Where its inputs were put; empty for nowhere.
        edges: In which ways all rows that differ are unlike every sample; empty where they are not.
    """

    batch: int
    about: str
    check: str
    detail: str
    inputs: str = ""
    edges: tuple[Edge, ...] = ()

    @property
    def edge(self) -> str:
        """In which ways the rows are unlike every sample, in words, such as `an empty row of attention_mask`."""
        return edges_in_words(self.edges)


def in_words(  # noqa: PLR0913 - all that came of it
    failures: Sequence[ProbeFailure],
    probe: ProbeRecord,
    error: str,
    *,
    rows: int,
    unfit: int,
    findings: Sequence[ProbeFailure] = (),
    found: Mapping[str, int] | None = None,
    edge_off: int = 0,
    padded: Sequence[str] = (),
) -> str:
    """Return what came of a probe.

    Args:
        failures: The batches failed.
        probe: What was recorded.
        error: What of ours failed, and where; empty where nothing did.
        rows: Rows asked.
        unfit: Batches that the candidate was not asked.
        findings: The first batch of each edge that was answered otherwise there.
        found: How many batches were, by edge.
        edge_off: Batches that are not asked because no sample is like them.
        padded: Outputs that differ where an undeclared mask leaves out, which is excused and said apart.
    """
    left_out = _left_out(probe, unfit, edge_off)
    rest = f" (left out: {', '.join(left_out)})" if left_out else ""
    if failures:
        first = failures[0]
        edge = f" ({first.edge}, as no sample has, and edge: fail asks it)" if first.edges else ""
        more = _more(len(failures))
        also = f"; {failed_itself(error)}" if error else ""
        return f"at {first.about}{edge}: {first.check}: {first.detail}{more}{also}{rest}"
    if error:
        before = f"; {rows} rows were answered alike before that" if rows else ""
        return f"{failed_itself(error)}{before}{rest}"
    if findings:
        counts = found or {}
        named = [
            finding_words(item.edge, item.about, f"{item.check}: {item.detail}", batches=counts.get(item.edge, 1))
            for item in findings[:_EDGES_NAMED]
        ]
        others = len(findings) - len(named)
        named += [f"{others} more ways to be unlike the samples"] if others else []
        return f"{'; '.join(named)}; the rest of {rows} rows answered alike{rest}"
    if rows:
        but = f", but for padding of {', '.join(padded)}: see undeclared_padding" if padded else ""
        if LEFT_OUT_FOR_WANT & probe.dropped_counts.keys():
            return f"asked in part: {rows} rows answered alike{but}{rest}; more samples let it ask more"
        return f"{rows} rows answered alike{but}{rest}"
    return f"nothing of it could be asked{rest}" if left_out else f"{DOES_NOT_APPLY}{PROBES[probe.name].missing}"


def finding_words(edge: str, about: str, differs: str, *, batches: int) -> str:
    """Return what is answered otherwise where no sample is.

    Args:
        edge: How the rows are unlike every sample.
        about: What is special about the first batch that differs.
        differs: What differs in it, with the numbers.
        batches: How many batches differ at this edge.
    """
    return f"{edge}, as no sample has: the answers differ at {about}{_more(batches)}: {differs}"


def _more(count: int) -> str:
    return f", and {batches_in_words(count - 1, 'more')}" if count > 1 else ""


def failed_itself(error: str) -> str:
    """Return that a probe failed and no model did, and what can be done."""
    return (
        f"the probe itself failed, by a fault of paritygate and not of a model: {error} (the traceback is in the log; "
        "--probes can leave the probe out, which a release records; please report it)"
    )


def _left_out(probe: ProbeRecord, unfit: int, edge_off: int) -> list[str]:
    not_taken = f"{batches_in_words(unfit)} of sizes or values that the candidate does not take or is not held to"
    return [
        *drop_words(probe.dropped_counts, rows=probe.allowed_rows),
        *([not_taken] if unfit else []),
        *([f"{batches_in_words(edge_off)} unlike every sample, as edge: off says"] if edge_off else []),
        *probe.notes,
    ]
