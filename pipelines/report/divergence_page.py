"""The page of a diagnosis: its places, and the graphs of both models there."""

from __future__ import annotations

from pathlib import Path

from paritygate.files import write_bytes_atomically
from paritygate.pipelines.report.drawings.graph import graph_plot
from paritygate.pipelines.report.figures import number
from paritygate.pipelines.report.html_page import html_page
from paritygate.pipelines.report.tables.table import table_of
from paritygate.text import counted
from paritygate.validate.divergence.result import EQUAL, Divergence

_DRAWN = 3
_VERDICTS = {True: "pass", False: "fail"}


def write_divergence_page(divergence: Divergence, path: Path, *, reference: str, candidate: str) -> None:
    """Write a self-contained page that loads and executes nothing; may raise StorageError."""
    error = "not finite" if divergence.error is None else number(divergence.error)
    why = f"largest relative error {error}; {divergence.matched} of {counted(divergence.tensors, 'inner tensor')} match"
    places = [
        (
            str(at),
            place.what,
            ", ".join(place.candidate_nodes) or "-",
            ", ".join(place.reference_nodes) or "-",
            ", ".join(filter(None, place.reference_code)) or "-",
            place.certainty,
        )
        for at, place in enumerate(divergence.located, 1)
    ]
    titles = ("place", "difference", "candidate", "reference", "code", "certainty")
    drawings = [
        (f"Place {at}: {place.what}", graph_plot("Reference", place.reference_graph), graph_plot("Candidate", graph))
        for at, place in enumerate(divergence.located[:_DRAWN], 1)
        if (graph := place.candidate_graph)
    ]
    content = html_page(
        "divergence",
        title=f"{candidate} against {reference}",
        verdict=_VERDICTS[divergence.outcome == EQUAL],
        why=divergence.detail or why,
        places=table_of("Places at which the models part", titles, places) if places else None,
        graphs=drawings,
        unknown=", ".join(divergence.not_located),
    )
    write_bytes_atomically(path, content.encode(), elsewhere="name another file with --report")
