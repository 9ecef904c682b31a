"""What came of a probe, in words: where it failed, what was answered alike, and what was left out and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paritygate.validate.probes.catalogue import PROBES
from paritygate.validate.probes.drops import LEFT_OUT_FOR_WANT, batches_in_words, drop_words
from paritygate.validate.probes.inputs.edge import Edge, edges_in_words
from paritygate.validate.words.sentence import Words, joined, render, say

if TYPE_CHECKING:
    from paritygate.validate.probes.recording import ProbeRecord

# Edges that are named in one line; the report lists more.
_EDGES_NAMED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeFailure:
    """One batch of a probe that a candidate failed, or answered otherwise where no sample is.

    Attributes:
        batch: Its position among the batches of the probe, from 0.
        about: What is special about it.
        check: The name of the check that it failed.
        words: What is said of it.
        inputs: Where its inputs were put; empty for nowhere.
        edges: In which ways all rows that differ are unlike every sample; empty where they are not.
    """

    batch: int
    about: str
    check: str
    words: Words
    inputs: str = ""
    edges: tuple[Edge, ...] = ()

    @property
    def detail(self) -> str:
        """What is said of it, as text."""
        return render(self.words)

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
) -> Words:
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
    rest = say("probe.left_out", what=left_out) if left_out else ()
    if failures:
        first = failures[0]
        words = say("probe.at", about=first.about)
        words += say("probe.at_edge", edge=first.edge) if first.edges else ()
        words += say("probe.failed", check=first.check, difference=first.words) + _more(len(failures))
        return words + (say("between", by="; ") + failed_itself(error) if error else ()) + rest
    if error:
        return failed_itself(error) + (say("probe.alike_before", rows=rows) if rows else ()) + rest
    if findings:
        counts = found or {}
        named = [
            finding_words(
                item.edge,
                item.about,
                say("of_check", check=item.check, difference=item.words),
                batches=counts.get(item.edge, 1),
            )
            for item in findings[:_EDGES_NAMED]
        ]
        others = len(findings) - len(named)
        named += [say("probe.more_edges", count=others)] if others else []
        return joined(named, "; ") + say("probe.rest", rows=rows) + rest
    if rows:
        words = say("probe.alike", rows=rows) + (say("probe.but_padding", outputs=padded) if padded else ())
        if LEFT_OUT_FOR_WANT & probe.dropped_counts.keys():
            return say("probe.in_part") + words + rest + say("probe.more_samples")
        return words + rest
    return say("probe.nothing") + rest if left_out else say("probe.does_not_apply", lacks=PROBES[probe.name].missing)


def finding_words(edge: str, about: str, differs: Words, *, batches: int) -> Words:
    """Return what is answered otherwise where no sample is."""
    return say("probe.finding", edge=edge, about=about, more=_more(batches) or say("nothing"), difference=differs)


def _more(count: int) -> Words:
    return say("probe.more", count=count - 1) if count > 1 else ()


def failed_itself(error: str) -> Words:
    """Return that a probe failed and no model did, and what can be done."""
    return say("probe.itself", error=error)


def _left_out(probe: ProbeRecord, unfit: int, edge_off: int) -> list[str]:
    not_taken = f"{batches_in_words(unfit)} of sizes or values that the candidate does not take or is not held to"
    return [
        *drop_words(probe.dropped_counts, rows=probe.allowed_rows),
        *([not_taken] if unfit else []),
        *([f"{batches_in_words(edge_off)} unlike every sample, as edge: off says"] if edge_off else []),
        *probe.notes,
    ]
