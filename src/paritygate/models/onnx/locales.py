"""Explain the locales of StringNormalizer, which ONNX Runtime takes from the machine to change the case of letters."""

from __future__ import annotations

import re

# ONNX Runtime reports this in no other way. The name is en_US.UTF-8 where a model has none.
_MISSING = re.compile(r"Failed to construct locale with\s+name:(\w[\w.@-]*)")


def hint_on_locale(refusal: str) -> str:
    """Return a hint if `refusal`, ONNX Runtime's message, is about a missing locale; else an empty text."""
    match = _MISSING.search(refusal)
    if match is None:
        return ""
    name = match[1]
    return (
        f"install the locale {name}, wherever the model is to run: on Debian and Ubuntu, install the package locales, "
        f"then run {_definition(name)}; or export StringNormalizer with a locale that `locale -a` lists"
    )


def _definition(name: str) -> str:
    """Return the command that makes a locale, as an administrator."""
    language, _, characters = name.partition(".")
    # Debian's locale-gen reads a file and ignores arguments.
    return f"`localedef -i {language} -f {characters or 'UTF-8'} {name}`"
