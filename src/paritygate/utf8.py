"""Names of files that can be written into results; it imports nothing, since every command and child begins with it."""

from __future__ import annotations


def is_utf8(name: str) -> bool:
    """Return whether a name can be written as UTF-8; one of other bytes holds halves of surrogate pairs."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
