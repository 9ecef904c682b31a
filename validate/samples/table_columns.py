"""The columns of a table and what they hold, before any of them becomes an input."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from paritygate.backends import require_backend
from paritygate.text import StrEnum
from paritygate.validate.samples.arrow_tables import DATASET_FILE, columns_of_arrow
from paritygate.validate.samples.columns import ID_COLUMN
from paritygate.validate.samples.csv_table import check_is_even, survey_csv
from paritygate.validate.samples.source import SampleSource
from paritygate.validate.samples.tables import first_object

# Columns with these names hold what a model is trained to predict.
_ANSWERS = re.compile(r"(?:class|gold|label|outcome|target|y)(?:e?s)?(?:_?ids?)?|.*_(?:label|target)s?", re.IGNORECASE)
# Columns with these names number or name the rows.
_IDS = re.compile(
    r"(?i:(?:.*[_ .-])?(?:ids?|nos?|nr|idx|index|key|uuid|guid|row|rownum|row_?number)|unnamed: ?\d+)|.*[a-z]Id"
)


class ColumnKind(StrEnum):
    """The kind of value in each row of a column."""

    NUMBER = "number"
    COMMA = "number with a comma"
    TEXT = "text"
    LIST = "list"
    OTHER = "other"


class Column(Struct, frozen=True, kw_only=True):
    """One column of a table, with the kind of its rows."""

    name: str
    kind: ColumnKind


_KINDS_OF_CSV = {"text": "text", "comma": "number with a comma"}


def is_answer(name: str) -> bool:
    """Return whether a column has the name of something that a model is trained to predict."""
    return _ANSWERS.fullmatch(name) is not None


def is_id(name: str) -> bool:
    """Return whether a column has the name of something that numbers or names the rows."""
    return _IDS.fullmatch(name) is not None


def choices_of_numbers(columns: Iterable[Column]) -> list[list[str]]:
    """Return the choices of columns that can be the numbers of one input, the likeliest first.

    The first has neither ids nor labels, the second has ids, and the last has all numbers.
    """
    numbers = [column.name for column in columns if column.kind is ColumnKind.NUMBER]
    without = [name for name in numbers if not is_answer(name)]
    likely = [name for name in without if not is_id(name)]
    return [list(items) for items in dict.fromkeys((tuple(likely), tuple(without), tuple(numbers))) if items]


def columns_of_table(source: SampleSource) -> tuple[Column, ...]:
    """Return a table's columns without the ids; none of other samples. InputFileError is raised for a corrupt table."""
    path = source.folder / source.text
    if path.suffix == ".csv" and path.is_file():
        table = survey_csv(path)
        for name in table.names if not source.columns else ():
            check_is_even(path, table, name)
        kinds = {name: _KINDS_OF_CSV.get(table.kinds[name], "number") for name in table.names}
    elif path.suffix == ".jsonl" and path.is_file():
        kinds = {name: _kind_of_json(value) for name, value in first_object(path).items()}
    elif (path.suffix == ".parquet" and path.is_file()) or (path / DATASET_FILE).is_file():
        require_backend("pyarrow")
        kinds = columns_of_arrow(path)
    else:
        return ()
    return tuple(Column(name=name, kind=ColumnKind(kind)) for name, kind in kinds.items() if name != ID_COLUMN)


def _kind_of_json(value: object) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | int | float):
        return "number"
    if not isinstance(value, list):
        return "other"
    try:
        array = np.asarray(value)
    except ValueError:
        return "list"
    return "text" if array.dtype.kind == "U" else "list" if array.dtype.kind in "iubf" else "other"
