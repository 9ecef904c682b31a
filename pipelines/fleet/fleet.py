"""Run many specs, several at a time, each by the command as it runs alone: what one does never stops the others."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.errors import ExitCode, InputFileError, LostWorkerError, UsageError
from paritygate.files import read_json
from paritygate.pipelines.scale.engine import Engine
from paritygate.pipelines.scale.workers import SoftEnd, call_all, replacement

_SPECS = (".yaml", ".yml")
# With another path of modules, a run would be another one for the cache. A run does not outlive the fleet.
_COMMAND = """
import json, os, sys
sys.path[:] = json.loads(sys.argv.pop(1)) or list(filter(None, sys.path))
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


class FleetRequest(Struct, frozen=True, kw_only=True):
    """What is asked of many runs."""

    specs: Sequence[str]
    engine: Engine
    words: Sequence[str]  # options of each run
    folder: Path  # for what each printed, and its JSON


class FleetEntry(Struct, frozen=True, kw_only=True):
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
        UsageError: One spec occurs twice.
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
        raise UsageError(f"the spec {twice} occurs twice", hint="name each spec once")
    return specs


def run_fleet(request: FleetRequest, done: Callable[[FleetEntry], None], say: Callable[[str], None]) -> None:
    """Run all specs, and call `done` with each that ends; `say` gets what the workers need.

    On Ctrl-C, the runs are ended, and KeyboardInterrupt is raised when they have tidied up.
    """
    here = Path.cwd()
    # On another machine, Python may be elsewhere.
    modules = sys.path if request.engine.kind == "processes" else []

    def ended(at: int, run: Future[FleetEntry]) -> None:
        try:
            done(run.result())
        except LostWorkerError as err:
            done(_entry(request.specs[at], 0.0, ExitCode.NOT_MEASURED, {"error": err.to_json()}, ""))

    with request.engine.started([here], say) as workers:
        calls = [[spec, request.folder / f"{at:04}"] for at, spec in enumerate(request.specs, start=1)]
        start = functools.partial(workers.start, SpecWorker, request.words, here, modules)
        call_all(calls, request.engine.workers, start, ended, lambda err: say(replacement(err)))


class SpecWorker:
    """Runs specs, each in a process of its own. `modules` is Python's path; its own if empty."""

    def __init__(self, words: Sequence[str], here: Path, modules: Sequence[str]) -> None:
        self._words, self._here, self._modules = words, here, modules
        self._process: subprocess.Popen[bytes] | None = None
        self._end = SoftEnd()

    def call(self, spec: str, place: Path) -> FleetEntry:
        """Run a spec, and return how that ended, whatever happens.

        `place` is that of its log and JSON, without the suffix.
        """
        log, outcome = self._here / f"{place}.log", self._here / f"{place}.json"
        start = [sys.executable, "-c", _COMMAND, json.dumps(list(self._modules)), str(os.getpid())]
        begun = time.monotonic()
        try:
            with log.open("wb") as stream:
                # In a session of its own, it gets no Ctrl-C besides the signal from here.
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    [*start, "run", *self._words, "--json", str(outcome), "--", spec],
                    cwd=self._here,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    start_new_session=True,
                )
                code = self._process.wait()
            return _entry(spec, begun, code, _outcome(outcome, log, code), str(log))
        except OSError as err:
            return _entry(spec, begun, ExitCode.NOT_MEASURED, {"error": {"message": str(err)}}, "")

    def stop(self) -> None:
        """End the run, which tidies up."""
        if self._process is not None:
            self._end(self._process)

    def close(self) -> None:
        """Do nothing, because no run is left."""


def _entry(spec: str, begun: float, code: int, outcome: Mapping[str, Any], log: str) -> FleetEntry:
    return FleetEntry(
        spec=spec,
        # One that was killed has no code of its own.
        exit_code=code if code >= 0 else int(ExitCode.NOT_MEASURED),
        seconds=round(time.monotonic() - begun, 3) if begun else 0.0,
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
