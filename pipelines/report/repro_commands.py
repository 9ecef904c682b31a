"""The shortest commands, callable from anywhere, that reproduce one failure of a probe alone."""

from __future__ import annotations

import shlex
from pathlib import Path

from msgspec import Struct

from paritygate.pipelines.compare.result import ComparisonResult

_RUN = '"$RUN"'


class ReproCommand(Struct, frozen=True, kw_only=True):
    """A failure of a probe, as text, and its command."""

    title: str
    command: str


def repro_commands(result: ComparisonResult, folder: Path) -> tuple[ReproCommand, ...]:
    """Return the command of each listed failure and finding, without duplicates."""
    by_command: dict[str, list[str]] = {}
    for name, probe in result.probes.asked.items():
        for failure in (*probe.failures, *probe.findings):
            if failure.again:
                by_command.setdefault(failure.again, []).append(f"{name}, {failure.about}")
    return tuple(
        ReproCommand(title="; ".join(dict.fromkeys(titles)), command=_short(command, folder))
        for command, titles in by_command.items()
    )


def within_run(path: str, folder: Path) -> str:
    """Return a path relative to the run's folder, or unchanged if it is elsewhere."""
    return path.removeprefix(f"{folder}/")


def _short(command: str, folder: Path) -> str:
    """Return the command with a repeated run folder as a variable; a `cd` could break relative samples of a spec."""
    words = shlex.split(command)
    inside = [word == str(folder) or word.startswith(f"{folder}/") for word in words]
    if sum(inside) < 2:  # noqa: PLR2004 - what stands there once is as short in its place
        return command
    shown = [
        f"{_RUN}{shlex.quote(word.removeprefix(str(folder))) if word != str(folder) else ''}"
        if is_inside
        else shlex.quote(word)
        for word, is_inside in zip(words, inside, strict=True)
    ]
    return f"RUN={shlex.quote(str(folder))}; {' '.join(shown)}"
