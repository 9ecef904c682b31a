"""CSV files as samples: a line of column names, then a row a line; the file is read twice, as a stream."""

from __future__ import annotations

import csv
import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.errors import InputFileError, ParitygateError
from paritygate.validate.samples.columns import ID_COLUMN, inputs_of_columns, wanted_columns
from paritygate.validate.samples.source import SampleSource, no_rows, unreadable
from paritygate.validate.samples.tables import SeenIds, batch_of_rows, in_float32

# A longer line is not a row of a table; the columns of a table fit one.
_LONGEST_LINE = 1 << 24
# In a column of numbers, one cell in so many that is not a number is a slip.
_FEW = 10
_DELIMITERS = (",", ";", "\t")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
# A number with a decimal comma, as spreadsheets write it.
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?")
# A number whose thousands are parted off by commas.
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_BOOLEANS = {"True": True, "true": True, "TRUE": True, "False": False, "false": False, "FALSE": False}
_DTYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_}


class CsvTable(Struct, frozen=True, kw_only=True):
    """The columns of a CSV file, by all of its rows.

    `names` lacks a nameless first column, which holds the row numbers of pandas. `places` are places in a row. `kinds`
    are `int`, `float`, `bool`, `text`, or `comma` for numbers with commas. `gaps` has the line of the first
    empty cell of each column of numbers. `texts` has the line and text of the first cell that is not a number, of each
    other column. `odd` are columns of text with numbers in nearly all cells. A row has `width` cells.
    """

    names: tuple[str, ...]
    places: Mapping[str, int]
    kinds: Mapping[str, str]
    gaps: Mapping[str, int]
    texts: Mapping[str, tuple[int, str]]
    odd: frozenset[str]
    delimiter: str
    width: int


def read_csv(path: Path, source: SampleSource) -> Iterator[Batch]:
    """Yield the rows of a CSV file as batches.

    A column has one dtype in all of them: int64, bool, text, else float32, or that of `source.cast`.

    Raises:
        InputFileError: The file is corrupt or has no column names. Or a row has another length, or a column of numbers
            that is read has an empty cell.
    """
    table = survey_csv(path)
    names = wanted_columns(path, [name for name in table.names if name != ID_COLUMN], source)
    for name in names:
        check_is_even(path, table, name)
        if name in table.gaps:
            line = table.gaps[name]
            msg = f"samples {path}, line {line}: the cell of {name!r} is empty (expected a number, as in other lines)"
            raise InputFileError(msg, hint="give every row a value, as the service does, or leave the column out")
    seen, start = SeenIds(), 0
    with _opened(path) as stream:
        rows = _rows(path, stream, table.delimiter)
        next(rows)
        while chunk := [cells for _, cells in itertools.islice(rows, source.batch_size)]:
            ids = [str(row) for row in range(start, start + len(chunk))]
            if ID_COLUMN in table.places:
                ids = [cells[table.places[ID_COLUMN]] for cells in chunk]
            seen.add(ids, f"samples {path}")
            columns = {name: list(_column(chunk, table.places[name], table.kinds[name])) for name in names}
            yield in_float32(inputs_of_columns(path, batch_of_rows(path, ids, columns, source), source), source)
            start += len(chunk)


def check_is_even(path: Path, table: CsvTable, name: str) -> None:
    """Raise InputFileError if nearly all cells of a column are numbers; the message names the first other cell."""
    if name in table.odd:
        raise no_number(path, table, name)


def no_number(path: Path, table: CsvTable, name: str) -> InputFileError:
    """Return the error of a column that must hold numbers and does not."""
    if name not in table.texts:
        msg = f"samples {path}: every cell of {name!r} is empty (expected a number)"
        return InputFileError(msg, hint=f"leave the column {name!r} out, or give every row a value")
    line, cell = table.texts[name]
    where = f"samples {path}, line {line}: the cell of {name!r} is {cell[:40]!r}"
    if table.kinds[name] == "comma":
        forms = {"thousands": cell.replace(",", ""), "decimal": cell.replace(",", ".")}
        meant = _meanings(cell.strip())
        allowed = " or ".join(forms[each] for each in meant)
        read = (
            f"pandas.read_csv({path.name!r}, sep={table.delimiter!r}, {meant[0]}=',').to_csv('plain.csv', index=False)"
        )
        hint = "write numbers without commas, or do not name the column"
        hint += f"{', or use decimal if the comma parts off decimals' if len(meant) > 1 else ''}: {read}"
        return InputFileError(f"{where} (expected a number without a comma, such as {allowed})", hint=hint)
    if name in table.odd:
        msg = f"{where} (expected a number, as in most lines)"
        return InputFileError(msg, hint=f"correct the cell, or remove the column {name!r} if its cells are text")
    return InputFileError(
        f"{where} (expected a number)", hint=f"leave the column {name!r} out, or convert it to numbers"
    )


def _meanings(cell: str) -> tuple[str, ...]:
    """Return what the comma in a number can part off, as pandas calls it: two things of `1,234`."""
    if not _THOUSANDS.fullmatch(cell):
        return ("decimal",)
    return ("thousands",) if "." in cell or cell.count(",") > 1 else ("thousands", "decimal")


def _column(rows: Sequence[Sequence[str]], place: int, kind: str) -> NDArray[np.generic]:
    cells = [cells[place] for cells in rows]
    if kind not in _DTYPES:
        return np.array(cells, dtype=np.str_)
    bare = [cell.strip() for cell in cells]
    values = [_BOOLEANS[cell] for cell in bare] if kind == "bool" else bare
    return np.array(values).astype(_DTYPES[kind])


def survey_csv(path: Path) -> CsvTable:
    """Return the columns of a CSV file. It reads all of it, once for each state of the file."""
    state = path.stat()
    return _surveyed(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=8)
def _surveyed(path: Path, changed_ns: int, size: int) -> CsvTable:
    del changed_ns, size
    with _opened(path) as stream:
        delimiter = _delimiter(path, stream)
        rows = _rows(path, stream, delimiter)
        _, header = next(rows, (0, []))
        names = _names(path, header)
        kinds = [""] * len(header)
        gaps: dict[int, int] = {}
        texts: dict[int, tuple[int, str]] = {}
        numbers, others = [0] * len(header), [0] * len(header)
        with_point: set[int] = set()
        line = 0
        for line, cells in rows:
            for place, cell in enumerate(cells):
                # A column with that many cells of text is text, so its other cells are not read.
                if kinds[place] == "text" and others[place] > _FEW + numbers[place] // _FEW:
                    continue
                if not cell:
                    gaps.setdefault(place, line)
                    continue
                kind = _kind(cell.strip())
                kinds[place] = _common(kinds[place], kind)
                if kind in {"int", "float"}:
                    numbers[place] += 1
                    with_point |= {place} if kind == "float" else set()
                else:
                    others[place] += 1
                    first = texts.setdefault(place, (line, cell))
                    if kind == "comma" and len(_meanings(first[1].strip())) > len(_meanings(cell.strip())):
                        # This one shows what the commas mean.
                        texts[place] = (line, cell)
    if not line:
        raise no_rows(path)
    few = {place for place in names.values() if 0 < others[place] <= numbers[place] // _FEW}
    # Among numbers with a point, a few commas are slips.
    kinds = ["text" if kind == "comma" and at in few & with_point else kind for at, kind in enumerate(kinds)]
    return CsvTable(
        names=tuple(names),
        places=names,
        kinds={name: kinds[place] or "text" for name, place in names.items()},
        gaps={name: gaps[place] for name, place in names.items() if place in gaps and kinds[place] in _DTYPES},
        texts={name: texts[place] for name, place in names.items() if place in texts and kinds[place] not in _DTYPES},
        odd=frozenset(name for name, place in names.items() if kinds[place] == "text" and place in few),
        delimiter=delimiter,
        width=len(header),
    )


def _kind(cell: str) -> str:
    if _INTEGER.fullmatch(cell):
        return "int"
    if _FLOAT.fullmatch(cell):
        return "float"
    if cell in _BOOLEANS:
        return "bool"
    return "comma" if _COMMA.fullmatch(cell) or _THOUSANDS.fullmatch(cell) else "text"


def _common(one: str, other: str) -> str:
    if not one or one == other:
        return other
    if "comma" in {one, other} and {one, other} <= {"int", "float", "comma"}:
        return "comma"
    return "float" if {one, other} == {"int", "float"} else "text"


def _names(path: Path, header: Sequence[str]) -> dict[str, int]:
    if not header:
        msg = f"samples {path} are empty (expected a line of column names, then one row a line)"
        raise InputFileError(msg, hint="write it again, for example with DataFrame.to_csv")
    names = [name.strip() for name in header]
    if all(_FLOAT.fullmatch(name) for name in names):
        seen = ", ".join(names[:4])
        msg = f"samples {path}: the first line holds numbers (got {seen}, expected the names of the columns)"
        raise InputFileError(msg, hint="put a line with the names of the columns first, such as: x1,x2,x3")
    # DataFrame.to_csv writes the numbers of rows first, without a name.
    places = {name: place for place, name in enumerate(names) if name or place}
    if "" in places:
        msg = f"samples {path}: column {places[''] + 1} has no name in the first line"
        raise InputFileError(msg, hint="give every column a name of its own")
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        msg = f"samples {path} hold two columns {repeated!r}"
        raise InputFileError(msg, hint="give every column a name of its own")
    return places


def _opened(path: Path) -> TextIO:
    # A byte order mark, which spreadsheets write, is not in the first name.
    return path.open(encoding="utf-8-sig", newline="")


def _delimiter(path: Path, stream: TextIO) -> str:
    """Return the commonest delimiter of the first line, and rewind the stream."""
    try:
        first = stream.readline(_LONGEST_LINE)
        stream.seek(0)
    except UnicodeDecodeError as err:
        raise _not_utf8(path, "".join(_DELIMITERS)) from err
    if "\0" in first:
        raise _not_utf8(path, "".join(_DELIMITERS))
    return max(_DELIMITERS, key=first.count)


def _not_utf8(path: Path, delimiters: str) -> InputFileError:
    # Comparisons of arrays do not need it.
    from paritygate.validate.samples.other_encoding import not_utf8

    return not_utf8(path, delimiters)


def _rows(path: Path, stream: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row's line number and cells, without blank lines; the header is first."""
    reader = csv.reader(_lines(path, stream), delimiter=delimiter, strict=True)
    width = 0
    try:
        for cells in reader:
            if not cells:
                continue
            width = width or len(cells)
            if len(cells) != width:
                line = reader.line_num
                msg = f"samples {path}, line {line}: a row of {len(cells)} cells (expected {width}, as in line 1)"
                hint = "give every row one cell for each column, and put cells with a comma into double quotes"
                raise InputFileError(msg, hint=hint)
            yield reader.line_num, cells
    except ParitygateError:
        raise
    except UnicodeDecodeError as err:
        raise _not_utf8(path, delimiter) from err
    except csv.Error as err:
        raise unreadable(path, err) from err


def _lines(path: Path, stream: TextIO) -> Iterator[str]:
    while line := stream.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            msg = f"samples {path}: a line is longer than {_LONGEST_LINE} characters"
            raise InputFileError(msg, hint="write each row on its own line")
        yield line
