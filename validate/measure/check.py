"""A check and its outcome, the verdict of several checks, and a cause of a failure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paritygate.codec import finite_or_none
from paritygate.errors import ExitCode
from paritygate.text import StrEnum
from paritygate.validate.words.sentence import Words, render, say

# The name of the check of values that an undeclared mask leaves out.
UNDECLARED_PADDING = "undeclared_padding"


class Status(StrEnum):
    """The outcome of one check."""

    PASS = "pass"  # noqa: S105 - the linter takes it for a password
    WARNING = "warning"
    # A difference unlike every sample: it is reported, and changes no verdict.
    EDGE = "edge"
    FAIL = "fail"
    ERROR = "error"
    INCONCLUSIVE = "inconclusive"
    # The only check of a variant that this machine cannot run.
    NOT_RUN_HERE = "not run here"


class Kind(StrEnum):
    """The way in which a check came to its status."""

    MEASURED = "measured"
    NOT_MEASURED = "not_measured"
    # The reference's outputs depend on something besides its inputs.
    DEPENDS = "depends"
    DOES_NOT_APPLY = "does_not_apply"
    NOT_ASKED = "not_asked"
    # A difference unlike every sample.
    EDGE = "edge"


class Verdict(StrEnum):
    """The outcome for a variant."""

    PASS = "pass"  # noqa: S105 - the linter takes it for a password
    FAIL = "fail"
    ERROR = "error"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check: its name in reports, its outcome, and its sentences.

    `output` is None for a check of no single output, and `rows` where they are unknown. `measured` and `limit` are None
    where there is none, or it is not finite. `detail` is the text of `words`, and serves where there are none.
    """

    name: str
    status: Status
    words: Words = ()
    kind: Kind = Kind.MEASURED
    output: str | None = None
    rows: int | None = None
    measured: float | None = None
    limit: float | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        words = self.words or (say("text", text=self.detail) if self.detail else ())
        values: dict[str, Any] = {name: finite_or_none(getattr(self, name)) for name in ("measured", "limit")}
        for name, value in (values | {"words": words, "detail": render(words)}).items():
            object.__setattr__(self, name, value)


def verdict_of(checks: Iterable[Check]) -> Verdict:
    """Return the worst outcome: any fail, else error, else inconclusive, else pass; no check at all is an error."""
    statuses = {check.status for check in checks}
    if not statuses:
        return Verdict.ERROR
    for status in (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE):
        if status in statuses:
            return Verdict(str(status))
    return Verdict.PASS


def exit_code_of(verdict: Verdict) -> ExitCode:
    """Return the exit code of a verdict."""
    return {
        Verdict.PASS: ExitCode.PASS,
        Verdict.FAIL: ExitCode.PARITY_FAILED,
        Verdict.ERROR: ExitCode.NOT_MEASURED,
        Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    }[verdict]


# Outcomes of looking for a cause.
NAMED = "named"
NOT_CONFIRMED = "not_confirmed"
NO_TIME = "no_time"
NOT_ASKED = "not_asked"
FAULT = "fault"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """One cause, such as `channels_reversed`, and the outcome of looking for it.

    The `outcome` is `named`, `not_confirmed`, `no_time`, `not_asked` or `fault`. The cause is confirmed by `rows` rows.
    In these, `before` and `after` are the largest difference as a multiple of its limit, without and with the change;
    None without a trial, and `before` also without an output. `detail` is the text of `words`.
    """

    kind: str
    outcome: str
    words: Words
    rows: int | None = None
    before: float | None = None
    after: float | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", render(self.words))
