"""Clean up after an error that ends a run: remove an empty run folder, else note the reason in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from paritygate.codec import from_data, to_data
from paritygate.errors import ExitCode, ParitygateError
from paritygate.files import read_json, remove_marked_folder, write_json_atomically
from paritygate.pipelines.run.workspace import RunFolder

_FILE = "stopped.json"
_HIDDEN = "the reason is not kept, since the spec hides inputs"


class Stopped(Struct, frozen=True, kw_only=True):
    """The error that ended a run before there was evidence."""

    message: str
    exit_code: int

    @property
    def is_refused(self) -> bool:
        """Whether the request was refused, so that no command can go on with the run."""
        return self.exit_code == ExitCode.USAGE


@contextlib.contextmanager
def noting_why_it_stops(run: RunFolder) -> Iterator[None]:
    """Remove or annotate the run folder after an error inside, or a signal."""
    try:
        yield
    except Exception as err:
        if isinstance(err, ParitygateError):
            _note(run, Stopped(message=_message(run, err), exit_code=int(err.exit_code)))
        raise
    except BaseException:
        _note(run, Stopped(message="the run was interrupted", exit_code=int(ExitCode.INTERRUPTED)))
        raise


def _note(run: RunFolder, stopped: Stopped) -> None:
    # The error itself is reported, even if the disk fails as well.
    with contextlib.suppress(ParitygateError, OSError):
        is_without_jobs = stopped.is_refused or not (run.findings / "jobs").exists()
        if is_without_jobs and not run.exported() and not run.reference.exists():
            remove_marked_folder(run.folder)
            run.folder.parent.rmdir()
        else:
            write_json_atomically(run.folder / _FILE, to_data(stopped))


def why_stopped(folder: Path) -> Stopped | None:
    """Return the error that ended a run; None where there was none, or there is evidence since.

    Raises:
        OSError: The note cannot be read.
        ValueError: The note is corrupt.
    """
    path = folder / _FILE
    if not path.is_file() or (folder / "evidence.json").is_file():
        return None
    return from_data(Stopped, read_json(path))


def _message(run: RunFolder, err: ParitygateError) -> str:
    return _HIDDEN if run.resolved.hides_inputs(is_leaving=False) else str(err)
