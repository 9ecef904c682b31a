"""Pictures whose values come in another order: channels reversed, height and width exchanged, another layout."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from paritygate.validate.causes.cause import Case, Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.generic]
    Arrays = Mapping[str, Array]

_RANK = 4
# The axis of the channels: first behind the batch (NCHW), or last (NHWC).
_FIRST, _LAST = 1, 3
_COLOURS = 3
_CHANNELS = frozenset({1, _COLOURS, 4})


def trials(case: Case) -> Iterator[Trial]:
    """Yield reorderings of all inputs that are pictures, [N, C, H, W] or [N, H, W, C]."""
    first = case.chosen[0]
    images = {name: axis for name, array in first.batch.inputs.items() if (axis := channel_axis(array))}
    has_colours = any(first.batch.inputs[name].shape[axis] == _COLOURS for name, axis in images.items())
    changes: dict[str, list[Callable[[Array, int], Array]]] = {
        "channels_reversed": [_reversed] if has_colours else [],
        "sizes_exchanged": [_exchanged],
        # A shape that is refused is that of the other layout, or was read as such.
        "layout": [_in_other_layout] if first.actual is None else [_as_if_reshaped, _as_if_shaped_back],
    }
    for kind, functions in changes.items() if images else ():
        for change in functions:
            yield Trial(
                kind=kind,
                open=functools.partial(case.runner.fed, functools.partial(_changed, change, images)),
                values={"inputs": list(images)},
            )


def channel_axis(array: Array) -> int:
    """Return the axis of the channels of a picture; 0 for any other array."""
    if array.ndim != _RANK or array.dtype.kind not in "fu":
        return 0
    return next((axis for axis in (_FIRST, _LAST) if array.shape[axis] in _CHANNELS), 0)


def _changed(change: Callable[[Array, int], Array], images: Mapping[str, int], inputs: Arrays) -> Arrays:
    changed = {name: np.ascontiguousarray(change(inputs[name], axis)) for name, axis in images.items()}
    return {**inputs, **changed}


def _reversed(array: Array, axis: int) -> Array:
    return np.flip(array, axis)


def _exchanged(array: Array, axis: int) -> Array:
    return np.swapaxes(array, *((2, 3) if axis == _FIRST else (1, 2)))


def _in_other_layout(array: Array, axis: int) -> Array:
    return np.moveaxis(array, axis, _LAST if axis == _FIRST else _FIRST)


def _as_if_reshaped(array: Array, axis: int) -> Array:
    """Return values that come out correctly after a reshape to the other layout in place of a transpose."""
    return _in_other_layout(array.reshape(_in_other_layout(array, axis).shape), _LAST if axis == _FIRST else _FIRST)


def _as_if_shaped_back(array: Array, axis: int) -> Array:
    return _in_other_layout(array, axis).reshape(array.shape)
