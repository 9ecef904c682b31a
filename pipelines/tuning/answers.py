"""Make the requests of a measurement, and compare the server's outputs with those of the released file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.codec import from_data
from paritygate.errors import UsageError, ZeroRowsError
from paritygate.files import temporary_folder
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.release.views.to_serve import ReleaseToServe
from paritygate.pipelines.run.record import record_artifact
from paritygate.pipelines.tuning.request import TuneRequest
from paritygate.precision import Variant
from paritygate.signature import Signature, dtype_name
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES, Limits, Tolerance, limits_for
from paritygate.validate.reference.recording import Recording
from paritygate.validate.samples.feeding import fit_inputs
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]

# The most different requests, sent in turn.
_MOST = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Questions:
    """Requests, each with the released file's outputs."""

    inputs: Sequence[Arrays]  # of each request, under the server's names
    expected: Sequence[Arrays]  # outputs, likewise
    rows: Sequence[str]  # of each request, for messages
    rows_each: int  # in one request
    limits: Mapping[str, Limits]  # by output
    argmax_of: Mapping[str, str] = field(default_factory=dict)  # by integer output, the scores whose argmax it is

    def wrong_in(self, number: int, actual: Arrays) -> str:
        """Return a message on a wrong output and its rows; empty if there is none.

        Every value has to be within the release's own limit of a single value. Labels, text and whole numbers must be
        equal. For a declared argmax, its score may also equal the best within the limits.
        """
        expected = self.expected[number]
        for name, wanted in expected.items():
            words = self._difference(name, actual, wanted, expected)
            if words:
                return f"{self.rows[number]}: {name}: {words}"
        return ""

    def _difference(self, name: str, actual: Arrays, wanted: NDArray[np.generic], expected: Arrays) -> str:
        if name not in actual:
            return f"it is missing (answered: {', '.join(actual) or 'nothing'})"
        answer = _as_text(actual[name])
        if dtype_name(answer.dtype) != dtype_name(wanted.dtype) and not (answer.dtype.kind == wanted.dtype.kind == "U"):
            return f"its dtype is {dtype_name(answer.dtype)}, and the released file's {dtype_name(wanted.dtype)}"
        if answer.shape != wanted.shape:
            return f"its shape is {list(answer.shape)}, and the released file's {list(wanted.shape)}"
        scores = self.argmax_of.get(name)
        if scores is not None and scores in expected:
            return self._label(answer, wanted, np.asarray(expected[scores]), self.limits[scores])
        return self._values(name, answer, wanted)

    def _values(self, name: str, found: NDArray[np.generic], wanted: NDArray[np.generic]) -> str:
        if wanted.dtype.kind not in "fV":
            is_same = np.asarray(found == wanted)
            return "" if bool(is_same.all()) else _first(found, wanted, is_same, "")
        limits = self.limits[name]
        pair = (np.asarray(found, dtype=np.float64), np.asarray(wanted, dtype=np.float64))
        within = limits.is_within(*pair)
        if bool(within.all()):
            return ""
        band = np.broadcast_to(limits.band(pair[1]), pair[1].shape)
        return _first(*pair, within, f" (limit {float(band[~within][0]):.3g})")

    def _label(
        self, found: NDArray[np.generic], wanted: NDArray[np.generic], scores: NDArray[np.generic], limits: Limits
    ) -> str:
        from paritygate.validate.measure.decisions import decide_label

        axis = next((at for at in range(1, scores.ndim) if np.delete(scores.shape, at).tolist() == [*wanted.shape]), -1)
        outside = decide_label((found, wanted), scores, limits, axis).outside
        return _first(found, wanted, ~outside, "") if bool(outside.any()) else ""


def _first(found: NDArray[np.generic], wanted: NDArray[np.generic], is_right: NDArray[np.bool_], limit: str) -> str:
    wrong = ~np.asarray(is_right)
    count = int(np.count_nonzero(wrong))
    return f"{found[wrong][0]} in place of {wanted[wrong][0]}{limit}, {count} of {wanted.size} values"


def _as_text(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return texts as in the released file, because a server sends bytes."""
    if array.dtype.kind != "O":
        return array
    texts = [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in array.ravel()]
    return np.asarray(texts, dtype=np.str_).reshape(array.shape)


def questions_of(request: TuneRequest, released: ReleaseToServe, served: Signature, progress: Progress) -> Questions:
    """Return real rows with the outputs that the released file gives here, in its own process.

    `served` has inputs and outputs in the file's order, under the server's names.

    Raises:
        UsageError: An output has no row of its own for each row of the input.
        ZeroRowsError: No batch of the samples has as many rows as a request.
        ParitygateError: The released file fails on the samples.
    """
    provenance = released.details.manifest.get("provenance") or {}
    spec: Mapping[str, Any] = provenance.get("spec") or {}
    ignored: Mapping[str, str] = provenance.get("ignored_outputs") or {}
    samples = replace(request.samples, batch_size=max(request.rows, 1))
    limits = (provenance.get("tolerances") or {}).get(released.variant)
    tolerance = DEFAULT_TOLERANCES[Variant.parse(released.variant).precision]
    with temporary_folder("tune") as folder:
        recording = record_artifact(
            released.artifact,
            samples,
            out=folder / "reference",
            ignored=ignored,
            is_non_finite_declared=spec.get("non_finite") == "match",
            time_limit_s=request.time_limit_s,
            progress=progress,
        )
        return _cut(
            recording,
            samples,
            served,
            rows=request.rows,
            tolerance=from_data(Tolerance, limits) if limits else tolerance,
            ignored=tuple(ignored),
            argmax_of=spec.get("argmax_of") or {},
        )


def _cut(  # noqa: PLR0913 - both sides of it, and how they are cut
    recording: Recording,
    samples: SampleSource,
    served: Signature,
    *,
    rows: int,
    tolerance: Tolerance,
    ignored: Collection[str],
    argmax_of: Mapping[str, str],
) -> Questions:
    """Return requests of `rows` rows each, from the samples and their recorded outputs."""
    sides = zip((recording.signature.inputs, recording.signature.outputs), (served.inputs, served.outputs), strict=True)
    names = {own.name: other.name for side in sides for own, other in zip(*side, strict=True)}
    inputs: list[Arrays] = []
    expected: list[Arrays] = []
    where: list[str] = []
    row = 0
    batches = (batch for batch in open_samples(samples)() if batch.rows)
    for batch, stored in zip(batches, recording.batches(), strict=False):
        feed = fit_inputs(batch, recording.signature)
        for begin in range(0, batch.rows - rows + 1, rows):
            cut = slice(begin, begin + rows)
            wanted = {}
            for name, array in stored.outputs.items():
                if name in ignored:
                    continue
                if not array.ndim or len(array) != batch.rows:
                    msg = f"the output {name!r} has the shape {list(array.shape)} for {batch.rows} rows: not one a row"
                    raise UsageError(msg, hint="a model is tuned by rows that are answered one by one")
                wanted[names[name]] = array[cut]
            inputs.append({names[name]: array[cut] for name, array in feed.items()})
            expected.append(wanted)
            where.append(_places(row + begin + 1, rows))
        row += batch.rows
        if len(inputs) >= _MOST:
            break
    if not inputs:
        msg = f"no batch of the samples {samples.text} has {rows} rows, which one request is to hold"
        raise ZeroRowsError(msg, hint="give more samples, or ask for fewer with --rows")
    return Questions(
        inputs=inputs,
        expected=expected,
        rows=where,
        rows_each=rows,
        limits={names[n]: limits_for(tolerance, item) for n, item in recording.profiles.items() if n not in ignored},
        argmax_of={names[label]: names[scores] for label, scores in argmax_of.items() if label in names},
    )


def _places(first: int, rows: int) -> str:
    """Return the place of rows in the samples, because ids may be confidential."""
    return f"row {first} of the samples" if rows == 1 else f"rows {first} to {first + rows - 1} of the samples"
