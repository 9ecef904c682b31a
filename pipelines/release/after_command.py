"""Run the spec's `promote.after` once a release is recorded, with the manifest on its standard input.

No shell reads the command. The release stays, whatever the command ends with. The repository notes that, and the next
promotion of the release repeats a command that did not end with 0.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

from msgspec import Struct

from paritygate.addresses import SIGNING_PASSWORD, without_secrets
from paritygate.codec import to_data
from paritygate.errors import ExitCode, ParitygateError
from paritygate.files import digest_of_bytes, json_bytes, parse_json
from paritygate.pipelines.release.repository.candidate import MANIFEST_FILE
from paritygate.pipelines.release.repository.log import read_state_of
from paritygate.pipelines.release.repository.manifest import read_file
from paritygate.pipelines.release.repository.record import RecordKind, utc_now
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.roots import Root, absolute

LIMIT_S = 600.0
_NOTES = "after"
# More is read than is shown, so that no secret is cut in two before it is hidden.
_READ_BYTES, _SHOWN = 65536, 4096
_SHOWN_LINES = 10
# Values of such variables of the environment are hidden, if they are not short words.
_SECRETS = re.compile(r"TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIAL|_KEY$", re.IGNORECASE)
_SHORTEST_SECRET = 6


class AfterCommand(Struct, frozen=True, kw_only=True):
    """Describe how the command after a release ended."""

    command: tuple[str, ...]
    version: int
    record: int  # after which it was run
    time: str  # UTC, ISO 8601, of its end
    seconds: float
    exit_code: int | None  # None if it did not end by itself, or could not be started
    problem: str = ""  # why it counts as failed
    output: str = ""  # its last lines, without secrets; not in the note of the repository

    @property
    def code(self) -> ExitCode:
        """The exit code of paritygate that follows from it."""
        return ExitCode.NOT_MEASURED if self.problem else ExitCode.PASS


def run_after_command(run: RunFolder, repository: Root, release: StoredRelease) -> AfterCommand | None:
    """Run the command that the spec wants after a release, and return how it ended; None if it was not run.

    It is run for each release and move of an alias. Where nothing had to be recorded, it is run unless the repository's
    note shows that it ended with 0 after the record of that release or move.
    """
    words = run.resolved.spec.promote.after_words
    if not words:
        return None
    record = _last_record(repository, release) if release.record is None else release.record
    note = f"{_NOTES}/{release.model}/{record:06}.json"
    if release.record is None and _is_done(repository, note, words):
        return None
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        code, problem = _ended(words, run.resolved.folder, release, output)
        shown = _last_lines(output)
    ended = AfterCommand(
        command=words,
        version=release.version,
        record=record,
        time=utc_now(),
        seconds=round(time.monotonic() - begun, 3),
        exit_code=code,
        problem=problem,
        output=shown,
    )
    # A repository has more readers than a run.
    noted = {key: value for key, value in to_data(ended).items() if key != "output"}
    # Without its note it is only repeated once more.
    with contextlib.suppress(ParitygateError):
        store_of(repository).replace(note, json_bytes({"schema_version": 1, **noted}))
    return ended


def _last_record(repository: Root, release: StoredRelease) -> int:
    """Return the number of the record that moved the alias to the release, or made one without an alias."""
    history = read_state_of(repository, release.model).history
    for number in range(len(history), 0, -1):
        record = history[number - 1]
        if release.alias is None:
            if record.kind is RecordKind.RELEASED and record.version == release.version:
                return number
        elif release.alias in record.aliases:
            return number
    return 0


def _is_done(repository: Root, note: str, words: tuple[str, ...]) -> bool:
    try:
        ended = parse_json(next(store_of(repository).read([note])))
        return bool(ended["exit_code"] == 0 and ended["command"] == list(words))
    except (OSError, KeyError, TypeError, ValueError):
        return False


def _ended(words: tuple[str, ...], folder: Path, release: StoredRelease, output: IO[bytes]) -> tuple[int | None, str]:
    """Run a command, and return its exit code and why that is a failure."""
    manifest = read_file(release.folder, MANIFEST_FILE)
    if manifest is None or digest_of_bytes(manifest) != release.manifest:
        return None, "was not run, because the manifest of the release is corrupt"
    env = {name: value for name, value in os.environ.items() if name != SIGNING_PASSWORD}
    env |= {"PARITYGATE_RELEASE_FOLDER": str(absolute(release.folder)), "PARITYGATE_ALIAS": release.alias or ""}
    try:
        process = subprocess.Popen(  # noqa: S603 - the words of the spec, which no shell reads
            words, stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=folder, env=env, start_new_session=True
        )
    except (OSError, ValueError) as err:
        return None, f"could not be started: {getattr(err, 'strerror', None) or err}"
    try:
        process.communicate(manifest, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return None, f"did not end within {LIMIT_S:g} s and was stopped"
    except BaseException:  # noqa: BLE001 - Ctrl-C or SIGTERM, which undo no release
        return None, "was interrupted"
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    code = process.returncode
    if code < 0:
        return None, f"was ended by signal {-code}"
    return code, f"ended with exit code {code}" if code else ""


def _last_lines(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _READ_BYTES))
    text = without_secrets(output.read().decode(errors="replace"))
    secrets = {value for name, value in os.environ.items() if _SECRETS.search(name) and len(value) >= _SHORTEST_SECRET}
    # The longest first, as one may begin with another.
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, "***")
    return "\n".join(text[-_SHOWN:].splitlines()[-_SHOWN_LINES:])
