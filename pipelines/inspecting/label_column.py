"""Find the column of a table that holds the classes which a classifier predicts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paritygate.signature import Signature
from paritygate.validate.samples.samples import SampleSource, open_samples

_PER_CLASS = 2  # the rank of an output with one number per class
_MOST_CLASSES = 20  # where only the label itself is an output
_BATCHES_READ = 64


def without_label(
    samples: SampleSource, signature: Signature | None, table: Sequence[str], numbers: Sequence[str]
) -> list[str]:
    """Return the columns of numbers without that of the labels; none if that is unclear.

    Labels are at one end of the table, and are numbers of the classes that the model predicts. Where both ends are
    like that, or the model is no classifier, nothing shows which column it is.
    """
    classes = _classes(signature)
    if not classes or not numbers:
        return []
    ends = [name for name in dict.fromkeys((table[0], table[-1])) if name in numbers]
    labels = [name for name in ends if _holds_classes(samples, name, classes)]
    return [name for name in numbers if name != labels[0]] if len(labels) == 1 else []


def _classes(signature: Signature | None) -> int:
    """Return how many classes a model predicts; 0 if it is no classifier."""
    outputs = () if signature is None else signature.outputs
    if not any(spec.dtype in {"int64", "int32"} and len(spec.shape or ()) == 1 for spec in outputs):
        return 0
    widths = [spec.shape[1] for spec in outputs if spec.shape is not None and len(spec.shape) == _PER_CLASS]
    return next((width for width in widths if isinstance(width, int) and width > 1), _MOST_CLASSES)


def _holds_classes(samples: SampleSource, column: str, classes: int) -> bool:
    batches = open_samples(replace(samples, columns={column: (column,)}))()
    seen: set[float] = set()
    for batch in itertools.islice(batches, _BATCHES_READ):
        seen |= {float(value) for value in np.unique(batch.inputs[column].astype(np.float64))}
    return 1 < len(seen) <= classes and all(value.is_integer() and 0 <= value <= classes for value in seen)
