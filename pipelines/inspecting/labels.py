"""Find integer outputs of a model that are the argmax of another output, from its outputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays

# Fewer labels may match by chance.
_FEWEST = 16


class LabelsSeen:
    """Compares the integer outputs with the scores, batch by batch."""

    def __init__(self) -> None:
        # The axes of the classes, by the pairs that matched in all batches so far.
        self._axes: dict[tuple[str, str], set[int]] = {}
        self._labels: dict[str, set[int]] = {}
        self._counts: dict[str, int] = {}

    def add(self, outputs: Arrays) -> None:
        """Add the model's outputs for one batch."""
        scores = {name: array for name, array in outputs.items() if array.dtype.kind == "f" and array.size}
        for label, array in outputs.items():
            if array.dtype.kind not in "iu" or not array.size:
                continue
            is_first = label not in self._counts
            self._counts[label] = self._counts.get(label, 0) + array.size
            self._labels.setdefault(label, set()).update(np.unique(array).tolist())
            for name, values in scores.items():
                axes = {axis for axis in range(1, values.ndim) if _is_argmax(array, values, axis)}
                axes_so_far = axes if is_first else self._axes.get((label, name), set())
                self._axes[label, name] = axes_so_far & axes

    def finish(self) -> dict[str, str]:
        """Return the scores of each output that is their argmax, shown by enough labels of several classes.

        If it is the argmax of two outputs, such as logits and their shares, the first one counts.
        """
        scores_by_label: dict[str, str] = {}
        for (label, name), axes in self._axes.items():
            is_shown = self._counts[label] >= _FEWEST and len(self._labels[label]) > 1
            if is_shown and len(axes) == 1:
                scores_by_label.setdefault(label, name)
        return scores_by_label


def _is_argmax(labels: NDArray[np.generic], scores: NDArray[np.generic], axis: int) -> bool:
    # Some libraries keep the axis of the classes, with size 1.
    chosen = scores.argmax(axis, keepdims=labels.ndim == scores.ndim)
    return scores.shape[axis] > 1 and np.array_equal(labels, chosen)
