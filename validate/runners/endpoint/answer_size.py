"""How large an answer of a server may be: so much is read of it, and no more is held in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from paritygate.errors import BackendError
from paritygate.models.endpoint import EndpointLimits

_MIB = 1 << 20
# JSON takes up to 25 characters for what four bytes hold, and a server may answer more outputs than the reference.
_TIMES, _LEAST = 64, _MIB
# What a server says of itself and its model.
_DESCRIPTION = 16 * _MIB

# Why a variable of the context? Wrappers of runners lie between whoever knows the reference's answer and the client.
_REFERENCE: ContextVar[int | None] = ContextVar("reference_bytes", default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerSize:
    """How many bytes an answer may have, and why.

    Attributes:
        most: The bytes.
        reason: What they follow from, in words behind the number.
        hint: What to do where an answer has to be larger.
    """

    most: int
    reason: str
    hint: str

    def exceeded(self) -> BackendError:
        """Return the error of an answer that is larger."""
        msg = f"the server's answer is larger than {self.most / _MIB:.4g} MiB, {self.reason}"
        return BackendError(msg, hint=self.hint)


@contextlib.contextmanager
def reference_answered(sizes: Mapping[str, int], outputs: Collection[str]) -> Iterator[None]:
    """Let what is asked within be answered by so many times the bytes that the reference's answer to the same has.

    Args:
        sizes: The bytes of the reference's answer by output; empty where it is not known.
        outputs: What is answered: where it is more than is known of the reference, nothing follows from that.
    """
    token = _REFERENCE.set(sum(sizes.values()) if sizes and sizes.keys() >= set(outputs) else None)
    try:
        yield
    finally:
        _REFERENCE.reset(token)


def answer_size(limits: EndpointLimits) -> AnswerSize:
    """Return how large an answer to what is asked now may be."""
    size = _REFERENCE.get()
    if size is None:
        most = int(limits.max_answer_mb * _MIB)
        return AnswerSize(most=most, reason="which is --max-answer-mb", hint="allow more with --max-answer-mb N")
    return AnswerSize(
        most=max(_TIMES * size, _LEAST),
        reason=f"{_TIMES} times the reference's answer to the same rows and at least 1 MiB",
        hint="check the server's output, which does not fit these rows",
    )


def description_size(limits: EndpointLimits) -> AnswerSize:
    """Return how large may be what a server says of itself."""
    own = answer_size(limits)
    if own.most <= _DESCRIPTION:
        return own
    return AnswerSize(
        most=_DESCRIPTION, reason="more than any description", hint="check that the address is that of a model"
    )
