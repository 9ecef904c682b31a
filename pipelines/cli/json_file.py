"""The file of --json: written completely to a temporary file before a release, and moved into place afterwards."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paritygate.files import write_json_atomically
from paritygate.pipelines.cli.console import OTHER_JSON, write_json


class JsonFile:
    """The target of --json: a file, `-` for standard output, or None."""

    def __init__(self, target: str | None) -> None:
        self._target = target
        # A device or a pipe cannot be replaced by a file, and output to it cannot be undone.
        is_file = target not in {None, "-"} and (not (path := Path(str(target))).exists() or path.is_file())
        self._path = Path(str(target)) if is_file else None
        self._prepared: Path | None = None

    @property
    def words(self) -> str:
        """The action, for a message."""
        return "write the JSON to standard output" if self._target == "-" else f"write {self._target}"

    def prepare(self, data: Mapping[str, Any]) -> None:
        """Write a temporary file next to the target, unless that is standard output, a device or a pipe."""
        if self._path is None:
            return
        if self._prepared is None:
            self._prepared = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.prepared")
        write_json_atomically(self._prepared, data, elsewhere=OTHER_JSON)

    def write(self, data: Mapping[str, Any]) -> None:
        """Write the target, or raise a `StorageError`; then the prepared file replaces it."""
        try:
            write_json(self._target, data)
        except BaseException:
            if self._prepared is not None and self._path is not None:
                with contextlib.suppress(OSError):
                    self._prepared.replace(self._path)
            raise
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the prepared file, because there was no release."""
        if self._prepared is not None:
            with contextlib.suppress(OSError):
                self._prepared.unlink(missing_ok=True)
            self._prepared = None
