"""Open the rows that INT8 is calibrated on, none of them compared, and check that they fit.

They come from their own source, or are held out of the samples. Rows of a source that are also samples, by a digest of
their inputs, are left out and reported. Rows held out are left out of the INT8 variant's comparison only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.batch import Arrays, Batch
from paritygate.codec import to_data
from paritygate.convert.conversion import Calibration
from paritygate.convert.int8.settings import DYNAMIC
from paritygate.errors import UsageError
from paritygate.pipelines.calibration.rows import CalibratedRows, RowChoice
from paritygate.signature import Signature
from paritygate.validate.samples.feeding import check_shapes, fit_inputs
from paritygate.validate.samples.samples import SampleSource, open_samples
from paritygate.validate.samples.split import rows_kept

# Fewer rows show too little of the ranges.
LEAST_ROWS = 16


class CalibrationRequest(Struct, frozen=True, kw_only=True):
    """The source and the method of a calibration.

    `compared` are the rows of the comparison. `rows` is the most to take. `tool` is `onnxruntime` or `nncf`; `method`
    is `minmax`, `entropy`, `percentile` or `dynamic`; `activations` is `int8` or `uint8`.
    """

    source: SampleSource
    compared: SampleSource
    rows: int
    tool: str
    method: str
    activations: str


class OpenCalibration(Struct, frozen=True, kw_only=True):
    """The calibration of a converter, and its rows; None where the method needs none.

    `judged` is the number of the other rows, which judge the variant; about so many, where rows are held out.
    `batches` starts the chosen rows again, with what the samples have beside the inputs.
    """

    calibration: Calibration
    rows: CalibratedRows | None
    judged: int = 0
    batches: Callable[[], Iterator[Batch]] = lambda: iter(())


def open_calibration(request: CalibrationRequest, signature: Signature) -> OpenCalibration:
    """Return the calibration rows; reads both sources once.

    Rows of a separate source that are also samples are dropped, because they would weaken the comparison. Of too many
    rows, those with the smallest digests are taken: each has the same chance, and the choice is repeatable.

    Raises:
        UsageError: There are too few rows, they do not fit the model, are not finite, or the model takes a fixed number
            of rows.
        InputFileError: A source is missing or damaged.
    """
    if request.method == DYNAMIC:
        return OpenCalibration(
            calibration=_calibration(request, read=lambda: iter(()), facts=_unused(request)), rows=None
        )
    _check_rows_are_open(signature)
    read = _checked(open_samples(request.source), signature)
    # Rows held out of the samples are among them by construction.
    compared = (lambda: iter(())) if request.source.split else _fitted(open_samples(request.compared), signature)
    unchosen = CalibratedRows(
        inputs=tuple(spec.name for spec in signature.inputs), fill=_fill(request), digests=frozenset()
    )
    judged = 0

    def digests() -> Iterator[bytes]:
        nonlocal judged
        for batch in compared():
            judged += batch.rows
            yield from unchosen.digests_of(batch)

    choice = RowChoice(request.rows, besides=digests())
    for batch in read():
        choice.add(unchosen.digests_of(batch))
    rows = replace(unchosen, digests=choice.digests)
    _check_enough(request, choice)
    if request.source.split:
        judged = round(choice.rows / request.source.split.share) - len(rows.digests)
    calibration = _calibration(
        request,
        read=lambda: (batch.inputs for batch in _chosen(read(), rows)),
        facts={
            "rows": len(rows.digests),
            "digest": f"sha256:{hashlib.sha256(b''.join(sorted(rows.digests))).hexdigest()}",
            "source": _name(request.source),
            "held_out": to_data(request.source.split) if request.source.split else None,
            "dropped_as_compared": choice.dropped,
        },
    )
    return OpenCalibration(calibration=calibration, rows=rows, judged=judged, batches=lambda: _chosen(read(), rows))


def _calibration(
    request: CalibrationRequest, *, read: Callable[[], Iterator[Arrays]], facts: Mapping[str, Any]
) -> Calibration:
    return Calibration(
        read=read, tool=request.tool, method=request.method, activations=request.activations, facts=facts
    )


def _unused(request: CalibrationRequest) -> dict[str, Any]:
    """Return the facts of a calibration without rows; a source with a split is the samples', so none was given."""
    return {"rows": 0, **({} if request.source.split else {"unused_source": _name(request.source)})}


def note_of_calibration(facts: Mapping[str, Any]) -> str | None:
    """Return a note on an artifact's calibration, from the facts recorded by its converter."""
    calibration = facts.get("calibration")
    if not calibration:
        return None
    if not calibration.get("rows"):
        unused = calibration.get("unused_source")
        return f"calibration.source ({unused}) was not used: with method dynamic no rows are needed" if unused else None
    held_out = calibration["held_out"]
    whence = "of the samples, by which it is not judged" if held_out else f"of {calibration['source']}"
    text = f"calibrated on {calibration['rows']} rows {whence}"
    dropped = calibration["dropped_as_compared"]
    return f"{text}; {dropped} more were left out, as they are among the rows to compare" if dropped else text


def _check_rows_are_open(signature: Signature) -> None:
    for spec in signature.inputs:
        size = spec.shape[0] if spec.shape else None
        if isinstance(size, int) and size > 1:
            msg = f"the model takes exactly {size} rows of {spec.name!r} a call, but calibration chooses single rows"
            raise UsageError(
                msg, hint="export it with an open batch dim, and fix that by targets: [{name: ..., static: ...}]"
            )


def _checked(read: Callable[[], Iterator[Batch]], signature: Signature) -> Callable[[], Iterator[Batch]]:
    """Return the batches fitted to the model, each checked; errors name calibration."""

    def read_checked() -> Iterator[Batch]:
        try:
            for batch in _fitted(read, signature)():
                _check_inputs(batch, signature)
                yield batch
        except UsageError as err:
            raise UsageError(f"calibration: {err}", **err.next_step) from err

    return read_checked


def _fitted(read: Callable[[], Iterator[Batch]], signature: Signature) -> Callable[[], Iterator[Batch]]:
    """Return the batches with exactly the model's inputs."""
    return lambda: (replace(batch, inputs=fit_inputs(batch, signature)) for batch in read())


def _fill(request: CalibrationRequest) -> dict[str, tuple[float, ...]]:
    """Return the padding values of both sources; rows that differ only in padding count as equal."""
    one, other = request.source.pad, request.compared.pad
    return {name: tuple(sorted({one.get(name, 0.0), other.get(name, 0.0)})) for name in sorted({*one, *other})}


def _check_enough(request: CalibrationRequest, choice: RowChoice) -> None:
    chosen = len(choice.digests)
    if chosen >= LEAST_ROWS:
        return
    whence = f"held out of {_name(request.source)}" if request.source.split else f"in {_name(request.source)}"
    if choice.dropped:
        msg = (
            f"of the {choice.rows} calibration rows {whence}, {choice.dropped} are among the compared rows: "
            f"{chosen} are left (expected at least {LEAST_ROWS})"
        )
        raise UsageError(
            msg, hint="name rows in calibration.source that are not in samples, or leave it out to hold out rows"
        )
    msg = f"calibration has {chosen} different rows {whence} (expected at least {LEAST_ROWS})"
    hint = "name more rows in calibration.source"
    raise UsageError(msg, hint=f"{hint}, or raise calibration.share" if request.source.split else hint)


def _chosen(batches: Iterable[Batch], rows: CalibratedRows) -> Iterator[Batch]:
    left = set(rows.digests)
    for batch in batches:
        is_kept = []
        for digest in rows.digests_of(batch):
            is_kept.append(digest in left)
            left.discard(digest)
        chosen = rows_kept(batch, is_kept)
        if chosen.rows:
            yield chosen


def _name(source: SampleSource) -> str:
    return f"{source.text} of {source.path}" if source.path else source.text


def _check_inputs(batch: Batch, signature: Signature) -> None:
    """Check that a fitted batch has the model's shapes and finite values; errors name row and input."""
    if not batch.rows:
        return
    check_shapes(batch, batch.inputs, signature)
    for spec in signature.inputs:
        _check_finite(batch, spec.name)


def _check_finite(batch: Batch, name: str) -> None:
    array = batch.inputs[name]
    if array.dtype.kind != "f":
        return
    is_finite = np.isfinite(array)
    if not is_finite.all():
        msg = f"row {_first_row(batch, ~is_finite)!r} has NaN or infinity in {name!r}, which gives no range"
        raise UsageError(msg, hint="correct the row, or leave it out")


def _first_row(batch: Batch, is_bad: NDArray[np.bool_]) -> str:
    """Return the id of the first row with a bad value; for inputs without rows, that of the first row."""
    if is_bad.shape[:1] != (batch.rows,):
        return batch.ids[0]
    return batch.ids[int(is_bad.reshape(batch.rows, -1).any(axis=1).argmax())]
