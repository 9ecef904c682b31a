"""How the templates of a report are filled in: strictly, with every foreign text escaped."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

from paritygate.errors import StorageError
from paritygate.files import write_bytes_atomically
from paritygate.pipelines.report.figures import shorten

# Of a reason above the tables: the whole of it stands with its variant.
_REASON_LENGTH = 300
_TEMPLATES = "templates"


class Markup(str):
    """Text that is markup already: Jinja2 asks for `__html__` before it escapes."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


class _Compiled(jinja2.BytecodeCache):
    """Templates are compiled once, as modules are, and lie where Python puts those; where it may not, they do not."""

    def load_bytecode(self, bucket: Any) -> None:  # noqa: ANN401 - Jinja2 does not say its name aloud
        """Take what was compiled of the same text by the same code; Jinja2 compares the checksum."""
        with contextlib.suppress(OSError), _place(bucket.key).open("rb") as stream:
            bucket.load_bytecode(stream)

    def dump_bytecode(self, bucket: Any) -> None:  # noqa: ANN401 - as above
        """Keep what was compiled, unless Python is told to keep nothing."""
        if sys.dont_write_bytecode:
            return
        place = _place(bucket.key)
        with contextlib.suppress(OSError, StorageError):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomically(place, bucket.bytecode_to_string())

    def get_source_checksum(self, source: str) -> str:
        """Return the digest of all that compiling follows from: the options of this file count too."""
        parts = (jinja2.__version__, Path(__file__).read_text(encoding="utf-8"), source)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _place(key: str) -> Path:
    return Path(importlib.util.cache_from_source(str(Path(__file__).with_name(_TEMPLATES) / f"{key}.py")))


@functools.cache
def template_environment(fit: Callable[[str], str]) -> jinja2.Environment:
    """Return what finds and fills in templates; made once.

    Args:
        fit: Makes a text fit to look at; what it returns is escaped for HTML, unless it is `Markup`.
    """

    # With the context, Jinja2 calls it as a template is filled in, and never as one is compiled; so it does filters
    # where it is not to optimize.
    @jinja2.pass_eval_context
    def finalize(_: object, value: Any) -> Any:  # noqa: ANN401 - what a template shows
        return value if hasattr(value, "__html__") else fit(str(value))

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paritygate.pipelines.report", _TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        bytecode_cache=_Compiled(),
        optimized=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shortened"] = functools.partial(shorten, length=_REASON_LENGTH)
    return environment
