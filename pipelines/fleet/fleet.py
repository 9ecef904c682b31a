"""Run many specs, several at a time, each by the command as it runs alone: what one does never stops the others."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paritygate.errors import ExitCode, InputFileError, UsageError
from paritygate.files import read_json

_SPECS = (".yaml", ".yml")
# With another path of modules, a run would be another one for the cache. A run does not outlive the fleet.
_COMMAND = """
import json, os, sys
sys.path[:] = json.loads(sys.argv.pop(1))
parent = int(sys.argv.pop(1))
if sys.platform == "linux":
    import ctypes, signal
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
if os.getppid() != parent:
    sys.exit(1)
from paritygate.__main__ import main
main()
"""
_STOPPED = "it was interrupted"
# Runs clean up after Ctrl-C.
_PATIENCE_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetRequest:
    """What is asked of many runs."""

    specs: Sequence[str]
    workers: int
    words: Sequence[str]  # options of each run
    folder: Path  # for what each printed, and its JSON


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetEntry:
    """How the run of one spec ended."""

    spec: str
    exit_code: int
    seconds: float
    outcome: Mapping[str, Any]  # an entry of `runs` in the JSON of `run`
    log: str = ""  # what it printed; empty where nothing was run, because nothing has changed

    @property
    def model(self) -> str:
        """The name of the model, or of the spec where that cannot be read."""
        return str(self.outcome.get("model") or Path(self.spec).stem)

    @property
    def hint(self) -> str:
        """The next step after an error; empty without one."""
        return str((self.outcome.get("error") or {}).get("hint", ""))

    @property
    def why(self) -> str:
        """The release, or why there is none, in one line."""
        release, error = self.outcome.get("release"), self.outcome.get("error")
        if release:
            version = f"version {release['version']}"
            return f"released {version}" if release.get("record") else f"{version} stays, nothing is new"
        if error:
            return str(error["message"])
        variants = self.outcome.get("variants") or {}
        failed = [name for name, result in variants.items() if result and result.get("verdict") != "pass"]
        made = self.outcome.get("failures") or {}
        return str(self.outcome.get("not_released") or ", ".join([*failed, *made]) or "nothing was released")


def specs_in(texts: Sequence[str]) -> list[str]:
    """Return the specs that are named, and those in the folders that are named, in the order of their names.

    Raises:
        UsageError: One spec is named twice.
    """
    specs: list[str] = []
    for text in texts:
        folder = Path(text)
        if not folder.is_dir():
            specs.append(text)
            continue
        # Without any, it may be a model, which reading it as a spec finds out.
        specs += sorted(str(path) for path in folder.iterdir() if path.suffix in _SPECS and path.is_file()) or [text]
    twice = next((spec for at, spec in enumerate(specs) if spec in specs[:at]), None)
    if twice is not None:
        msg = f"the spec {twice} is named twice"
        raise UsageError(msg, hint="name each spec once")
    return specs


def run_fleet(request: FleetRequest, done: Callable[[FleetEntry], None]) -> None:
    """Run all specs, and call `done` with each that ends.

    On Ctrl-C, the runs are ended, and KeyboardInterrupt is raised when they have tidied up.
    """
    runs = [_Run(spec=spec, at=at, folder=request.folder, words=request.words) for at, spec in enumerate(request.specs)]
    waiting: queue.SimpleQueue[_Run] = queue.SimpleQueue()
    ended: queue.SimpleQueue[FleetEntry] = queue.SimpleQueue()
    for run in runs:
        waiting.put(run)
    is_over = threading.Event()
    threads = [
        threading.Thread(target=_work, args=(waiting, ended, is_over), daemon=True)
        for _ in range(min(request.workers, len(runs)))
    ]
    try:
        for thread in threads:
            thread.start()
        left = len(runs)
        while left:
            # A wait without a limit does not hear Ctrl-C everywhere.
            with contextlib.suppress(queue.Empty):
                done(ended.get(timeout=1.0))
                left -= 1
    finally:
        is_over.set()
        for run in runs:
            run.interrupt()
        end = time.monotonic() + _PATIENCE_S
        for run in runs:
            run.wait(end - time.monotonic())
        for thread in threads:
            thread.join()


def _work(waiting: queue.SimpleQueue[_Run], ended: queue.SimpleQueue[FleetEntry], is_over: threading.Event) -> None:
    while not is_over.is_set():
        try:
            run = waiting.get_nowait()
        except queue.Empty:
            return
        ended.put(run.result())


@dataclass(kw_only=True)
class _Run:
    """The run of one spec in a process of its own."""

    spec: str
    at: int
    folder: Path
    words: Sequence[str]
    _process: subprocess.Popen[bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_over: bool = False

    def result(self) -> FleetEntry:
        """Run the spec, and return how that ended, whatever happens."""
        name = f"{self.at + 1:04}"
        log, outcome = self.folder / f"{name}.log", self.folder / f"{name}.json"
        start = [sys.executable, "-c", _COMMAND, json.dumps(sys.path), str(os.getpid())]
        words = ["run", *self.words, "--json", str(outcome), "--", self.spec]
        begun = time.monotonic()
        try:
            with log.open("wb") as stream:
                with self._lock:
                    if self._is_over:
                        return self._entry(begun, ExitCode.NOT_MEASURED, {"error": {"message": _STOPPED}}, "")
                    # In a session of its own, it gets no Ctrl-C besides the signal from here.
                    self._process = subprocess.Popen(  # noqa: S603 - our own command
                        [*start, *words],
                        stdin=subprocess.DEVNULL,
                        stdout=stream,
                        stderr=stream,
                        start_new_session=True,
                    )
                code = self._process.wait()
            return self._entry(begun, code, _outcome(outcome, log, code), str(log))
        except OSError as err:
            return self._entry(begun, ExitCode.NOT_MEASURED, {"error": {"message": str(err)}}, "")

    def interrupt(self) -> None:
        """Let the run end and tidy up, or not begin."""
        with self._lock:
            self._is_over = True
            if self._process is not None and self._process.poll() is None:
                # SIGINT may be ignored, as in the background of a shell.
                self._process.terminate()

    def wait(self, seconds: float) -> None:
        """Wait for the end, and then end the run with all its processes."""
        if self._process is None:
            return
        try:
            self._process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _entry(self, begun: float, code: int, outcome: Mapping[str, Any], log: str) -> FleetEntry:
        return FleetEntry(
            spec=self.spec,
            # One that was killed has no code of its own.
            exit_code=code if code >= 0 else int(ExitCode.NOT_MEASURED),
            seconds=round(time.monotonic() - begun, 3),
            outcome=outcome,
            log=log,
        )


def _outcome(written: Path, log: Path, code: int) -> Mapping[str, Any]:
    """Return what a run wrote of itself; where it wrote nothing, its first error."""
    with contextlib.suppress(OSError, InputFileError, json.JSONDecodeError, LookupError, TypeError):
        (outcome,) = read_json(written)["runs"]
        return dict(outcome)
    printed = log.read_text(encoding="utf-8", errors="replace").splitlines()
    killed = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
    return {"error": {"message": _paragraph(printed, "error: ") or killed, "hint": _paragraph(printed, "hint: ")}}


def _paragraph(lines: Sequence[str], begin: str) -> str:
    """Return the first text that begins so, with the indented lines below it."""
    at = next((at for at, line in enumerate(lines) if line.startswith(begin)), len(lines))
    rest = itertools.takewhile(lambda line: line.startswith("  "), lines[at + 1 :])
    return " ".join([*(line.removeprefix(begin) for line in lines[at : at + 1]), *map(str.strip, rest)])


def entries_in_order(entries: Sequence[FleetEntry]) -> Iterator[FleetEntry]:
    """Yield the entries that need attention first."""
    yield from sorted(entries, key=lambda entry: (entry.exit_code == 0, -entry.exit_code, entry.model))
