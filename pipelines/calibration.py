"""The rows that INT8 is calibrated on, and the proof that none of them is compared.

They come from a source of their own, or are held out of the samples. Either way every one of them is looked up among
the rows that are compared, by a digest of its inputs; what is found there is dropped, and said.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from paritygate.convert.conversion import Calibration
from paritygate.convert.int8.settings import DYNAMIC
from paritygate.errors import UsageError
from paritygate.signature import Signature
from paritygate.validate.feeding import fit_inputs
from paritygate.validate.row_digest import digests_of_rows
from paritygate.validate.sample_split import rows_kept
from paritygate.validate.samples import SampleSource, open_samples

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch

__all__ = ["LEAST_ROWS", "CalibrationRequest", "note_of_calibration", "open_calibration"]

# Ranges found on fewer rows say little of those that others have.
LEAST_ROWS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationRequest:
    """What to calibrate on, and how.

    Attributes:
        source: Where the rows come from.
        compared: The rows that will be compared; None where no rows are needed.
        rows: The most rows to take.
        tool: `onnxruntime` or `nncf`.
        method: `minmax`, `entropy`, `percentile` or `dynamic`.
        activations: `int8` or `uint8`.
    """

    source: SampleSource
    compared: SampleSource
    rows: int
    tool: str
    method: str
    activations: str

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "source": self.source.to_json(),
            "compared": self.compared.to_json(),
            "rows": self.rows,
            "tool": self.tool,
            "method": self.method,
            "activations": self.activations,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CalibrationRequest:
        """Return the request that `to_json` wrote."""
        places = {name: SampleSource.from_json(data[name]) for name in ("source", "compared")}
        return cls(**{**data, **places})


def open_calibration(request: CalibrationRequest, signature: Signature) -> Calibration:
    """Return the calibration rows, none of which is among those compared. Reads both sources once.

    Of a source with more rows than are asked for, those with the smallest digests are taken: any of them with the
    same chance, and always the same ones.

    Args:
        request: What to calibrate on.
        signature: What the model takes.

    Raises:
        UsageError: There are too few rows, they do not fit the model, or the model takes a fixed number of rows.
        InputFileError: A source is missing or damaged.
    """
    if request.method == DYNAMIC:
        return _calibration(request, read=lambda: iter(()), facts={"rows": 0})
    _check_rows_are_open(signature)
    read = _fitted(open_samples(request.source), signature)
    compared = _fitted(open_samples(request.compared), signature)
    try:
        found = _smallest(read(), request.rows)
    except UsageError as err:
        msg = f"calibration: {err}"
        raise UsageError(msg, hint=err.hint) from err
    chosen = found.difference(_digests(compared()))
    _check_enough(request, found=len(found), chosen=len(chosen))
    return _calibration(
        request,
        read=lambda: _inputs_of(read(), chosen),
        facts={
            "rows": len(chosen),
            "digest": f"sha256:{hashlib.sha256(b''.join(sorted(chosen))).hexdigest()}",
            "source": _name(request.source),
            "held_out": request.source.split.to_json() if request.source.split else None,
            "dropped_as_compared": len(found) - len(chosen),
        },
    )


def _calibration(
    request: CalibrationRequest,
    *,
    read: Callable[[], Iterator[Mapping[str, NDArray[np.generic]]]],
    facts: Mapping[str, Any],
) -> Calibration:
    return Calibration(
        read=read, tool=request.tool, method=request.method, activations=request.activations, facts=facts
    )


def note_of_calibration(facts: Mapping[str, Any]) -> str | None:
    """Return in words what an artifact was calibrated on, from the facts that its converter recorded."""
    calibration = facts.get("calibration")
    if not calibration or not calibration.get("rows"):
        return None
    held_out = calibration["held_out"]
    whence = (
        f"held out of the samples ({held_out['share']:.0%} of them are not compared)"
        if held_out
        else f"of {calibration['source']}"
    )
    text = f"calibrated on {calibration['rows']} rows {whence}, none of which is compared"
    dropped = calibration["dropped_as_compared"]
    return f"{text}; {dropped} more were dropped because they are" if dropped else text


def _check_rows_are_open(signature: Signature) -> None:
    for spec in signature.inputs:
        size = spec.shape[0] if spec.shape else None
        if isinstance(size, int) and size > 1:
            msg = f"the model takes exactly {size} rows of {spec.name!r} a call, and calibration rows are chosen singly"
            raise UsageError(
                msg, hint="export it with an open batch dim, and fix that by targets: [{name: ..., static: ...}]"
            )


def _fitted(read: Callable[[], Iterator[Batch]], signature: Signature) -> Callable[[], Iterator[Batch]]:
    """Return the same batches with exactly what the model takes: rows are equal if the model cannot tell them apart."""
    return lambda: (replace(batch, inputs=fit_inputs(batch, signature)) for batch in read())


def _digests(batches: Iterable[Batch]) -> Iterator[bytes]:
    return (digest for batch in batches for digest in digests_of_rows(batch))


def _smallest(batches: Iterable[Batch], count: int) -> frozenset[bytes]:
    """Return the `count` smallest different digests of the rows."""
    largest_first: list[int] = []
    kept: set[int] = set()
    for digest in _digests(batches):
        value = int.from_bytes(digest, "big")
        if value in kept:
            continue
        if len(kept) < count:
            heapq.heappush(largest_first, -value)
        elif value < -largest_first[0]:
            kept.remove(-heapq.heapreplace(largest_first, -value))
        else:
            continue
        kept.add(value)
    return frozenset(value.to_bytes(16, "big") for value in kept)


def _check_enough(request: CalibrationRequest, *, found: int, chosen: int) -> None:
    if chosen >= LEAST_ROWS:
        return
    whence = f"held out of {_name(request.source)}" if request.source.split else f"in {_name(request.source)}"
    if found > chosen:
        msg = (
            f"of the {found} calibration rows {whence}, {found - chosen} are among the rows that are compared: "
            f"{chosen} are left (needed: {LEAST_ROWS})"
        )
        raise UsageError(
            msg,
            hint="name rows in calibration.source that are not in samples, or leave it out: then rows are held out",
        )
    msg = f"there are {found} different rows {whence} to calibrate on (needed: {LEAST_ROWS})"
    hint = "name more rows in calibration.source"
    raise UsageError(msg, hint=f"{hint}, or raise calibration.share" if request.source.split else hint)


def _inputs_of(batches: Iterable[Batch], chosen: frozenset[bytes]) -> Iterator[Mapping[str, NDArray[np.generic]]]:
    left = set(chosen)
    for batch in batches:
        is_kept = []
        for digest in digests_of_rows(batch):
            is_kept.append(digest in left)
            left.discard(digest)
        kept = rows_kept(batch, is_kept)
        if kept.rows:
            yield kept.inputs


def _name(source: SampleSource) -> str:
    return f"{source.text} of {source.path}" if source.path else source.text
