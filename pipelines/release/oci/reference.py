"""Parse the place of a release in an OCI registry, such as `registry.example/team/scores:3`."""

from __future__ import annotations

import re

from msgspec import Struct

from paritygate.addresses import shown_address
from paritygate.errors import UsageError

_PART = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
# As for Docker, the host has a dot or a port or is localhost, so `team/scores` names none.
_REFERENCE = re.compile(
    r"(?:oci://)?(?P<host>localhost(?=/)|[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d{1,5})?|[a-z0-9-]+:\d{1,5})"
    rf"/(?P<name>{_PART}(?:/{_PART})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>sha256:[0-9a-f]{{64}}))?",
    re.ASCII,
)
_LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3})(?::\d+)?", re.ASCII)


class Reference(Struct, frozen=True, kw_only=True):
    """Name a repository in a registry, and perhaps an artifact there; a digest counts more than a tag."""

    host: str
    name: str
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        # With both, the name of the tag would be taken for a password before the @.
        end = f"@{self.digest}" if self.digest else f":{self.tag}" if self.tag else ""
        return f"{self.host}/{self.name}{end}"


def is_loopback(host: str) -> bool:
    """Return whether a host, with its port if it has one, is this machine, which needs no TLS."""
    return _LOOPBACK.fullmatch(host) is not None


def parse_reference(text: str) -> Reference:
    """Return the reference that a text names; raise UsageError if it is none, or has credentials."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        expected = "HOST/NAME:TAG, where NAME is in lower case, without user and password"
        shown = shown_address(text.partition("@sha256:")[0])
        msg = f"{shown!r} names no place in a registry (expected {expected})"
        raise UsageError(msg, hint="write for example registry.example/team/scores:3, and log in by docker login")
    return Reference(**match.groupdict())
