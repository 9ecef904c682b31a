"""Find the column of a table that holds the classes which a classifier predicts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from paritygate.signature import Signature, TensorSpec, is_float_dtype
from paritygate.validate.samples.samples import SampleSource, open_samples
from paritygate.validate.samples.table_columns import Column, ColumnKind, is_id

_PER_CLASS = 2  # the rank of an output with one number per class
_MOST_CLASSES = 20  # where no output has one number per class
_OF_ONE_SCORE = 2
_BATCHES_READ = 64


def without_label(
    samples: SampleSource, signature: Signature | None, table: Sequence[Column], numbers: Sequence[str]
) -> list[str]:
    """Return the columns of numbers without that of the labels; none if it is not certain which one that is.

    Labels are at one end of the table, and are the numbers of all classes that the model predicts. The other end must
    not be able to hold labels, whatever its numbers or texts.
    """
    classes = _certain_classes(signature)
    if not classes:
        return []
    known = [column.name for column in table if not is_id(column.name)] or [table[0].name]
    lists = {column.name for column in table if column.kind in {ColumnKind.LIST, ColumnKind.OTHER}}
    ends = [name for name in dict.fromkeys((table[0].name, table[-1].name, known[0], known[-1])) if name not in lists]
    able = {name: values for name, values in _values(samples, ends).items() if _can_be_labels(values, max(classes))}
    certain = [name for name, values in able.items() if name in numbers and len(values) in classes]
    if len(able) != 1 or not certain or able[certain[0]] != {*range(len(able[certain[0]]))}:
        return []
    return [name for name in numbers if name != certain[0]]


def possible_labels(samples: SampleSource, signature: Signature, numbers: Sequence[str]) -> list[str]:
    """Return the columns at the ends of an input's numbers that may be labels; none where most columns are alike."""
    # A single column may be a list, and is all that the input has.
    classes = _possible_classes(signature) if len(numbers) > 1 else 0
    read = _values(samples, numbers) if classes else {}
    alike = [
        name
        for name, values in read.items()
        if 1 < len(values) <= classes and _are_whole(values) and all(0 <= value <= classes for value in values)
    ]
    return [name for name in alike if name in {numbers[0], numbers[-1]}] if 2 * len(alike) <= len(numbers) else []


def _certain_classes(signature: Signature | None) -> range:
    """Return how many classes a model can have that is a classifier of rows for certain; none for any other.

    One number a row may be a price as well as a score, so it shows nothing.
    """
    if signature is None:
        return range(0)
    shapes = [(*(spec.shape or ()), 1, 1)[:_PER_CLASS] for spec in signature.outputs if _is_of_rows(spec)]
    widths = {shape[1] for shape in shapes}
    several = widths - {1}
    if len(several) == 1 and isinstance(width := several.pop(), int):
        return range(width, width + 1) if width > 1 and (1 not in widths or _has_labels(signature)) else range(0)
    return range(2, _MOST_CLASSES + 1) if not several and _has_labels(signature) else range(0)


def _possible_classes(signature: Signature) -> int:
    """Return how many classes a model predicts, at most if that is unknown; 0 if it is not a classifier of rows."""
    shapes = [spec.shape or () for spec in signature.outputs]
    widths = [shape[1] for shape in shapes if len(shape) == _PER_CLASS]
    several = next((width for width in widths if isinstance(width, int) and width > 1), 0)
    if _has_labels(signature):
        return several or _MOST_CLASSES
    # One number a row may be the score of two classes.
    return several or (_OF_ONE_SCORE if 1 in widths or any(len(shape) == 1 for shape in shapes) else 0)


def _has_labels(signature: Signature) -> bool:
    return any(spec.dtype in {"int64", "int32"} and len(spec.shape or ()) == 1 for spec in signature.outputs)


def _is_of_rows(spec: TensorSpec) -> bool:
    """Return whether an output has one float, or several, per row."""
    return is_float_dtype(spec.dtype) and len(spec.shape or ()) in {1, _PER_CLASS}


def _can_be_labels(values: set[Any], classes: int) -> bool:
    """Return whether values can be classes, by number or name, or the probability of one."""
    probabilities = all(not isinstance(value, str) and 0 <= value <= 1 for value in values)
    return len(values) <= classes or probabilities


def _are_whole(values: set[Any]) -> bool:
    return all(not isinstance(value, str) and value.is_integer() for value in values)


def _values(samples: SampleSource, columns: Sequence[str]) -> dict[str, set[Any]]:
    """Return the different values of columns: numbers, or texts."""
    seen: dict[str, set[Any]] = {name: set() for name in columns}
    if not columns:
        return seen
    batches = open_samples(replace(samples, columns={name: (name,) for name in columns}, cast={}, pad={}))()
    for batch in itertools.islice(batches, _BATCHES_READ):
        for name, values in seen.items():
            array = batch.inputs[name]
            values |= {*np.unique(array if array.dtype.kind == "U" else array.astype(np.float64)).tolist()}
    return seen
