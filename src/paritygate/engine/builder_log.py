"""What the library behind engines says while it works: kept, because it is the only place where a reason stands.

A build that fails returns nothing and raises nothing. Why, the library has told its logger alone.
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
# Thousands of lines a build, of tactics and timings.
_NOT_PRINTED = frozenset({"VERBOSE"})
# Said of every int64 tensor, in every build: the runner feeds each tensor in its own dtype.
_HARMLESS = re.compile(r"Make sure (?:input|output) .* has Int64 binding")
# Where in the library's sources it was said; and what any call says of a driver that is not there.
_PLACE = re.compile(r"^\S+\.(?:cpp|h|cu):\d+: | In \S+ at /\S+?(?=\)|\s|$)")
_NO_DRIVER = re.compile(r"catchCudaError")
_FRAME = re.compile(r"^(?:--- (?:Begin|End) node ---|While parsing node number|ERROR: \S+ In function)")
_LONGEST = 400


class BuilderLog:
    """The lines of one piece of work, printed as they come.

    Attributes:
        errors: Lines of errors, oldest first.
        warnings: Lines of warnings, oldest first, those left out that say nothing of this model.
    """

    def __init__(self, title: str) -> None:
        """Start with no lines.

        Args:
            title: What each printed line begins with: the library.
        """
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self._title = title

    def add(self, severity: str, message: str) -> None:
        """Keep a line, if it is an error or a warning, and print it, if it is not one of thousands.

        Args:
            severity: In the library's words: `INTERNAL_ERROR`, `ERROR`, `WARNING`, `INFO` or `VERBOSE`.
            message: What it says.
        """
        if severity in _ERRORS:
            self.errors.append(message)
        elif severity == _WARNING and not _HARMLESS.search(message):
            self.warnings.append(message)
        if severity not in _NOT_PRINTED:
            print(f"[{self._title}] {severity}: {message}", flush=True)  # noqa: T201 - the log of the job is its stdout

    def reason(self) -> str:
        """Return in one line why the work failed, as the errors say it; empty if there are none."""
        lines = [line for line in self.errors if not _FRAME.search(_PLACE.sub("", line))]
        telling = [line for line in lines if not _NO_DRIVER.search(line)] or lines
        return "; ".join(dict.fromkeys(map(said, telling)))

    def warned(self, shown: int = 3) -> str:
        """Return in one line how many warnings there are and the first different ones; empty if there are none."""
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

    Why one a process? The library takes the first that it is given, and ignores every other while that one is in use:
    the errors of a second build would go to the log of the first.
    """
    logger = _logger_of(library.module)
    logger.target = log
    return logger


@cache
def _logger_of(trt: ModuleType) -> Any:  # noqa: ANN401 - the library's ILogger
    class Logger(trt.ILogger):  # type: ignore[name-defined,misc]  # the libraries have no types
        def __init__(self) -> None:
            # Not super(): the binding wants its own constructor called.
            trt.ILogger.__init__(self)
            self.target: BuilderLog | None = None

        def log(self, severity: Any, msg: str) -> None:  # noqa: ANN401 - the library's Severity
            # An exception here would end the process: the library calls it from where none may pass.
            with contextlib.suppress(Exception):
                if self.target is not None:
                    self.target.add(severity.name, msg)

    return Logger()
