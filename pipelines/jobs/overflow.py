"""The job of finding overflow, run in a child process: one ONNX model in its precision, and in FP32."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.codec import from_data
from paritygate.distance import distance
from paritygate.errors import BackendError, ZeroRowsError
from paritygate.models.source import ModelRef
from paritygate.pipelines.calibration.rows import CalibratedRows, RowChoice
from paritygate.pipelines.process.child import Progress
from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.validate.runners.emulated import open_overflow_watch
from paritygate.validate.runners.opening import open_model
from paritygate.validate.samples.feeding import fit_inputs
from paritygate.validate.samples.samples import SampleSource, open_samples
from paritygate.validate.samples.split import rows_kept

# Kinds of dtypes without overflow: integers, booleans, text.
_NO_FLOATS = frozenset("biuSUO")


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Return how many rows ran and overflowed, how many of those have wrong outputs, and the first of them.

    A row overflows if an output is NaN or infinite where FP32 is finite. It also does if a value on the way is infinite
    and an output is off by more than the limit. Overflow that changes nothing, as under a mask, does not count.
    """
    report("looking for overflow", 0, 0)
    reference = open_model(from_data(ModelRef, args["reference"]), "cpu")
    candidate = open_overflow_watch(Path(args["candidate"]), Precision(args["precision"]))
    spread = {spec.name: _Spread() for spec in reference.signature.outputs}
    broken: list[tuple[str, str]] = []
    suspects: list[tuple[str, str, float]] = []
    rows = 0
    for batch in _some_rows(from_data(SampleSource, args["samples"]), reference.signature, args["most_rows"]):
        expected = reference.run(fit_inputs(batch, reference.signature))
        actual, overflowed = candidate.run_watched(fit_inputs(batch, candidate.signature), batch.rows)
        for name, wanted in expected.items():
            if wanted.dtype.kind in _NO_FLOATS:
                continue
            spread[name].add(wanted)
            off = _off(actual[name], wanted, batch.rows)
            broken += [(batch.ids[row], name) for row in np.flatnonzero(np.isinf(off)).tolist()]
            overflowed_rows = np.flatnonzero(overflowed & np.isfinite(off)).tolist()
            suspects += [(batch.ids[row], name, float(off[row])) for row in overflowed_rows]
        rows += batch.rows
        report("looking for overflow", rows, 0)
    if not rows:
        raise ZeroRowsError("the samples hold no rows", hint="give at least one row")
    hidden = [(row, name) for row, name, off in suspects if off > args["limit"] * max(1.0, spread[name].std)]
    first, output = (*broken, *hidden, ("", ""))[0]
    non_finite = {row for row, _ in broken}
    return {
        "rows": rows,
        "non_finite": len(non_finite),
        "hidden": len({row for row, _ in hidden} - non_finite),
        "first": first,
        "output": output,
    }


class _Spread:
    def __init__(self) -> None:
        self._count, self._mean, self._square = 0, 0.0, 0.0

    def add(self, values: NDArray[Any]) -> None:
        finite = values[np.isfinite(values)].astype(np.float64)
        if not finite.size:
            return
        count, mean = self._count + finite.size, float(finite.mean())
        change = mean - self._mean
        self._square += float(((finite - mean) ** 2).sum()) + change**2 * self._count * finite.size / count
        self._mean += change * finite.size / count
        self._count = count

    @property
    def std(self) -> float:
        """Their standard deviation; 0 of none."""
        return math.sqrt(self._square / self._count) if self._count else 0.0


def _some_rows(source: SampleSource, signature: Signature, most: int) -> Iterator[Batch]:
    """Yield at most `most` rows, those with the smallest digests; whole batches for a model of fixed batch size."""
    read = open_samples(source)
    is_open = not any(spec.shape and isinstance(spec.shape[0], int) for spec in signature.inputs)
    chosen = _chosen(source, signature, most) if is_open else None
    left = most
    for batch in read():
        chosen_rows = batch
        if chosen is not None:
            chosen_rows = rows_kept(batch, [digest in chosen.digests for digest in chosen.digests_of(batch)])
        if not chosen_rows.rows:
            continue
        yield chosen_rows
        left -= chosen_rows.rows
        if left <= 0:
            return


def _chosen(source: SampleSource, signature: Signature, most: int) -> CalibratedRows:
    inputs = tuple(spec.name for spec in signature.inputs)
    rows = CalibratedRows(inputs=inputs, fill=source.fill, digests=frozenset())
    choice = RowChoice(most, besides=())
    for batch in open_samples(source)():
        choice.add(rows.digests_of(batch))
    return CalibratedRows(inputs=inputs, fill=source.fill, digests=choice.digests)


def _off(actual: NDArray[Any], expected: NDArray[Any], rows: int) -> NDArray[np.float64]:
    """Return the largest difference by row: infinite where only one value is finite.

    Values that are not finite in FP32 are left out. An output without rows counts for all rows.
    """
    if actual.shape != expected.shape:
        msg = f"an output has the shape {actual.shape} in emulation, but {expected.shape} in fp32"
        raise BackendError(msg, hint="validate the ONNX variant to see how it differs")
    off = np.where(np.isfinite(expected.astype(np.float64)), distance(actual, expected), 0.0)
    if off.ndim and off.shape[0] == rows:
        return np.asarray(off.max(axis=tuple(range(1, off.ndim)), initial=0.0))
    return np.full(rows, off.max(initial=0.0))
