"""Hide users, passwords and queries of addresses in messages, because they may be secrets."""

from __future__ import annotations

import re

# The environment variable with the password of the key that signs releases.
SIGNING_PASSWORD = "PARITYGATE_SIGNING_PASSWORD"  # noqa: S105 - a name
_HIDDEN = "***"
# A path made from an address has one slash. A password may hold any character, so the last @ ends it. In JSON,
# slashes and quotes may be escaped.
_SCHEME = r"\b([a-z][a-z0-9+.-]{0,30}:(?:\\{0,3}/){1,2}"
_CHARACTER = r"(?:\\+[^\s\\]|[^\s'\"\\])"
# The text after the colon distinguishes a password with a blank from a port.
_BLANKS = r"[^\s/@'\":]{0,200}:(?!\d{1,5}(?:[/\s,;)]|$))[^\n'\"]{0,200}?"
_USER = re.compile(rf"{_SCHEME})(?:{_CHARACTER}*|{_BLANKS})@", re.IGNORECASE)
_QUERY = re.compile(rf"{_SCHEME}[^\s'\"?]*)\?{_CHARACTER}+", re.IGNORECASE)
# The same for an address without a scheme. The bounds keep the search fast in a long text without blanks.
_BARE_USER = re.compile(r"[^\s/:@'\"*]{1,200}:[^\s/@'\"]{1,200}@(?=[\w.-])")


def without_secrets(text: str) -> str:
    """Return a text in which addresses have `***` for a user with password, and for a query."""
    if "@" not in text and "?" not in text:
        return text
    hidden = _QUERY.sub(rf"\1?{_HIDDEN}", _USER.sub(rf"\1{_HIDDEN}@", text))
    return _BARE_USER.sub(f"{_HIDDEN}@", hidden)


def shown_address(text: str) -> str:
    """Return a known address for messages, whatever characters it holds, blanks included."""
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        scheme, rest = "", text
    address, *query = re.split("[?#]", rest.rpartition("@")[2], maxsplit=1)
    user = f"{_HIDDEN}@" if "@" in rest else ""
    return f"{scheme}{slashes}{user}{address}{'?' + _HIDDEN if query else ''}"
