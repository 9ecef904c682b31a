"""A page, JSON file or folder that an option names, where only what paritygate wrote is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.errors import UsageError
from paritygate.files import MARKER
from paritygate.pipelines.cli.options import WrittenPath

if TYPE_CHECKING:
    import click

# Pages have the first, Markdown the second, bills of materials the third, and node data the last.
_MARKS = (b'content="paritygate', b"<!-- Written by paritygate -->", b'"bomFormat"', b'"thresholds"')


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
