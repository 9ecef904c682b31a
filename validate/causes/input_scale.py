"""Inputs of another scale: times 255, or normalised once more or not at all."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.models.source import SourceKind
from paritygate.validate.causes.cause import Case, Trial
from paritygate.validate.causes.first_steps import Affine, first_steps
from paritygate.validate.causes.input_order import channel_axis

_BYTE = 255.0
# Most models of pictures were trained with ImageNet's mean and standard deviation, or with half and half.
_MEAN, _STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
_HALF = 0.5
# Values of mean 0 and standard deviation 1, roughly.
_LARGEST_MEAN, _STDS = 3.0, (0.2, 5.0)


def trials(case: Case) -> Iterator[Trial]:
    """Yield changes of scale for each float input: that of the files, then usual ones for its range of values."""
    own = _steps(case.model.path if case.model is not None and case.model.kind is SourceKind.ONNX else None)
    of_reference = _steps(case.reference_file)
    for name, array in case.chosen[0].batch.inputs.items():
        if array.dtype.kind != "f" or not array.ndim:
            continue
        values = np.concatenate([row.batch.inputs[name].ravel() for row in (*case.chosen, *case.others)])
        of_files = _of_files(own.get(name, Affine()), of_reference.get(name, Affine()))
        usual = _usual(values.astype(np.float64), channel_axis(array), array)
        named = ((change, *change.named(is_missing=is_missing)) for change, is_missing in usual)
        for change, kind, numbers in (of_files, *named):
            if not change.is_identity:
                yield Trial(
                    kind=kind,
                    open=functools.partial(case.runner.fed, functools.partial(_changed, name, change)),
                    values={"input": name, **numbers},
                )


def _of_files(candidate: Affine, reference: Affine) -> tuple[Affine, str, Mapping[str, Any]]:
    """Return the change after which the candidate begins as the reference does, with its name and numbers."""
    change = candidate.inverse().after(reference)
    is_again = reference.is_identity or change.inverse().is_like(reference)
    kind, numbers = change.named(is_missing=not is_again)
    if kind == "scaled" or is_again or candidate.is_identity:
        return change, kind, numbers
    own, wanted = (side.inverse().constants() for side in (candidate, reference))
    return change, "other_normalisation", {f"candidate_{key}": own[key] for key in own} | wanted


def _steps(path: Path | None) -> Mapping[str, Affine]:
    return {} if path is None else first_steps(path)


def _changed(name: str, change: Affine, inputs: Arrays) -> Arrays:
    return {**inputs, name: change.of(inputs[name])}


def _usual(values: NDArray[np.float64], axis: int, array: NDArray[np.generic]) -> Iterator[tuple[Affine, bool]]:
    """Yield the usual changes for values of this range, each with whether it is a step that the candidate lacks."""
    low, high, mean, std = values.min(), values.max(), values.mean(), values.std()
    is_bytes = low >= 0 and 1 < high <= _BYTE
    is_normal = low < 0 and abs(mean) < _LARGEST_MEAN and _STDS[0] < std < _STDS[1]
    if not (is_bytes or is_normal or 0 <= low <= high <= 1):
        return
    unit = _BYTE if is_bytes else 1.0
    norms = [Affine.normalising(_HALF * unit, _HALF * unit)]
    if axis and array.shape[axis] == _MEAN.size:
        shape = [-1 if at == axis else 1 for at in range(array.ndim)]
        norms.insert(0, Affine.normalising(_MEAN.reshape(shape) * unit, _STD.reshape(shape) * unit))
    for norm in norms:
        yield norm, True
        yield norm.inverse(), False
    yield from ((change, True) for change in (Affine(scale=_BYTE), Affine(scale=1 / _BYTE)))
    if is_normal:
        yield from ((Affine(scale=_BYTE).after(norm.inverse()), False) for norm in norms)
