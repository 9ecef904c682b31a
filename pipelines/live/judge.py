"""Judges the answers to one request by those of the released file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.distance import distance
from paritygate.errors import UsageError
from paritygate.pipelines.report.figures import share as share_words
from paritygate.signature import dtype_name, is_float_dtype
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.flips import decide, decide_label, label_axes
from paritygate.validate.measure.limits import Limits
from paritygate.validate.measure.valid_positions import like

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """The rows of one request, each array of shape (rows,)."""

    flipped: NDArray[np.bool_]  # the answer is another
    outside: NDArray[np.bool_]  # and the limits cannot explain it
    beyond: NDArray[np.bool_]  # a float value is beyond its limit, and the answer does not count as another
    noise: NDArray[np.bool_]  # the released file answers it in two ways
    broken: str = ""  # why the answer has another form; then every row is outside

    @property
    def share(self) -> float | None:
        """The share of changed rows outside of the band; None where every row is noise."""
        judged = ~self.noise
        return float(np.mean(self.outside[judged])) if judged.any() else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """How one answer differs from that of the released file; it names no value."""

    flips: int = 0  # rows whose answer is another, whether or not the limits explain it
    share: float = 0.0  # the largest difference as a share of the limit of its value; infinite without a limit
    output: str = ""  # the first one that is wrong; empty for a right answer
    wrong: int = 0  # its values beyond the limits
    values: int = 0  # all of its values
    broken: str = ""  # what is wrong with the form of the answer

    @property
    def is_right(self) -> bool:
        """Whether the answer has the right form, and each value is within its limit."""
        return not (self.output or self.broken)

    def __str__(self) -> str:
        if self.broken or self.is_right:
            return self.broken
        largest = f", by {share_of_limit(self.share)} at most" if math.isfinite(self.share) else ""
        return f"{self.output} is wrong in {self.wrong} of {self.values} values{largest}"


def share_of_limit(share: float | None) -> str:
    """Return the text of a largest difference; None is a difference without a limit."""
    if share is None:
        return "a difference without a limit"
    words = share_words(share, 1.0)
    return f"{words} its limit" if words.endswith("times") else f"{words} of its limit"


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerJudge:
    """The rules of a release for one answer at a time."""

    rules: GateRules
    limits: Mapping[str, Limits]  # by output that is not compared exactly

    def judge(self, actual: Arrays, expected: Arrays, again: Arrays, *, rows: int) -> Answered:
        """Return which rows have another answer.

        `expected` and `again` are two answers of the released file to the same request, with positions masked that do
        not count.
        """
        noise = self._changed(like(again, expected), expected, rows)[0]
        broken = _broken(actual, expected)
        if broken:
            every = np.ones(rows, dtype=np.bool_)
            return Answered(flipped=every, outside=every, beyond=~every, noise=noise, broken=broken)
        flipped, outside = self._changed(like(actual, expected), expected, rows)
        steady = ~noise & ~self._rows_beyond(like(again, expected), expected, rows)
        beyond = self._rows_beyond(like(actual, expected), expected, rows) & ~outside & steady
        return Answered(flipped=flipped & ~noise, outside=outside & ~noise, beyond=beyond, noise=noise)

    def difference(self, actual: Arrays, expected: Arrays, *, rows: int) -> Difference:
        """Return how an answer differs, where every value has to be within its limit, also beside a decision.

        `expected` is as in `judge`. Labels, text and whole numbers have to be equal; the argmax of scores may be
        another one that the limits explain.
        """
        broken = _broken(actual, expected)
        if broken:
            return Difference(flips=rows, share=math.inf, broken=broken)
        actual = like(actual, expected)
        flips = int(self._changed(actual, expected, rows)[0].sum())
        largest, first = 0.0, Difference()
        for name, wanted in expected.items():
            beyond, share = self._beyond(name, actual[name], expected)
            largest = max(largest, share)
            if first.is_right and beyond.any():
                first = Difference(output=name, wrong=int(np.count_nonzero(beyond)), values=wanted.size)
        return Difference(flips=flips, share=largest, output=first.output, wrong=first.wrong, values=first.values)

    def _beyond(self, name: str, actual: NDArray[np.generic], expected: Arrays) -> tuple[NDArray[np.bool_], float]:
        """Return which values of an output are wrong, and the largest difference as a share of its limit."""
        wanted = expected[name]
        if name not in self.limits:
            wrong = self._of_output(name, actual, expected)[1]
            return wrong, math.inf if wrong.any() else 0.0
        left_out = np.ma.getmaskarray(wanted)
        found, right = _wide(actual), _wide(wanted)
        limits = self.limits[name]
        beyond = self._values_beyond(name, actual, wanted)
        counts = np.isfinite(found) & np.isfinite(right) & ~left_out
        band = np.broadcast_to(limits.band(right), right.shape)[counts]
        apart = distance(found[counts], right[counts])
        shares = np.divide(apart, band, out=np.where(apart > 0, math.inf, 0.0), where=band > 0)
        # A substitute of a fill value is right, although its limit is 0.
        explained = shares[~np.isinf(shares) | beyond[counts]]
        largest = float(explained.max()) if explained.size else 0.0
        return beyond, math.inf if (beyond & ~counts).any() else largest

    def _changed(self, actual: Arrays, expected: Arrays, rows: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows flip, and which do so outside of the band, in any output."""
        flipped, outside = (np.zeros(rows, dtype=np.bool_) for _ in range(2))
        for name, wanted in expected.items():
            flips, beyond = self._of_output(name, actual[name], expected)
            flipped |= _by_row(name, flips, rows)
            outside |= _by_row(name, beyond, rows) | _by_row(name, _lost(actual[name], wanted), rows)
        return flipped | outside, outside

    def _of_output(
        self, name: str, actual: NDArray[np.generic], expected: Arrays
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        wanted = expected[name]
        decision = next((item for item in self.rules.decisions if item.output == name), None)
        if decision is not None:
            flips = decide(decision, actual, wanted, self.limits[name])
            return flips.flipped, flips.outside
        scores = self.rules.argmax_of.get(name)
        if scores is not None and scores in expected:
            axis = next(iter(label_axes(expected[scores].shape, wanted.shape)), -1)
            flips = decide_label((actual, wanted), expected[scores], self.limits[scores], axis)
            return flips.flipped, flips.outside
        if name not in self.limits:
            differs = np.ma.filled(np.ma.asarray(actual) != wanted, fill_value=False)
            return differs, differs
        if self.rules.decisions or self.rules.argmax_of:
            # What the service acts on are the decisions.
            none = np.zeros(wanted.shape, dtype=np.bool_)
            return none, none
        beyond = self._values_beyond(name, actual, wanted)
        return beyond, beyond

    def _rows_beyond(self, actual: Arrays, expected: Arrays, rows: int) -> NDArray[np.bool_]:
        beyond = np.zeros(rows, dtype=np.bool_)
        for name in expected.keys() & self.limits.keys():
            beyond |= _by_row(name, self._values_beyond(name, actual[name], expected[name]), rows)
        return beyond

    def _values_beyond(self, name: str, actual: NDArray[np.generic], wanted: NDArray[np.generic]) -> NDArray[np.bool_]:
        beyond: NDArray[np.bool_] = ~self.limits[name].is_within(_wide(actual), _wide(wanted))
        return beyond & ~np.ma.getmaskarray(wanted)


def check_judgeable(rules: GateRules, dtypes: Mapping[str, str], command: str) -> None:
    """Raise UsageError where a command cannot judge answers one by one; `dtypes` are those of the outputs."""
    if rules.matches:
        msg = f"the release matches detections, which {command} does not judge"
        raise UsageError(msg, hint="compare the server on samples: convert-and-validate compare")
    floats = [name for name, dtype in dtypes.items() if is_float_dtype(dtype) and name not in rules.ignored]
    for decision in rules.decisions:
        if decision.output not in floats:
            there_are = ", ".join(floats) or "none"
            msg = f"decision {decision} is not on a compared float output (there are: {there_are})"
            raise UsageError(msg, hint="name one of these outputs with --decision")


def _wide(array: NDArray[np.generic]) -> NDArray[Any]:
    # Floats may be of a dtype that NumPy does not know, and integers too large for float64.
    return np.asarray(array, dtype=None if array.dtype.kind in "iu" else np.float64)


def _lost(actual: NDArray[np.generic], expected: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return where an answer is not finite and that of the released file is."""
    if expected.dtype.kind not in "fV":
        return np.zeros(expected.shape, dtype=np.bool_)
    lost: NDArray[np.bool_] = np.isfinite(_wide(expected)) & ~np.isfinite(_wide(actual))
    lost[np.ma.getmaskarray(expected)] = False
    return lost


def _by_row(name: str, changed: NDArray[np.bool_], rows: int) -> NDArray[np.bool_]:
    if not changed.ndim or len(changed) != rows:
        msg = f"the output {name!r} has the shape {list(changed.shape)} for {rows} rows (expected one value a row)"
        raise UsageError(msg, hint="leave it out of the comparison: outputs: {NAME: {ignore: REASON}} in the spec")
    by_row: NDArray[np.bool_] = np.logical_or.reduce(changed.reshape(rows, -1), axis=1)
    return by_row


def _broken(actual: Arrays, expected: Arrays) -> str:
    """Return what is wrong with the form of an answer; empty if nothing is."""
    for name, wanted in expected.items():
        if name not in actual:
            return f"{name} is missing"
        found = actual[name]
        is_text = found.dtype.kind in "OU" and wanted.dtype.kind in "OU"
        if dtype_name(found.dtype) != dtype_name(wanted.dtype) and not is_text:
            return f"{name} has the dtype {dtype_name(found.dtype)} instead of {dtype_name(wanted.dtype)}"
        if found.shape != wanted.shape:
            return f"{name} has the shape {list(found.shape)} instead of {list(wanted.shape)}"
    return ""
