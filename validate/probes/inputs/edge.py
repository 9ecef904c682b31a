"""One way in which rows are unlike every sample, and what to declare about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class EdgeKind(str, Enum):
    """How a row is unlike every sample."""

    EMPTY_MASK = "empty_mask"
    PADDING = "padding"
    SHORT = "short"
    NAN = "nan"
    INFINITY = "infinity"
    VALUES = "values"
    IDS = "ids"
    SIZE = "size"
    CALIBRATION = "calibration"
    ROUNDED = "rounded"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """Rows of a batch that are unlike every sample in one way.

    Attributes:
        input: The input that they are unlike in, or the dim; empty where it is none of the inputs.
        kind: How.
        words: The same in words, such as `an empty row of attention_mask`.
        rows: Their positions in the batch.
        if_it_occurs: What to write in the spec where the service can get such rows.
        if_it_never_occurs: What to write where it cannot; empty where nothing says it.
    """

    input: str
    kind: EdgeKind
    words: str
    rows: tuple[int, ...]
    if_it_occurs: str
    if_it_never_occurs: str

    def __str__(self) -> str:
        return self.words


def edges_in_words(edges: Iterable[Edge]) -> str:
    """Return in which ways rows are unlike every sample, such as `an empty row of attention_mask`."""
    return " and ".join(dict.fromkeys(map(str, edges)))


def beyond_calibration(rows: int) -> Edge:
    """Return the edge of rows whose activations go beyond the ranges that an INT8 variant was calibrated to."""
    return Edge(
        input="",
        kind=EdgeKind.CALIBRATION,
        words="activations beyond the range that INT8 was calibrated on",
        rows=tuple(range(rows)),
        if_it_occurs="calibration: {source: PATH} with rows like these",
        if_it_never_occurs="",
    )


def where_rounded(name: str, rows: Iterable[int]) -> Edge:
    """Return the edge of rows whose numbers are divided after they were rounded: a correct conversion may round too."""
    return Edge(
        input=name,
        kind=EdgeKind.ROUNDED,
        words=f"values of {name} at which a rounded number is divided",
        rows=tuple(rows),
        if_it_occurs="",
        if_it_never_occurs="",
    )


def of_no_table(name: str, rows: int) -> Edge:
    """Return the edge of rows with a text that is in no table in which it is looked up."""
    return Edge(
        input=name,
        kind=EdgeKind.IDS,
        words=f"texts of {name} that no table holds",
        rows=tuple(range(rows)),
        if_it_occurs="",
        if_it_never_occurs="",
    )
