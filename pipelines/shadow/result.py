"""The result of `shadow`."""

from __future__ import annotations

from dataclasses import dataclass

from paritygate.errors import ExitCode
from paritygate.pipelines.shadow.drift import InputDrift
from paritygate.pipelines.shadow.sequential import Verdict

_CODES = {
    Verdict.PROMOTE: ExitCode.PASS,
    Verdict.ROLLBACK: ExitCode.PARITY_FAILED,
    Verdict.HOLD: ExitCode.INCONCLUSIVE,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ShadowResult:
    """How a server answered captured requests.

    Requests are named by their line in the captured file, because ids and values may be confidential.
    """

    model: str
    version: int
    variant: str  # of the release, whose file answered the same requests
    verdict: str  # rollback, promote or hold
    requests: int  # judged
    rows: int  # in them
    changed: int  # rows whose answer is another, outside of the limits
    changed_near_the_boundary: int  # rows whose answer is another, as the limits allow
    beyond_limits: int  # rows that do not count as changed, although a value is beyond its limit
    noise: int  # rows that the released file answers in two ways; they are not judged
    unanswered: int  # requests that the server did not answer, each counted as changed
    refused: int  # requests that the server refused as the client's error; they are judged for a promotion alone
    of_other_versions: int  # requests that another version answered; they are not judged
    other_versions: tuple[str, ...]  # what these answers say
    max_flip_rate: float
    flip_rate: float | None  # the mean share of changed rows in a request; None without a judged request
    until_promoted: int | None = (
        None  # requests without a changed answer that PROMOTE still needs; None where it cannot come
    )
    first_changed: int | None = None  # the line of the first request with a changed row
    first_why: str = ""  # what is wrong with its form; empty where its values differ
    decided_after: int | None = None  # the request after which the rollback was certain
    captured: str = ""  # the file
    is_last_line_cut_off: bool = False  # so that it was left out
    inputs: tuple[InputDrift, ...] | None = None  # never change the verdict; None where the release has no survey

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""
        return _CODES[Verdict(self.verdict)]
