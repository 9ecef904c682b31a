"""Fill in the templates of a report: strictly, with every foreign text escaped."""

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

# Reasons above the tables are cut; the variant's section has all.
_REASON_LENGTH = 300
_TEMPLATES = "templates"


class Markup(str):
    """Text that is markup already, marked by `__html__` for Jinja2."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


class _Compiled(jinja2.BytecodeCache):
    """Stores compiled templates where Python stores compiled modules, if it may."""

    def load_bytecode(self, bucket: Any) -> None:  # noqa: ANN401 - Jinja2 does not say its name aloud
        """Load the compiled template; Jinja2 compares the checksum."""
        with contextlib.suppress(OSError), _place(bucket.key).open("rb") as stream:
            bucket.load_bytecode(stream)

    def dump_bytecode(self, bucket: Any) -> None:  # noqa: ANN401 - as above
        """Store a compiled template, unless Python must not write bytecode."""
        if sys.dont_write_bytecode:
            return
        place = _place(bucket.key)
        with contextlib.suppress(OSError, StorageError):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomically(place, bucket.bytecode_to_string())

    def get_source_checksum(self, source: str) -> str:
        """Return a digest of everything that compiling depends on, this file's options included."""
        parts = (jinja2.__version__, Path(__file__).read_text(encoding="utf-8"), source)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _place(key: str) -> Path:
    return Path(importlib.util.cache_from_source(str(Path(__file__).with_name(_TEMPLATES) / f"{key}.py")))


def template_environment(fit: Callable[[str], str]) -> jinja2.Environment:
    """Return an environment of templates; it escapes what `fit` makes of a text, except `Markup`."""

    # With the context argument, Jinja2 calls it only when a template is filled in, not when one is compiled. The same
    # holds for filters if `optimized` is off.
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
