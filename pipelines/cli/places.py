"""Types of the paths that options name: they are on this machine, can be written, and hold nothing of yours."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import click

from paritygate.errors import UsageError
from paritygate.files import MARKER

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
# Pages have the first, Markdown the second, bills of materials the third, and node data the last.
_MARKS = (b'content="paritygate', b"<!-- Written by paritygate -->", b'"bomFormat"', b'"thresholds"')


def check_folder(option: str, path: Path, folder: Path) -> None:
    """Check, before any work is done, that a folder is there in which a path can be written.

    What a command has released by the time that it writes its result, it cannot take back.

    Raises:
        UsageError: The folder is missing, or may not be written to.
    """
    if not folder.exists():
        # A typing error is no reason to make a folder.
        msg = f"{option} cannot write {path}: the folder {folder} does not exist"
        raise UsageError(msg, hint="create it", command=shlex.join(["mkdir", "-p", str(folder)]))
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        msg = f"{option} cannot write {path}: {folder} is not a writable folder"
        raise UsageError(msg, hint=f"name another place with {option}")


def check_suffix(option: str, path: Path | None, example: str, *others: str) -> None:
    """Raise a UsageError if the file of an option has neither the suffix of the example nor one of the others."""
    allowed = (Path(example).suffix, *others)
    if path is not None and path.suffix not in allowed:
        msg = f"{option} names {path} (got the suffix {path.suffix!r}, expected {' or '.join(allowed)})"
        raise UsageError(msg, hint=f"write for example {option} {example}")


class LocalPath(click.Path):
    """A path on this machine: an address, as of an object store, would make a folder `s3:`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the path, or raise a `BadParameter` if it is an address, or no such path."""
        if isinstance(value, str) and _ADDRESS.match(value):
            self.fail(f"{value!r} is an address, and only a path on this machine is written to.", param, ctx)
        return super().convert(value, param, ctx)


class WrittenPath(LocalPath):
    """A file in a folder that is there, or a folder that is made if its own place may be written to."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the path.

        Raises:
            click.BadParameter: It is an address, or no such path.
            UsageError: It cannot be written.
        """
        path: Path = super().convert(value, param, ctx)
        folders = (path, *path.absolute().parents) if self.dir_okay else (path.parent,)
        if param is not None and ctx is not None and not ctx.resilient_parsing:
            check_folder(param.opts[0], path, next((each for each in folders if each.exists()), folders[0]))
        return path


class RepositoryPlace(LocalPath):
    """A repository: a folder on this machine, or an address in an object store."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the place.

        Raises:
            click.BadParameter: It is no such place.
        """
        # Looked at before more is imported: most commands take no address.
        if not (isinstance(value, str) and ":/" in value):
            return super().convert(value, param, ctx)
        from paritygate.roots import is_address, root_of

        if not is_address(value):
            return super().convert(value, param, ctx)
        try:
            return root_of(value)
        except UsageError as err:
            self.fail(f"{err}.", param, ctx)


class WrittenRepositoryPlace(RepositoryPlace, WrittenPath):
    """A repository that is released into: a folder must be writable."""


class OwnPath(WrittenPath):
    """A file in a folder that is there, or a folder; a file or folder of your own stays."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the path, or raise a `UsageError` if it cannot be written, or holds what paritygate did not write."""
        path: Path = super().convert(value, param, ctx)
        if param is not None and _is_foreign(path):
            option = param.opts[0]
            msg = f"{path} exists and was not written by {option}, so it is not changed"
            raise UsageError(msg, hint=f"name another {'folder' if path.is_dir() else 'file'} with {option}")
        return path


def _is_foreign(path: Path) -> bool:
    if path.is_dir():
        return any(path.iterdir()) and not (path / MARKER).is_file()
    content = path.read_bytes() if path.is_file() else b""
    return bool(content) and not any(mark in content for mark in _MARKS)
