"""What a first spec calls a model, which decides what is a version of what: runs and releases go by the name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from paritygate.importing import is_object_path

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
# A callable of these words alone says nothing of its model.
_GENERIC = frozenset(
    {"build", "create", "factory", "fn", "get", "init", "load", "main", "make", "model", "my", "net", "network", "new"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenName:
    """A name of a model.

    Attributes:
        name: The name.
        guess: What it was guessed from; empty where it was given.
    """

    name: str
    guess: str = ""


def guessed_name(model: str) -> GivenName:
    """Return a name of letters that names of models have, made of the file's, or the module's and the callable's."""
    if is_object_path(model):
        module, _, attribute = model.partition(":")
        own, made_of = _of_callable(module.rpartition(".")[2], attribute)
    else:
        own, made_of = Path(model).resolve().stem, "the file"
    found = _NOT_IN_NAMES.sub("-", own).strip("-._")
    name = re.sub(r"\.{2,}", ".", found)[:100] or "model"
    return GivenName(name=name, guess=f"after {made_of}; versions go by it, so give another model another name")


def _of_callable(module: str, attribute: str) -> tuple[str, str]:
    """Return a name made of a module and a callable, and what it is made of."""
    words = {word.lower() for word in _WORDS.findall(attribute)}
    # Of `scores:scores` once is enough.
    if words <= _GENERIC or attribute.lower() == module.lower():
        return module, "the module"
    return f"{module}-{attribute}", "the module and its callable"
