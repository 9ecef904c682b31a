"""Compare what two stages return, and give one the value of the other: arrays, numbers, texts, and lists and dicts."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from paritygate.validate.words.sentence import Words, say

# A reversed axis, or a factor, explains a difference if no more is left of it.
_EXPLAINED = 1e-4
_MOST_CHANNELS = 4
_INFINITE = float("inf")


def like(value: Any, template: Any) -> Any:  # noqa: ANN401 - what a stage of the user's takes and returns
    """Return a copy of a value in the types of another: tensors of PyTorch for arrays, or the other way round.

    Without a template, or with one of another structure, the value keeps its types.
    """
    if isinstance(value, Mapping):
        return _with_items(value, {name: like(item, _item(template, name)) for name, item in value.items()})
    if isinstance(value, (list, tuple)):
        items = [like(item, _item(template, at)) for at, item in enumerate(value)]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return (tuple if isinstance(template if _is_sequence(template) else value, tuple) else list)(items)
    if not _is_array(value):
        return _copied(value)
    if _is_tensor(template) or (_is_tensor(value) and template is None):
        import torch

        tensor = value.detach().clone() if _is_tensor(value) else torch.from_numpy(np.array(value, order="C"))
        return tensor if template is None else tensor.to(template.device)
    array = np.array(_array(value))
    # A precision that the candidate has chosen is kept: the stage before would have rounded to it.
    is_other = isinstance(template, np.ndarray) and array.dtype.kind == template.dtype.kind == "f"
    return array.astype(template.dtype) if is_other else array


def _with_items(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:  # noqa: ANN401 - as `like`
    """Return a copy of a mapping with other items, of its class if that allows it: a stage may read its attributes."""
    if type(value) is dict:
        return items
    same: Any = _copied(value)
    try:
        for name, item in items.items():
            same[name] = item
    except Exception:  # noqa: BLE001 - a class of the user's may raise anything
        return items
    return same


def _copied(value: Any) -> Any:  # noqa: ANN401 - as `like`
    for copied in (copy.deepcopy, copy.copy):
        with contextlib.suppress(Exception):
            return copied(value)
    return value


def is_plain(value: object) -> bool:
    """Return whether a value is arrays, numbers, texts, and lists and dicts of them: only these are really compared."""
    if isinstance(value, Mapping):
        return all(map(is_plain, value.values()))
    if _is_sequence(value):
        return all(map(is_plain, value))
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return all(isinstance(item, (str, bytes, int, float)) for item in value.flat)
    return value is None or isinstance(value, (str, bytes, int, float, complex, np.generic)) or _is_array(value)


def has_iterator(value: object) -> bool:
    """Return whether a value has a part that can be read only once, such as a generator."""
    if isinstance(value, Mapping):
        return any(map(has_iterator, value.values()))
    return any(map(has_iterator, value)) if _is_sequence(value) else isinstance(value, Iterator)


def has_values(value: object) -> bool:
    """Return whether there is anything to compare."""
    return any(array.size for _, array in _leaves(value))


def difference(actual: Any, expected: Any) -> tuple[float, Words]:  # noqa: ANN401 - as `like`
    """Return the largest relative error of a value, and how it differs; infinity where sizes or kinds differ."""
    ours, theirs = dict(_leaves(actual)), dict(_leaves(expected))
    if ours.keys() != theirs.keys():
        if len(ours) != len(theirs):
            return _INFINITE, say("stage.other_parts", actual=len(ours), expected=len(theirs))
        names = [path.lstrip("/") for path in ours if path not in theirs]
        expected_names = [path.lstrip("/") for path in theirs if path not in ours]
        return _INFINITE, say("stage.other_names", names=names, expected_names=expected_names)
    worst: tuple[float, Words] = (0.0, ())
    for name, wanted in theirs.items():
        error, words = _of_arrays(ours[name], wanted)
        if error > worst[0]:
            worst = error, words
    return worst


def _item(template: Any, key: Any) -> Any:  # noqa: ANN401 - as `like`
    if isinstance(template, Mapping):
        return template.get(key)
    return template[key] if _is_sequence(template) and isinstance(key, int) and key < len(template) else None


def _is_sequence(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    return isinstance(value, (list, tuple))


def _is_tensor(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _is_array(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _array(value: Any) -> NDArray[Any]:  # noqa: ANN401 - an array of any framework, a number or a text
    if _is_tensor(value):
        from paritygate.validate.runners.torch import array_of

        return array_of(value)
    return np.asarray(value.numpy() if callable(getattr(value, "numpy", None)) else value)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, NDArray[Any]]]:  # noqa: ANN401 - as `like`
    if isinstance(value, Mapping):
        for name in sorted(value, key=str):
            yield from _leaves(value[name], f"{path}/{name}")
    elif _is_sequence(value):
        # A list of numbers or texts is one array, as another framework may return it.
        array = _array(value) if value and all(isinstance(item, (int, float, str)) for item in value) else None
        if array is not None:
            yield path, array
            return
        for at, item in enumerate(value):
            yield from _leaves(item, f"{path}/{at}")
    elif value is not None:
        yield path, _array(value)


def _of_arrays(actual: NDArray[Any], expected: NDArray[Any]) -> tuple[float, Words]:
    if actual.shape != expected.shape:
        return _INFINITE, _of_shapes(actual, expected)
    if not _are_numbers(actual) or not _are_numbers(expected):
        count = int(np.sum(actual != expected))
        return float(count > 0), say("stage.other_items", count=count, total=actual.size) if count else ()
    one, two = actual.astype(np.float64), expected.astype(np.float64)
    if actual.dtype.kind != "f" and expected.dtype.kind != "f":
        count = int((one != two).sum())
        if not count:
            return 0.0, ()
        return 1.0, _explained(one, two) or say("stage.other_items", count=count, total=actual.size)
    error = _error(one, two)
    return error, (_explained(one, two) or say("stage.error", share=error)) if error else ()


def _are_numbers(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "fiub" or array.dtype.name == "bfloat16"


def _error(actual: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Return the largest error, relative to a value plus the root mean square of all; NaN equals NaN."""
    is_equal = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if is_equal.all():
        return 0.0
    if not (np.isfinite(actual) == np.isfinite(expected)).all():
        return _INFINITE
    finite = expected[np.isfinite(expected)]
    size = float(np.sqrt(np.square(finite).mean())) if finite.size else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.where(is_equal, 0.0, np.abs(actual - expected) / (np.abs(expected) + size))
    return float(np.nan_to_num(off, nan=_INFINITE, posinf=_INFINITE).max())


def _of_shapes(actual: NDArray[Any], expected: NDArray[Any]) -> Words:
    if actual.ndim == expected.ndim:
        both = tuple(slice(min(sizes)) for sizes in zip(actual.shape, expected.shape, strict=True))
        if actual[both].size and np.array_equal(actual[both], expected[both]):
            return say("stage.cut_off", actual_shape=list(actual.shape), expected_shape=list(expected.shape))
    return say("stage.other_shape", actual_shape=list(actual.shape), expected_shape=list(expected.shape))


def _explained(actual: NDArray[np.float64], expected: NDArray[np.float64]) -> Words:
    """Return the one change that makes the reference's values of these; empty if there is none."""
    for axis, size in enumerate(actual.shape):
        if 1 < size <= _MOST_CHANNELS and _error(np.flip(actual, axis), expected) <= _EXPLAINED:
            return say("stage.reversed", number=axis)
    if actual.size < _MOST_CHANNELS or not (np.isfinite(actual).all() and np.isfinite(expected).all()):
        return ()
    spread = float(expected.std())
    if not spread:
        return ()
    factor = float(((expected - expected.mean()) * (actual - actual.mean())).mean() / spread**2)
    offset = float(actual.mean() - factor * expected.mean())
    if factor and _error(factor * expected + offset, actual) <= _EXPLAINED:
        is_scaled = abs(offset) <= _EXPLAINED * spread
        return say("stage.factor", factor=factor) if is_scaled else say("stage.affine", factor=factor, offset=offset)
    return ()
