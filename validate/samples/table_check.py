"""Checks that a table has the columns that a model takes, before any of its rows is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from paritygate.errors import InputFileError, UsageError
from paritygate.signature import Signature, TensorSpec
from paritygate.text import counted, first_of, hint_of_meant
from paritygate.validate.samples.columns import wanted_columns
from paritygate.validate.samples.csv_table import no_number, survey_csv
from paritygate.validate.samples.label_column import without_label
from paritygate.validate.samples.source import SampleSource
from paritygate.validate.samples.table_columns import Column, ColumnKind, choices_of_numbers, columns_of_table

_ROW_OF_NUMBERS = 2
_SHOWN = 8


def check_table(
    source: SampleSource,
    specs: Sequence[TensorSpec],
    *,
    can_be_renamed: bool = False,
    signature: Signature | None = None,
) -> None:
    """Check that a table has the columns that are named, and that they can be the inputs of a model.

    `specs` are the model's inputs by the names of the samples; empty where unknown. `signature` is for hints. With
    `can_be_renamed`, an input may be none of the model's. Samples that are no table pass.

    Raises:
        UsageError: Columns are named for an unknown input, or an input needs columns that are not named.
        InputFileError: A column is missing, or is text where numbers are expected.
    """
    columns = {column.name: column for column in columns_of_table(source)}
    if not columns:
        return
    by_name = {spec.name: spec for spec in specs}
    if by_name and not can_be_renamed:
        check_inputs_named(source, list(by_name))
    path = source.folder / source.text
    wanted_columns(path, list(columns), source)
    # Reading the first rows shows what another kind of table holds.
    chosen = source.columns or {name: (name,) for name in columns if name in by_name and path.suffix == ".csv"}
    for name, parts in chosen.items():
        spec = by_name.get(name)
        if len(parts) > 1 or (spec is not None and spec.dtype != "string"):
            _check_numbers(path, source, name, [columns[part] for part in parts])
        if spec is not None and source.columns:
            _check_width(source, spec, parts, columns, signature)
    if not source.columns:
        _check_side_by_side(source, by_name, columns, signature)


def check_inputs_named(source: SampleSource, names: Sequence[str]) -> None:
    """Raise UsageError where columns are named for any other input than the model's."""
    for name in source.columns:
        if name not in names:
            listed = ", ".join(names)
            msg = f"{source.columns_option} names {name!r}, which is not an input of the model (expected: {listed})"
            raise UsageError(msg, hint=hint_of_meant(name, names, "name one of its inputs"))


def _check_numbers(path: Path, source: SampleSource, name: str, parts: Sequence[Column]) -> None:
    for part in parts:
        if part.kind in {ColumnKind.TEXT, ColumnKind.COMMA} and path.suffix == ".csv":
            raise no_number(path, survey_csv(path), part.name)
        if part.kind is ColumnKind.TEXT or (len(parts) > 1 and part.kind is not ColumnKind.NUMBER):
            kind = part.kind.value
            msg = (
                f"samples {path}: the column {part.name!r} cannot be a part of {name!r} (got {kind}, expected numbers)"
            )
            raise InputFileError(msg, hint=f"leave {part.name!r} out of {source.columns_option}")


def _check_width(
    source: SampleSource,
    spec: TensorSpec,
    parts: Sequence[str],
    columns: Mapping[str, Column],
    signature: Signature | None,
) -> None:
    """Check that as many columns are named as an input is wide; the hint names them all."""
    width = spec.shape[1] if spec.shape is not None and len(spec.shape) == _ROW_OF_NUMBERS else None
    is_list = len(parts) == 1 and columns[parts[0]].kind is not ColumnKind.NUMBER
    if is_list or not isinstance(width, int) or len(parts) == width:
        return
    msg = f"{source.columns_option} names {counted(len(parts), 'column')} for {spec.name!r}, which the model has as "
    msg += f"{spec} (expected: {counted(width, 'column')})"
    choices = [choice for choice in choices_of_numbers(columns.values()) if len(choice) == width]
    raise UsageError(msg, hint=hint_of_columns(source, spec.name, choices or [parts], width, signature))


def _check_side_by_side(
    source: SampleSource, by_name: Mapping[str, TensorSpec], columns: Mapping[str, Column], signature: Signature | None
) -> None:
    """Raise if the one missing input can consist of unused columns; the hint names them."""
    missing = [spec for name, spec in by_name.items() if name not in columns]
    unused = [column for name, column in columns.items() if name not in by_name]
    if len(missing) != 1 or len(unused) <= 1 or not is_row_of_numbers(missing[0]):
        return
    spec = missing[0]
    width = spec.shape[1] if spec.shape is not None else None
    choices = choices_of_numbers(unused)
    check_points(source, unused, choices, width)
    if choices:
        seen = first_of(list(columns), _SHOWN)
        msg = f"samples {source.text} have no column {spec.name!r}, which the model expects as {spec} (seen: {seen})"
        raise UsageError(msg, hint=hint_of_columns(source, spec.name, choices, width, signature))


def is_row_of_numbers(spec: TensorSpec) -> bool:
    """Return whether an input can consist of columns side by side."""
    return spec.dtype not in {"string", "bool"} and (spec.shape is None or len(spec.shape) == _ROW_OF_NUMBERS)


def check_points(
    source: SampleSource, unused: Sequence[Column], choices: Sequence[Sequence[str]], width: int | str | None
) -> None:
    """Raise InputFileError if an input can only be complete with a column of numbers with commas."""
    with_comma = next((column for column in unused if column.kind is ColumnKind.COMMA), None)
    if with_comma is not None and not any(len(choice) == width for choice in choices):
        path = source.folder / source.text
        raise no_number(path, survey_csv(path), with_comma.name)


def hint_of_columns(
    source: SampleSource,
    name: str,
    choices: Sequence[Sequence[str]],
    width: int | str | None,
    signature: Signature | None,
) -> str:
    """Return how to name the columns of an input: the likeliest of `choices` with its width, if there is one.

    One column too many may be that of the labels.
    """
    is_more = len(choices[0]) - 1 == width
    unlabelled = without_label(source, signature, columns_of_table(source), choices[0]) if is_more else []
    # Any other part of the columns is no example: it may hold what the model predicts, and would pass.
    fitting = (choice for choice in (*choices, unlabelled) if len(choice) == width)
    shown = ",".join(next(fitting, ["COLUMN", "COLUMN"]))
    how = f"{source.columns_option}: {{{name}: [{shown}]}}" if source.key else f"--columns {name}={shown}"
    return f"name the columns that it takes, in the order of the training: {how}"
