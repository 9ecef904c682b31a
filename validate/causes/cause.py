"""A cause is found in files or by a trial: some rows run again with one change. No cause changes a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from paritygate.batch import Arrays, Batch
from paritygate.models.source import ModelRef
from paritygate.validate.gate.candidate import Candidate, ModelCandidate
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.reference.recorded import ExpectedOutputs
from paritygate.validate.samples.split import RowsLeftOut

if TYPE_CHECKING:
    from paritygate.validate.runners.runner import Runner


# Each of these modules offers `find(case)`, which yields causes that need no trial, in this order.
FACTS: Mapping[str, str] = {
    "stages": "paritygate.validate.causes.stages",
    "training_mode": "paritygate.validate.causes.training_mode",
    "intermittent": "paritygate.validate.causes.intermittent",
}
# Each of these modules offers `trials(case)`, which yields those that fit the inputs.
TRIALS: Mapping[str, str] = {
    "input_order": "paritygate.validate.causes.input_order",
    "optimisations": "paritygate.validate.causes.optimisations",
    "input_scale": "paritygate.validate.causes.input_scale",
}
# As `FACTS`, for what is looked at only where nothing else explains the difference.
LAST: Mapping[str, str] = {
    "row_factors": "paritygate.validate.causes.row_factors",
    "other_weights": "paritygate.validate.causes.other_weights",
}


class Clock:
    """Limit the processor time for looking for causes; `samples` and `opening` are the seconds these took before."""

    def __init__(self, seconds: float, *, samples: tuple[float, int], opening: float, deadline: float) -> None:
        # Another program on the machine takes no time from it.
        self._end = time.process_time() + seconds
        self._samples, self._opening, self._deadline = samples, opening, deadline

    def has(self, rows: int, *, is_opened: bool = False) -> bool:
        """Return whether so many rows can be run in what is left, and the candidate opened once more."""
        spent, of_rows = self._samples
        needed = spent * rows / max(1, of_rows) + is_opened * self._opening
        return time.process_time() + needed <= self._end and time.monotonic() + needed <= self._deadline


class Row(Struct, frozen=True, kw_only=True):
    """One row, repeated to fill a fixed batch; `actual` is None where the candidate refuses it."""

    row_id: str
    batch: Batch
    expected: Arrays
    actual: Arrays | None


class Case(Struct, frozen=True, kw_only=True):
    """A comparison whose samples fail, and what can run once more.

    `model` is None for recorded outputs, and `reference_file` if that is not an ONNX file. `open_plain` opens
    the candidate without graph optimisations; it is None where the runtime does not offer that. `open_reference`
    returns None if only outputs are at hand. `is_asked` allows trials. `outputs` are those whose rows fail, lists of
    detections included. The rows `chosen` select a trial, and `others` confirm it.
    """

    result: GateResult
    candidate: Candidate
    model: ModelRef | None
    expected: ExpectedOutputs
    reference_file: Path | None
    read: Callable[[], Iterator[Batch]]
    rules: GateRules
    left_out: RowsLeftOut
    workspace: Path
    open_plain: Callable[[], Candidate] | None
    open_reference: Callable[[], Runner | None]
    clock: Clock
    is_asked: bool = True
    outputs: frozenset[str] = frozenset()
    chosen: tuple[Row, ...] = ()
    others: tuple[Row, ...] = ()

    @property
    def runner(self) -> ModelCandidate:
        """Return the candidate as a model that runs."""
        assert isinstance(self.candidate, ModelCandidate)  # noqa: S101 - trials are made with models alone
        return self.candidate


class Trial(Struct, frozen=True, kw_only=True):
    """One change to the candidate: its opener, the values of its message, and whether it loads the model again."""

    kind: str
    open: Callable[[], Candidate]
    values: Mapping[str, Any] = field(default_factory=dict)
    is_opened: bool = False
