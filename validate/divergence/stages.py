"""Name the stage at which two functions of several stages part, such as pre-processing, model and post-processing.

Each stage of the candidate runs on the value that the reference has there. So a stage is judged by itself, and no fault
is hidden by an earlier one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from paritygate.errors import BackendError, UsageError
from paritygate.validate.divergence.result import (
    CANNOT_TELL,
    CONTRACT,
    EQUAL,
    LIKELY,
    LOCATED,
    PROVEN,
    Divergence,
    Located,
)
from paritygate.validate.divergence.stage_values import difference, has_iterator, has_values, is_plain, like
from paritygate.validate.runners.endpoint.stages import Stage
from paritygate.validate.runners.runner import reason_of
from paritygate.validate.tensors.inner_values import Feed
from paritygate.validate.words.sentence import Words, say

# Stages of correct conversions differ by rounding up to this relative error.
_AGREE = 1e-4
# The operator of a place that is a stage.
STAGE = "stage"


def locate_stage(reference: Sequence[Stage], candidate: Sequence[Stage], feeds: Sequence[Feed]) -> Divergence:
    """Return the stages of the candidate that return other values for what the reference has there.

    Only stages count that change what the last one returns. They are proven if the candidate is right once the
    reference's stages are in their place, and all stages return values that can be compared.

    Raises:
        UsageError: The stages of one side have a name twice, or one returns an iterator.
        BackendError: A stage of the reference fails.
    """
    names, wanted = ([stage.name for stage in stages] for stages in (candidate, reference))
    if len(set(wanted)) < len(wanted):
        msg = f"the reference has the same stage twice (got {', '.join(wanted)}; expected a different name for each)"
        raise UsageError(msg, hint="give each stage a name of its own")
    if names != wanted:
        return Divergence(outcome=CONTRACT, words=say("stage.other_stages", names=names, expected_names=wanted))
    batches = [_Batch(reference, candidate, feed) for feed in feeds]
    error = max(batch.error for batch in batches)
    if error <= _AGREE:
        if not any(batch.has_result for batch in batches):
            return Divergence(outcome=CANNOT_TELL, words=say("stage.nothing", name=names[-1]), tensors=len(names))
        return Divergence(outcome=EQUAL, error=error, tensors=len(names))
    if own_names := next(filter(None, (batch.own_names() for batch in batches)), ()):
        return Divergence(outcome=CANNOT_TELL, words=own_names, error=_finite(error), tensors=len(names))
    found = [_found(at, batches) for at in range(len(names))]
    parted = [at for at, (words, effect) in enumerate(found) if words and effect > _AGREE]
    is_right = bool(parted) and all(
        batch.is_plain and batch.error_with(frozenset(parted)) <= _AGREE for batch in batches
    )
    parted.sort(key=lambda at: -found[at][1])
    return Divergence(
        outcome=LOCATED if parted else CANNOT_TELL,
        words=() if parted else say("stage.none"),
        error=_finite(error),
        tolerance=_AGREE,
        matched=sum(not words for words, _ in found),
        tensors=len(names),
        located=tuple(
            Located(
                candidate_nodes=(names[at],),
                reference_nodes=(names[at],),
                op_types=(STAGE,),
                reference_op_types=(STAGE,),
                words=found[at][0],
                proven=is_right,
                certainty=PROVEN if is_right else LIKELY,
            )
            for at in parted
        ),
    )


def _finite(error: float) -> float | None:
    return error if error < float("inf") else None


def _found(at: int, batches: Sequence[_Batch]) -> tuple[Words, float]:
    """Return how a stage differs in the batch in which it changes the result most; no words if in none."""
    each = [batch.stage(at) for batch in batches]
    return max(each, key=lambda found: (bool(found[0]), found[1]))


class _Batch:
    """One batch: the values of the reference, and those that the candidate has by itself."""

    def __init__(self, reference: Sequence[Stage], candidate: Sequence[Stage], feed: Feed) -> None:
        self._reference, self._candidate = reference, candidate
        self._wanted: list[Any] = [feed]
        for stage in reference:
            self._wanted.append(_read_often(stage, _run_reference(stage, self._wanted[-1])))
        # Its types say what the candidate's stages take; without a value after a stage that fails.
        self._own: list[Any] = [feed]
        with contextlib.suppress(Exception):
            for stage in candidate:
                self._own.append(stage.call(like(self._own[-1], None)))
        for stage, value in zip(candidate, self._own[1:], strict=False):
            _read_often(stage, value)
        self.is_plain = all(map(is_plain, [*self._wanted, *self._own]))
        self.has_result = has_values(self._wanted[-1])
        missing = len(self._wanted) - len(self._own)
        self._is_whole = not missing
        self.error = float("inf") if missing else self._error(self._own[-1])
        self._own += [None] * missing

    def own_names(self) -> Words:
        """Return the message on a stage that gives its arrays other names than the reference; empty if there is none.

        The candidate's stages agree on their names, or one of them would fail. So no stage is wrong by that.
        """
        if not self._is_whole:
            return ()
        for stage, own, wanted in zip(self._candidate, self._own[1:], self._wanted[1:], strict=True):
            if isinstance(own, Mapping) and isinstance(wanted, Mapping):
                names, expected_names = own.keys() - wanted.keys(), wanted.keys() - own.keys()
                if names and expected_names:
                    return say(
                        "stage.own_names",
                        name=stage.name,
                        names=sorted(map(str, names)),
                        expected_names=sorted(map(str, expected_names)),
                    )
        return ()

    def stage(self, at: int) -> tuple[Words, float]:
        """Return how a stage of the candidate differs on the reference's value, and what that makes of the result."""
        stage, wanted = self._candidate[at], self._wanted[at + 1]
        try:
            value = stage.call(like(self._wanted[at], self._own[at]))
        except Exception as err:  # noqa: BLE001 - code of the user's may raise anything
            return say("stage.fails", name=stage.name, reason=reason_of(err)), float("inf")
        self.is_plain = self.is_plain and is_plain(value)
        error, words = difference(value, wanted)
        if error <= _AGREE:
            return (), 0.0
        # Where the reference's next stage refuses the value, the result is changed as well.
        try:
            for after, expected in zip(self._reference[at + 1 :], self._wanted[at + 1 :], strict=False):
                value = after.call(like(value, expected))
        except Exception:  # noqa: BLE001 - code of the user's may raise anything
            return say("stage.differs", name=stage.name, difference=words), float("inf")
        return say("stage.differs", name=stage.name, difference=words), self._error(value)

    def error_with(self, replaced: frozenset[int]) -> float:
        """Return the error of the candidate's result with the reference's stages in these places."""
        value = self._wanted[0]
        try:
            for at, (own, other) in enumerate(zip(self._candidate, self._reference, strict=True)):
                types = self._wanted if at in replaced else self._own
                value = (other if at in replaced else own).call(like(value, types[at]))
        except Exception:  # noqa: BLE001 - code of the user's may raise anything
            return float("inf")
        return self._error(value)

    def _error(self, value: object) -> float:
        return difference(value, self._wanted[-1])[0]


def _read_often(stage: Stage, value: object) -> object:
    """Return the value, which is compared and given to several stages."""
    if has_iterator(value):
        msg = f"stage {stage.name} returns an iterator (got {type(value).__name__}; expected a list or an array)"
        raise UsageError(msg, hint="return a list or an array, which can be read more than once")
    return value


def _run_reference(stage: Stage, value: object) -> object:
    try:
        return stage.call(like(value, None))
    except Exception as err:
        msg = f"stage {stage.name} of the reference failed: {reason_of(err)}"
        raise BackendError(msg, hint="check that each stage takes what the one before returns") from err
