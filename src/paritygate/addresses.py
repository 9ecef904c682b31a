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
# Each of the first two matches every address, with a secret or without, to read no text more than once.
_WHOLE = re.compile(rf"{_SCHEME})({_CHARACTER}*)", re.IGNORECASE)
_QUERY = re.compile(rf"{_SCHEME}[^\s'\"?]*)(\?{_CHARACTER}+)?", re.IGNORECASE)
_USER_WITH_BLANKS = re.compile(rf"{_SCHEME}){_BLANKS}@", re.IGNORECASE)
# The same for an address without a scheme. The bounds keep the search fast in a long text without blanks.
_BARE_USER = re.compile(r"[^\s/:@'\"*]{1,200}:[^\s/@'\"]{1,200}@(?=[\w.-])")


def without_secrets(text: str) -> str:
    """Return a text in which addresses have `***` for a user with password, and for a query."""
    if "@" not in text and "?" not in text:
        return text
    hidden = _USER_WITH_BLANKS.sub(rf"\1{_HIDDEN}@", _WHOLE.sub(_without_user, text))
    hidden = _QUERY.sub(lambda found: f"{found[1]}?{_HIDDEN}" if found[2] else found[0], hidden)
    return _BARE_USER.sub(f"{_HIDDEN}@", hidden)


def _without_user(found: re.Match[str]) -> str:
    _, at, rest = found[2].rpartition("@")
    return f"{found[1]}{_HIDDEN}@{rest}" if at else found[0]


def shown_address(text: str) -> str:
    """Return a known address for messages, whatever characters it holds, blanks included."""
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        scheme, rest = "", text
    address, *query = re.split("[?#]", rest.rpartition("@")[2], maxsplit=1)
    user = f"{_HIDDEN}@" if "@" in rest else ""
    return f"{scheme}{slashes}{user}{address}{'?' + _HIDDEN if query else ''}"
