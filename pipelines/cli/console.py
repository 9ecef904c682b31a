"""Show the progress of a command, and write its JSON."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.backends import BACKENDS, backend_state
from paritygate.files import storage_errors, write_json_atomically
from paritygate.pipelines.report.figures import seconds_words
from paritygate.pipelines.report.terminal.printing import print_lines
from paritygate.pipelines.report.terminal.screen import wrapped
from paritygate.text import echo, echo_block, one_line, printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# The hint where a JSON file cannot be written.
OTHER_JSON = "name another file with --json"
# The speed is that of the whole stage, because a variant may take minutes.
_ESTIMATED_OVER_S = 3600.0


@contextlib.contextmanager
def progress_of(what: str, *, is_quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress on standard error: one moving line on a terminal, one line for each stage elsewhere.

    The yielded function also accepts stages, as in `paritygate.pipelines.process.stages`.
    """
    if is_quiet:
        yield lambda *_: None
        return
    _warn_of_backends()
    if not sys.stderr.isatty():
        yield _Lines(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=10),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        expand=True,
        transient=True,
        speed_estimate_period=_ESTIMATED_OVER_S,
    ) as progress:
        yield _Line(what, progress)


@functools.cache
def _warn_of_backends() -> None:
    """Warn of several builds of a runtime, once a process."""
    for warning in filter(None, (backend_state(name).warning for name in BACKENDS if BACKENDS[name].builds)):
        print_lines(wrapped(f"warning: {warning}"), err=True)


class _Lines:
    def __init__(self, what: str) -> None:
        self._what = what
        self._begin = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Ignore progress within a stage."""

    def begin(self, doing: str, names: Sequence[str]) -> None:
        del doing, names
        self._begin = time.monotonic()

    def end(self, did: str) -> None:
        if did:
            for line in wrapped(f"{self._what}: {did} in {seconds_words(time.monotonic() - self._begin)}"):
                echo(line, err=True)


class _Line:
    """Moves one line: the work, the share of the stage, and the time left."""

    def __init__(self, what: str, progress: Progress) -> None:
        self._what = what
        self._doing = ""
        self._names: Sequence[str] = ()
        self._progress = progress
        self._task: TaskID | None = None
        self._share = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        within = done / total if total else 0.0
        name = stage.partition(": ")[0]
        if name in self._names:
            within = (self._names.index(name) + within) / len(self._names)
        # The number of rows is not known before, so the share never falls.
        self._share = max(self._share, min(within, 1.0))
        self._show(stage)

    def begin(self, doing: str, names: Sequence[str]) -> None:
        self._doing, self._names, self._share = doing, names, 0.0
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = None
        self._show("")

    def end(self, did: str) -> None:
        """Leave the line until the next stage begins."""

    def _show(self, stage: str) -> None:
        words = one_line(": ".join(filter(None, (self._what, self._doing, stage))))
        if self._task is None:
            # Without a total until a share of the stage is known.
            self._task = self._progress.add_task(words, total=None)
        if self._share:
            self._progress.update(self._task, total=1.0)
        self._progress.update(self._task, description=words, completed=self._share)


def write_json(target: str | None, data: Mapping[str, Any]) -> None:
    """Write JSON to a file, to standard output for `-`, or nowhere for None; a `StorageError` if it cannot."""
    if target is None:
        return
    if target == "-":
        echo_block(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
        return
    path = Path(target)
    if path.exists() and not path.is_file():
        # A device or a pipe cannot be replaced by a file.
        with storage_errors(path, elsewhere=OTHER_JSON):
            text = printable(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
            path.write_text(text + "\n", encoding="utf-8")
        return
    write_json_atomically(path, data, elsewhere=OTHER_JSON)
