"""One way in which rows are unlike every sample, and how to declare it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from paritygate.text import StrEnum


class OutOfSampleKind(StrEnum):
    """The ways in which a row is unlike every sample."""

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


class Edge(Struct, frozen=True, kw_only=True):
    """Rows of a batch that are unlike every sample in one way.

    `input` is empty where no input differs. `if_it_occurs` and `if_it_never_occurs` are what to write in the spec if a
    service can, or cannot, get such rows; the latter is empty where no declaration exists.
    """

    input: str
    kind: OutOfSampleKind
    words: str
    rows: tuple[int, ...]
    if_it_occurs: str = ""
    if_it_never_occurs: str = ""

    def __str__(self) -> str:
        return self.words


def edges_in_words(edges: Iterable[Edge]) -> str:
    """Return the ways in which rows are unlike every sample, such as `an empty row of attention_mask`."""
    return " and ".join(dict.fromkeys(map(str, edges)))


def beyond_calibration(rows: int) -> Edge:
    """Return the edge of rows whose activations exceed the ranges that an INT8 variant was calibrated to."""
    return Edge(
        input="",
        kind=OutOfSampleKind.CALIBRATION,
        words="activations beyond the range that INT8 was calibrated on",
        rows=tuple(range(rows)),
        if_it_occurs="calibration: {source: PATH} with rows like these",
    )


def where_rounded(name: str, rows: Iterable[int]) -> Edge:
    """Return the edge of rows that divide rounded numbers, where a correct conversion may round differently."""
    return Edge(
        input=name,
        kind=OutOfSampleKind.ROUNDED,
        words=f"values of {name} at which a rounded number is divided",
        rows=tuple(rows),
    )


def of_no_table(name: str, rows: int) -> Edge:
    """Return the edge of rows with a text that no lookup table holds."""
    return Edge(
        input=name, kind=OutOfSampleKind.IDS, words=f"texts of {name} that no table holds", rows=tuple(range(rows))
    )
