"""Find the runs below a root, and the one that a short name means: `latest`, or the beginning of a run's id."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from msgspec import Struct

from paritygate.errors import UsageError
from paritygate.files import MARKER, is_plain_file, is_plain_folder
from paritygate.pipelines.run.stopped import why_stopped
from paritygate.pipelines.run.workspace import is_run_folder
from paritygate.pipelines.spec.names import check_name
from paritygate.text import counted, first_of, meant

LATEST = "latest"
_STAMPED = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]+")
_STAMP = "%Y%m%dT%H%M%SZ"
_NAMED = 5
_RUN = "start a run: convert-and-validate run SPEC"


class PastRun(Struct, frozen=True, kw_only=True):
    """A folder in a place of runs.

    `model` is the name of the folder above. `begun` is UTC, by the id, else by the files' times. `is_ours` means it has
    the marker, so that paritygate may remove it; `is_whole` means marker and spec, so that commands can continue it.
    """

    model: str
    run_id: str
    folder: Path
    begun: datetime
    is_ours: bool
    is_whole: bool


def models_below(root: Path) -> tuple[str, ...]:
    """Return the models that have a folder below `<root>/runs`, sorted."""
    return tuple(sorted(folder.name for folder in _folders(root / "runs")))


def runs_below(root: Path, model: str | None = None) -> tuple[PastRun, ...]:
    """Return the runs below `root`, the newest first, of one model or of all (None); hidden folders are unfinished.

    Raises:
        UsageError: `model` cannot be a name, such as a path.
    """
    if model is not None:
        check_name("model", model)
    dated: list[tuple[datetime, int, PastRun]] = []
    for name in models_below(root) if model is None else (model,):
        for folder in _folders(root / "runs" / name):
            changed = _changed_ns(folder)
            begun = _begun(folder.name) or datetime.fromtimestamp(changed / 1e9, timezone.utc)
            run = PastRun(
                model=name,
                run_id=folder.name,
                folder=folder,
                begun=begun,
                is_ours=is_plain_folder(folder) and is_plain_file(folder / MARKER),
                is_whole=is_run_folder(folder),
            )
            # Ids of the same second are unordered.
            dated.append((begun, changed, run))
    return tuple(run for *_, run in sorted(dated, key=lambda item: (*item[:2], item[2].run_id), reverse=True))


def find_run(text: str, root: Path) -> Path:
    """Return the run folder for a path, `latest`, `latest:MODEL`, or a run's id or its beginning.

    An existing run folder comes first, and any other text is a path. Raises UsageError if no run or several match.
    """
    path = Path(text)
    if is_run_folder(path) or "/" in text.partition(":")[0]:
        return path
    word, _, model = text.partition(":")
    if word == LATEST:
        return _latest(root, model)
    if path.exists() or not text:
        return path
    matching = [run for run in runs_below(root) if run.is_whole and run.run_id.startswith(text)]
    exact = [run for run in matching if run.run_id == text]
    return _only(text, exact or matching, path)


def _latest(root: Path, model: str) -> Path:
    # Refused runs cannot be continued.
    whole = [run for run in runs_below(root) if run.is_whole and not _was_refused(run.folder)]
    models = sorted({run.model for run in whole})
    if not whole:
        msg = f"no run exists below {root / 'runs'}"
        raise UsageError(msg, hint=f"name the folder that runs lie in with --root, or {_RUN}")
    if model and model not in models:
        near = f" (models: {first_of(models, _NAMED)}){meant(model, models)}"
        msg = f"no run of model {model!r} exists below {root / 'runs'}{near}"
        raise UsageError(msg, hint=f"write --run {LATEST}:MODEL with one of these, or {_RUN}")
    if not model and len(models) > 1:
        msg = f"{LATEST} may mean a run of {counted(len(models), 'model')}: {first_of(models, _NAMED)}"
        raise UsageError(msg, hint=f"name the model: --run {LATEST}:{whole[0].model}")
    return next(run.folder for run in whole if model in {"", run.model})


def _was_refused(folder: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        stopped = why_stopped(folder)
        return stopped is not None and stopped.is_refused
    return False


def _only(text: str, matching: Sequence[PastRun], path: Path) -> Path:
    if len(matching) > 1:
        names = first_of([f"{run.model}/{run.run_id}" for run in matching], _NAMED)
        msg = f"{text!r} is how {counted(len(matching), 'run')} begin: {names}"
        raise UsageError(msg, hint=f"write more of the id, or --run {LATEST}:MODEL")
    # Whoever opens the path reports that it is not a run.
    return matching[0].folder if matching else path


def _folders(place: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from (path for path in place.iterdir() if not path.name.startswith(".") and path.is_dir())


def _changed_ns(folder: Path) -> int:
    # The spec is written once, when the run begins.
    for path in (folder / "spec.json", folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime_ns
    return 0


def _begun(run_id: str) -> datetime | None:
    stamped = _STAMPED.fullmatch(run_id)
    if stamped is None:
        return None
    try:
        return datetime.strptime(stamped[1], _STAMP).replace(tzinfo=timezone.utc)
    except ValueError:
        return None
