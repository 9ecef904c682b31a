"""Do what follows a release or a moved alias: it cannot be undone by then, so no error in it fails the command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from paritygate.pipelines.release.repository.commit import Commit

_T = TypeVar("_T")


class _InWords(Protocol):
    @property
    def in_words(self) -> str:
        """The description of the record, such as `released 3 of scores`."""


_Recorded = TypeVar("_Recorded", bound=_InWords)


class Afterwards:
    """Run the steps after a record in the log, and collect those that fail.

    Before anything is recorded, errors are raised as usual.
    """

    def __init__(self) -> None:
        self._recorded = ""
        self.left_out: list[str] = []  # what failed, one line each

    @property
    def is_recorded(self) -> bool:
        """Whether something was recorded, which stays."""
        return bool(self._recorded)

    def record(self, commit: Commit[_Recorded], work: Callable[[], _Recorded]) -> _Recorded:
        """Do the work that records something, and return the record, even if an error or Ctrl-C comes afterwards."""
        try:
            release = work()
        except BaseException as err:
            if commit.done is None:
                raise
            release = commit.done
            self._recorded = release.in_words
            self._add("finish what follows", err)
        else:
            self._recorded = self._recorded if commit.done is None else release.in_words
        return release

    def take(self, recorded: str, left_out: Iterable[str]) -> None:
        """Note a record, empty for none, and the steps after it that failed already."""
        self._recorded = recorded or self._recorded
        self.left_out += left_out

    def do(self, what: str, work: Callable[[], _T], *, otherwise: _T) -> _T:
        """Do a step, and return its result. Once something is recorded, an error or Ctrl-C returns `otherwise`.

        `what` names the step in the message, such as `write the report`.
        """
        try:
            return work()
        except BaseException as err:
            if not self._recorded:
                raise
            self._add(what, err)
            return otherwise

    def _add(self, what: str, err: BaseException) -> None:
        self.left_out.append(f"{self._recorded}; could not {what}: {_why(err)}")


def _why(err: BaseException) -> str:
    if isinstance(err, OSError) and err.strerror:
        return err.strerror
    if isinstance(err, Exception):
        return str(err) or type(err).__name__
    # What rich makes of a pipe whose reader is gone; or Ctrl-C, or SIGTERM.
    return "the output was closed" if isinstance(err, SystemExit) else "it was interrupted"
