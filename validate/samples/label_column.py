"""Find the column of a table that holds the classes which a classifier predicts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paritygate.signature import Signature
from paritygate.validate.samples.samples import SampleSource, open_samples

_PER_CLASS = 2  # the rank of an output with one number per class
_MOST_CLASSES = 20  # where no output has one number per class
_OF_ONE_SCORE = 2
_BATCHES_READ = 64


def without_label(
    samples: SampleSource, signature: Signature | None, table: Sequence[str], numbers: Sequence[str]
) -> list[str]:
    """Return the columns of numbers without that of the labels; none if that is unclear.

    Labels are at one end of the table, and are numbers of the classes that the model predicts. Where both ends are
    like that, or the model is no classifier, nothing shows which column it is.
    """
    ends = [name for name in dict.fromkeys((table[0], table[-1])) if name in numbers]
    labels = _with_classes(samples, ends, _classes(signature))
    return [name for name in numbers if name != labels[0]] if len(labels) == 1 else []


def possible_labels(samples: SampleSource, signature: Signature, numbers: Sequence[str]) -> list[str]:
    """Return the columns at the ends of an input's numbers that may be labels; none where most columns are alike."""
    alike = _with_classes(samples, numbers, _classes(signature))
    return [name for name in alike if name in {numbers[0], numbers[-1]}] if 2 * len(alike) <= len(numbers) else []


def _classes(signature: Signature | None) -> int:
    """Return how many classes a model predicts, at most if that is unknown; 0 if it is no classifier of rows."""
    if signature is None:
        return _MOST_CLASSES
    shapes = [spec.shape or () for spec in signature.outputs]
    widths = [shape[1] for shape in shapes if len(shape) == _PER_CLASS]
    several = next((width for width in widths if isinstance(width, int) and width > 1), 0)
    if any(spec.dtype in {"int64", "int32"} and len(spec.shape or ()) == 1 for spec in signature.outputs):
        return several or _MOST_CLASSES
    # One number a row may be the score of two classes.
    return several or (_OF_ONE_SCORE if 1 in widths or any(len(shape) == 1 for shape in shapes) else 0)


def _with_classes(samples: SampleSource, columns: Sequence[str], classes: int) -> list[str]:
    """Return the columns that hold numbers of so many classes alone."""
    if not columns or not classes:
        return []
    batches = open_samples(replace(samples, columns={name: (name,) for name in columns}, cast={}))()
    seen: dict[str, set[float]] = {name: set() for name in columns}
    for batch in itertools.islice(batches, _BATCHES_READ):
        for name, values in seen.items():
            values |= {float(value) for value in np.unique(batch.inputs[name].astype(np.float64))}
    return [
        name
        for name, values in seen.items()
        if 1 < len(values) <= classes and all(value.is_integer() and 0 <= value <= classes for value in values)
    ]
