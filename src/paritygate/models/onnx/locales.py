"""The locales that StringNormalizer changes the case of letters by: ONNX Runtime takes them from the machine."""

from __future__ import annotations

import re

# ONNX Runtime's own words: it has no other way to say it. The name is en_US.UTF-8 where a model says none.
_MISSING = re.compile(r"Failed to construct locale with\s+name:(\w[\w.@-]*)")


def hint_on_locale(refusal: str) -> str:
    """Return what to do where ONNX Runtime refused a model for a locale; empty where it was for something else.

    Args:
        refusal: What ONNX Runtime said.
    """
    found = _MISSING.search(refusal)
    if found is None:
        return ""
    name = found[1]
    return (
        f"install the locale {name}, wherever the model is to run: on Debian and Ubuntu, install the package locales, "
        f"then run {_definition(name)}; or export StringNormalizer with a locale that `locale -a` lists"
    )


def _definition(name: str) -> str:
    """Return the command that makes a locale, as an administrator."""
    language, _, characters = name.partition(".")
    # Debian's own locale-gen looks at no argument, but at a file.
    return f"`localedef -i {language} -f {characters or 'UTF-8'} {name}`"
