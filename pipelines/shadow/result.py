"""The result of `shadow`."""

from __future__ import annotations

from msgspec import Struct

from paritygate.errors import ExitCode
from paritygate.pipelines.shadow.drift import InputDrift
from paritygate.pipelines.shadow.sequential import Verdict

_CODES = {
    Verdict.PROMOTE: ExitCode.PASS,
    Verdict.ROLLBACK: ExitCode.PARITY_FAILED,
    Verdict.HOLD: ExitCode.INCONCLUSIVE,
}


class ShadowResult(Struct, frozen=True, kw_only=True):
    """How a server answered captured requests.

    Requests are named by their line in the captured file, because ids and values may be confidential.
    """

    model: str
    version: int
    variant: str  # of the release, whose file answered the same requests
    verdict: str  # rollback, promote or hold
    requests: int  # judged
    rows: int = 0  # in them
    changed: int = 0  # rows whose answer is another, outside of the limits
    changed_near_the_boundary: int = 0  # rows whose answer is another, as the limits allow
    beyond_limits: int = 0  # rows that do not count as changed, although a value is beyond its limit
    noise: int = 0  # rows that the released file answers in two ways; they are not judged
    unanswered: int = 0  # requests that the server did not answer, each counted as changed
    unreadable: int = 0  # of these, requests with an answer that nobody can read, although it is not an error
    refused: int = 0  # requests that the server refused as the client's error; they are judged for a promotion alone
    unfit: int = 0  # requests that the release does not accept; they are judged for a promotion alone
    first_unfit: int | None = None  # the line of the first one
    of_other_versions: int = 0  # requests that another release answered; they are not judged
    other_versions: tuple[str, ...]  # the versions that these answers report
    reported_versions: tuple[str, ...]  # versions in judged answers that are not the release's
    max_flip_rate: float
    flip_rate: float | None  # the mean share of changed rows in a request; None without a judged request
    # Requests without a changed answer that PROMOTE still needs; None where it cannot come.
    until_promoted: int | None = None
    first_changed: int | None = None  # the line of the first request with a changed row
    first_why: str = ""  # what is wrong with its form; empty where its values differ
    decided_after: int | None = None  # the request after which the rollback was certain
    captured: str = ""  # the file
    is_last_line_cut_off: bool = False  # so that it was left out
    inputs: tuple[InputDrift, ...] | None = None  # never change the verdict; None if not measured

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""
        return _CODES[Verdict(self.verdict)]
