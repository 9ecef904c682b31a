"""The size that an answer of a server may have: larger answers are not held in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar

from msgspec import Struct

from paritygate.errors import BackendError
from paritygate.models.endpoint import EndpointLimits

_MIB = 1 << 20
# JSON takes up to 25 characters for four bytes, and a server may return more outputs than the reference.
_TIMES, _LEAST = 64, _MIB
# For descriptions of a server and its model.
_DESCRIPTION = 16 * _MIB

# A variable of the context, because wrappers of runners separate the caller, who knows the reference's size, from the
# client.
_REFERENCE: ContextVar[int | None] = ContextVar("reference_bytes", default=None)


class AnswerSize(Struct, frozen=True, kw_only=True):
    """The most bytes of an answer, the reason (the end of a message), and a hint where answers have to be larger."""

    most: int
    reason: str
    hint: str

    def exceeded(self) -> BackendError:
        """Return the error of a larger answer."""
        msg = f"the server's answer is larger than {self.most / _MIB:.4g} MiB, {self.reason}"
        return BackendError(msg, hint=self.hint)


@contextlib.contextmanager
def reference_answered(sizes: Mapping[str, int], outputs: Collection[str]) -> Iterator[None]:
    """Limit answers to a multiple of the bytes of the reference's answer to the same rows.

    `sizes` are these bytes by output, empty where unknown. No limit follows where `outputs` are more than these.
    """
    token = _REFERENCE.set(sum(sizes.values()) if sizes and sizes.keys() >= set(outputs) else None)
    try:
        yield
    finally:
        _REFERENCE.reset(token)


def answer_size(limits: EndpointLimits) -> AnswerSize:
    """Return how large the answer to the current request may be."""
    size = _REFERENCE.get()
    if size is None:
        most = int(limits.max_answer_mb * _MIB)
        return AnswerSize(most=most, reason="which is --max-answer-mb", hint="allow more with --max-answer-mb N")
    return AnswerSize(
        most=max(_TIMES * size, _LEAST),
        reason=f"{_TIMES} times the reference's answer to the same rows and at least 1 MiB",
        hint="check the server's output, because its size does not fit these rows",
    )


def description_size(limits: EndpointLimits) -> AnswerSize:
    """Return how large a server's description may be."""
    own = answer_size(limits)
    if own.most <= _DESCRIPTION:
        return own
    return AnswerSize(
        most=_DESCRIPTION, reason="more than any description", hint="check that the address belongs to a model"
    )
