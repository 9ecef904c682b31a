"""Describe the outcome of a probe: where it failed, what agreed, and what was left out and why."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from paritygate.validate.probes.catalogue import PROBES
from paritygate.validate.probes.inputs.edge import Edge, edges_in_words
from paritygate.validate.probes.skip_reasons import LEFT_OUT_FOR_WANT, batches_in_words, drop_words
from paritygate.validate.words.sentence import Words, joined, render, say

if TYPE_CHECKING:
    from paritygate.validate.probes.recording import ProbeRecord

# Edges named in one line; the report lists more.
_EDGES_NAMED = 3
_OF_ONE_INPUT = re.compile(r"roles: \{([^:{}]+): (\{[^{}]*\})\}")


class ProbeFailure(Struct, frozen=True, kw_only=True):
    """A batch of a probe that a candidate failed, or that differs where no sample is.

    `batch` is its position from 0. `inputs` is where its inputs were stored, or empty. `edges` are the ways in which
    all differing rows are unlike every sample.
    """

    batch: int
    about: str
    check: str
    words: Words
    inputs: str = ""
    edges: tuple[Edge, ...] = ()

    @property
    def detail(self) -> str:
        """The difference, as text."""
        return render(self.words)

    @property
    def edge(self) -> str:
        """The ways in which the rows are unlike every sample, such as `an empty row of attention_mask`."""
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
    """Return the outcome of a probe as a message.

    `error` is a fault of this tool. `unfit` and `edge_off` count batches that did not run. `findings` hold the first
    batch that differs per edge, `found` the number of such batches. `padded` outputs differ only under an undeclared
    mask.
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
    """Return the message about a difference where no sample is."""
    return say("probe.finding", edge=edge, about=about, more=_more(batches) or say("nothing"), difference=differs)


def _more(count: int) -> Words:
    return say("probe.more", count=count - 1) if count > 1 else ()


def failed_itself(error: str) -> Words:
    """Return the message for a probe that failed itself, with what to do."""
    return say("probe.itself", error=error)


def _left_out(probe: ProbeRecord, unfit: int, edge_off: int) -> list[str]:
    not_taken = f"{batches_in_words(unfit)} of sizes or values that the candidate does not take or is not held to"
    return [
        *drop_words(probe.dropped_counts, rows=probe.allowed_rows),
        *([not_taken] if unfit else []),
        *([f"{batches_in_words(edge_off)} unlike every sample, as edge: off says"] if edge_off else []),
        *probe.notes,
    ]


def below_roles(said: str) -> str:
    """Return `roles: {attention_mask: {empty: true}}` as the line that goes below `roles` of a spec."""
    return _OF_ONE_INPUT.sub(lambda found: f"{found[1]}: {found[2]}", said)


def role_option(said: str) -> str:
    """Return `roles: {attention_mask: {empty: true}}` as `--role 'attention_mask={empty: true}'`; other texts stay."""
    return _OF_ONE_INPUT.sub(lambda found: f"--role {shlex.quote(f'{found[1]}={found[2]}')}", said)


def how_to_declare(said: str, *, has_spec: bool) -> str:
    """Return how to declare a fact of an input: the line for the spec, or `give --role ...` without one."""
    if not said:
        return "nothing has to be declared: it stays a finding"
    if has_spec:
        line = below_roles(said)
        return f"write {said} in the spec" if line == said else f"write below roles in the spec: {line}"
    option = role_option(said)
    # A text without roles has no option.
    return f"write {said} in a spec" if option == said else f"give {option}"
