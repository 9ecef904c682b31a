"""How the templates of a report are filled in: strictly, with every foreign text escaped."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jinja2

from paritygate.pipelines.report.figures import shorten

__all__ = ["Markup", "template_environment"]

# Of a reason above the tables: the whole of it stands with its variant.
_REASON_LENGTH = 300


class Markup(str):
    """Text that is markup already: Jinja2 asks for `__html__` before it escapes."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


@functools.cache
def template_environment(fit: Callable[[str], str]) -> jinja2.Environment:
    """Return what finds and fills in templates; made once.

    Args:
        fit: Makes a text fit to look at; what it returns is escaped for HTML, unless it is `Markup`.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paritygate.pipelines.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else fit(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shortened"] = functools.partial(shorten, length=_REASON_LENGTH)
    return environment
