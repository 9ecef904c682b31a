"""Make the requests that are sent to a server, each with the outputs of the released file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from paritygate.artifact import Artifact
from paritygate.errors import UsageError
from paritygate.files import temporary_folder
from paritygate.models.source import ModelRef
from paritygate.pipelines.compare.models import artifact_model
from paritygate.pipelines.live.judge import AnswerJudge, Difference
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.run.record import record_outputs
from paritygate.signature import Signature
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.limits import limits_of
from paritygate.validate.measure.valid_positions import only_valid, valid_positions
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
    expected: Sequence[Arrays]  # outputs, likewise, with positions masked that do not count
    rows: Sequence[str]  # of each request, for messages
    rows_each: int  # in one request
    judge: AnswerJudge  # under the server's names

    def difference(self, number: int, actual: Arrays) -> Difference:
        """Return how an answer to a request differs, by the release's own limits of a single value."""
        texts = {name: _as_text(array) for name, array in actual.items()}
        return self.judge.difference(texts, self.expected[number], rows=self.rows_each)

    def row_difference(self, number: int, actual: Arrays) -> Difference:
        """Return how an answer to the first row of a request alone differs."""
        texts = {name: _as_text(array) for name, array in actual.items()}
        expected = {name: array[:1] for name, array in self.expected[number].items()}
        return self.judge.difference(texts, expected, rows=1)

    def other_asked(self, number: int, actual: Arrays) -> str:
        """Return the rows of another request that this is the right answer to; empty if there is none."""
        others = (at for at in range(len(self.expected)) if at != number)
        return next((self.rows[at] for at in others if self.difference(at, actual).is_right), "")


def _as_text(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return texts as in the released file, because a server sends bytes."""
    if array.dtype.kind != "O":
        return array
    texts = [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in array.ravel()]
    return np.asarray(texts, dtype=np.str_).reshape(array.shape)


@contextlib.contextmanager
def recorded(
    model: Artifact | ModelRef, rules: GateRules, samples: SampleSource, *, time_limit_s: float, progress: Progress
) -> Iterator[Recording]:
    """Yield the outputs that a model gives here, in its own process; raise ParitygateError if it fails."""
    with temporary_folder("live") as folder:
        yield record_outputs(
            artifact_model(model) if isinstance(model, Artifact) else model,
            samples,
            out=folder / "reference",
            ignored=rules.ignored,
            is_non_finite_declared=rules.is_non_finite_declared,
            time_limit_s=time_limit_s,
            progress=progress,
        )


def questions_of(
    recording: Recording, samples: SampleSource, served: Signature, rules: GateRules, *, rows: int
) -> Questions:
    """Return requests of `rows` rows each, from the samples, in batches of so many, and their recorded outputs.

    `served` has inputs and outputs in the recording's order, under the server's names.

    Raises:
        UsageError: An output has no row of its own for each row of the input. No batch has the rows of a request.
    """
    sides = zip((recording.signature.inputs, recording.signature.outputs), (served.inputs, served.outputs), strict=True)
    names = {own.name: other.name for side in sides for own, other in zip(*side, strict=True)}
    positions = valid_positions(rules.valid_where, [recording.signature])
    inputs: list[Arrays] = []
    expected: list[Arrays] = []
    where: list[str] = []
    row = largest = 0
    batches = (batch for batch in open_samples(samples)() if batch.rows)
    for batch, stored in zip(batches, recording.batches(), strict=False):
        feed = fit_inputs(batch, recording.signature)
        _check_rows(stored.outputs, batch.rows, rules)
        valid = only_valid(stored.outputs, feed, positions)
        for begin in range(0, batch.rows - rows + 1, rows):
            cut = slice(begin, begin + rows)
            inputs.append({names[name]: array[cut] for name, array in feed.items()})
            expected.append({names[name]: array[cut] for name, array in valid.items() if name not in rules.ignored})
            where.append(_places(row + begin + 1, rows))
        row, largest = row + batch.rows, max(largest, batch.rows)
        if len(inputs) >= _MOST:
            break
    if not inputs:
        msg = f"--rows is more than a batch of the samples {samples.text} has (got {rows}, largest: {largest})"
        raise UsageError(msg, hint="give more samples, or fewer rows")
    limits = {names[name]: item for name, item in limits_of(rules.tolerance, recording.profiles.values()).items()}
    judge = AnswerJudge(rules=_by_served_names(rules, names), limits=limits)
    return Questions(inputs=inputs, expected=expected, rows=where, rows_each=rows, judge=judge)


def _check_rows(outputs: Arrays, rows: int, rules: GateRules) -> None:
    for name, array in outputs.items():
        if name not in rules.ignored and (not array.ndim or len(array) != rows):
            msg = f"the output {name!r} has the shape {list(array.shape)} for {rows} rows (expected one value a row)"
            raise UsageError(msg, hint="use a model that returns one value a row")


def _by_served_names(rules: GateRules, names: Mapping[str, str]) -> GateRules:
    """Return the rules of answers under the names that a server has for the outputs."""
    return replace(
        rules,
        decisions=tuple(replace(each, output=names.get(each.output, each.output)) for each in rules.decisions),
        argmax_of={names[label]: names[scores] for label, scores in rules.argmax_of.items() if label in names},
    )


def _places(first: int, rows: int) -> str:
    """Return the place of rows in the samples, because ids may be confidential."""
    return f"row {first} of the samples" if rows == 1 else f"rows {first} to {first + rows - 1} of the samples"
