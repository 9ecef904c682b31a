"""Name a model in its first spec; runs and releases with one name are versions of one model."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from paritygate.importing import is_object_path

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
# A callable of only these words does not describe its model.
_GENERIC = frozenset(
    {"build", "create", "factory", "fn", "get", "init", "load", "main", "make", "model", "my", "net", "network", "new"}
)


class GivenName(Struct, frozen=True, kw_only=True):
    """A name of a model, and the origin of a guess."""

    name: str
    guess: str = ""


def guessed_name(model: str) -> GivenName:
    """Return a valid name made from the file, or from the module and the callable."""
    if is_object_path(model):
        module, _, attribute = model.partition(":")
        own, made_of = _of_callable(module.rpartition(".")[2], attribute)
    else:
        own, made_of = Path(model).resolve().stem, "the file"
    stem = _NOT_IN_NAMES.sub("-", own).strip("-._")
    name = re.sub(r"\.{2,}", ".", stem)[:100] or "model"
    return GivenName(name=name, guess=f"after {made_of}; versions go by it, so give another model another name")


def _of_callable(module: str, attribute: str) -> tuple[str, str]:
    """Return a name made from a module and a callable, and its origin."""
    words = {word.lower() for word in _WORDS.findall(attribute)}
    # Once is enough for `scores:scores`.
    if words <= _GENERIC or attribute.lower() == module.lower():
        return module, "the module"
    return f"{module}-{attribute}", "the module and its callable"
