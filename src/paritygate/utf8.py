"""Check names for UTF-8; it imports nothing, because every command and child begins with it."""

from __future__ import annotations


def is_utf8(name: str) -> bool:
    """Return whether a name can be written as UTF-8; other bytes become halves of surrogate pairs."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
