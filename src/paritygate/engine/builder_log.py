"""Collect the log of the library behind engines, which is the only place where it reports a reason.

A failed build returns nothing and raises nothing. Only the logger gets the reason.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from functools import cache
from types import ModuleType
from typing import Any

from paritygate.engine.library import EngineLibrary

_ERRORS = frozenset({"ERROR", "INTERNAL_ERROR"})
_WARNING = "WARNING"
# Thousands of lines a build, on tactics and timings.
_NOT_PRINTED = frozenset({"VERBOSE"})
# Every build logs it for every int64 tensor, but the runner feeds each tensor in its own dtype.
_HARMLESS = re.compile(r"Make sure (?:input|output) .* has Int64 binding")
# The place in the library's sources; and the message of any call without a driver.
_PLACE = re.compile(r"^\S+\.(?:cpp|h|cu):\d+: | In \S+ at /\S+?(?=\)|\s|$)")
_NO_DRIVER = re.compile(r"catchCudaError")
_FRAME = re.compile(r"^(?:--- (?:Begin|End) node ---|While parsing node number|ERROR: \S+ In function)")
_LONGEST = 400


class BuilderLog:
    """The lines of one piece of work, printed as they come: `errors` and relevant `warnings`, oldest first."""

    def __init__(self, title: str) -> None:
        """Start with no lines; `title` is the library, which begins each printed line."""
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self._title = title

    def add(self, severity: str, message: str) -> None:
        """Keep an error or a warning, and print lines except `VERBOSE` ones; `severity` is the library's name."""
        if severity in _ERRORS:
            self.errors.append(message)
        elif severity == _WARNING and not _HARMLESS.search(message):
            self.warnings.append(message)
        if severity not in _NOT_PRINTED:
            print(f"[{self._title}] {severity}: {message}", flush=True)  # noqa: T201 - the log of the job is its stdout

    def reason(self) -> str:
        """Return the reason of a failure from the errors, in one line; empty if there are none."""
        lines = [line for line in self.errors if not _FRAME.search(_PLACE.sub("", line))]
        telling = [line for line in lines if not _NO_DRIVER.search(line)] or lines
        return "; ".join(dict.fromkeys(map(said, telling)))

    def warned(self, shown: int = 3) -> str:
        """Return the number of warnings and the first different ones, in one line; empty if there are none."""
        different = list(dict.fromkeys(map(said, self.warnings)))
        if not different:
            return ""
        more = f"; and {len(different) - shown} more" if len(different) > shown else ""
        return f"{len(self.warnings)}: {'; '.join(different[:shown])}{more}"


def said(message: str) -> str:
    """Return a message on one line of at most 400 characters, without the places in the library's own sources."""
    lines: Iterable[str] = (line for line in message.splitlines() if not _NO_DRIVER.search(line))
    text = _PLACE.sub("", " ".join(" ".join(lines).split()) or " ".join(message.split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def make_logger(library: EngineLibrary, log: BuilderLog) -> Any:  # noqa: ANN401 - the library's ILogger
    """Return the process's logger of the library, which writes into `log` from now on.

    There is one a process, because the library ignores every other logger while the first one is in use. Otherwise the
    errors of a second build would go to the log of the first.
    """
    logger = _logger_of(library.module)
    logger.target = log
    return logger


@cache
def _logger_of(trt: ModuleType) -> Any:  # noqa: ANN401 - the library's ILogger
    class Logger(trt.ILogger):  # type: ignore[name-defined,misc]  # the libraries have no types
        def __init__(self) -> None:
            # Not super(), because the binding needs a direct call of its constructor.
            trt.ILogger.__init__(self)
            self.target: BuilderLog | None = None

        def log(self, severity: Any, msg: str) -> None:  # noqa: ANN401 - the library's Severity
            # An exception here would end the process, because none may pass the library's caller.
            with contextlib.suppress(Exception):
                if self.target is not None:
                    self.target.add(severity.name, msg)

    return Logger()
