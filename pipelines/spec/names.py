"""Check names of models, aliases, variants and reports that become folders or files of the repository."""

from __future__ import annotations

import re

from paritygate.errors import UsageError

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# Such as `batch=1,sequence=128`.
_FIXED_DIMS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[0-9]+(,[A-Za-z_][A-Za-z0-9_]*=[0-9]+)*")
_LONGEST = 200
_EXAMPLES = {"model": "klue-sts", "alias": "prod", "variant": "onnx-fp32", "report": "report.html"}


def check_name(what: str, name: str) -> str:
    """Return `name` if it is safe as one part of a path; `what` is the kind of name, for the message.

    Raises:
        UsageError: It is empty or too long, or starts with a dot or dash. Or it has `..`, a slash or another character
            with a meaning in file systems, shells or URLs.
    """
    if _SAFE_NAME.fullmatch(name) and ".." not in name:
        return name
    msg = (
        f"{what} name {name!r} is not allowed (1 to 100 of the characters A-Z a-z 0-9 . _ -, "
        "the first a letter or digit, no '..')"
    )
    raise UsageError(msg, hint=f"choose another name for the {what}, such as {_EXAMPLES[what]!r}")


def check_variant(name: str) -> str:
    """Return `name` if it is safe, with or without fixed dims after an `@`; else raise a `UsageError`."""
    plain, at, dims = name.partition("@")
    check_name("variant", plain if at else name)
    if at and (not _FIXED_DIMS.fullmatch(dims) or len(name) > _LONGEST):
        msg = f"variant name {name!r} is not allowed (after the @: DIM=SIZE,DIM=SIZE; at most {_LONGEST} long)"
        raise UsageError(msg, hint="name a variant such as 'onnx-fp32@batch=1,sequence=128'")
    return name


def check_alias(name: str) -> str:
    """Return `name` if it is safe and no version number; else raise a `UsageError`."""
    check_name("alias", name)
    if name.isdecimal():
        msg = f"alias name {name!r} is a number, which would be read as a version"
        raise UsageError(msg, hint="choose an alias name such as 'prod'")
    return name
