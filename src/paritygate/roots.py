"""Name the place of a repository: a folder, or the address of a prefix in an object store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

from paritygate.addresses import shown_address
from paritygate.errors import UsageError

SCHEMES = ("s3", "gs", "az")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}")
# What no key needs, and what a server may decode into something else.
_ODD = re.compile(r"[\x00-\x20\x7f\\%#?*<>|\"'`{}^~\[\]]|[^\x00-\x7f]")


class Address(str):
    """The address of a prefix, such as `s3://models/prod`; it holds no credentials, and joins names as a path does."""

    __slots__ = ()

    def __truediv__(self, name: str) -> Address:
        return Address(f"{self}/{name}")

    @property
    def bucket(self) -> str:
        """The scheme with the bucket, or with Azure's container."""
        return "/".join(self.split("/", 3)[:3])

    @property
    def prefix(self) -> str:
        """The part after the bucket; may be empty."""
        return self[len(self.bucket) + 1 :]


Root: TypeAlias = Path | Address


def absolute(place: Root) -> Root:
    """Return a place as it is known from everywhere on this machine."""
    return place.absolute() if isinstance(place, Path) else place


def is_address(text: str) -> bool:
    """Return whether a text is an address, and no path."""
    return bool(_ADDRESS.match(text))


def root_of(text: str) -> Root:
    """Return the place that a text names.

    Raises:
        UsageError: It is an address with credentials, a query, `..`, `//`, or of an unknown scheme.
    """
    if not is_address(text):
        return Path(text)
    scheme, _, rest = text.partition("://")
    bucket, _, prefix = rest.rstrip("/").partition("/")
    problem = _problem(scheme, rest, bucket, prefix)
    if problem:
        msg = f"the address {shown_address(text)} {problem}"
        raise UsageError(msg, hint=f"write {scheme if scheme in SCHEMES else SCHEMES[0]}://BUCKET/PREFIX")
    return Address(f"{scheme}://{bucket}/{prefix}".rstrip("/"))


def _problem(scheme: str, rest: str, bucket: str, prefix: str) -> str:
    """Return why an address is refused; empty if it is not."""
    parts = prefix.split("/") if prefix else []
    problems = {
        f"is of an unknown scheme (allowed: {', '.join(SCHEMES)})": scheme not in SCHEMES,
        "has credentials, which are taken from the environment only": "@" in rest,
        "has a query, in which credentials could be": "?" in rest or "#" in rest,
        "names no bucket (allowed: 2 to 222 of a-z, 0-9, '.', '_' and '-')": not _BUCKET.fullmatch(bucket),
        "has // in its prefix": "" in parts,
        "has . or .. in its prefix": bool({".", ".."} & {*parts}),
        "has a character in its prefix that is not allowed (allowed: printable ASCII without \\ % and quotes)": bool(
            _ODD.search(prefix)
        ),
    }
    return next((problem for problem, is_so in problems.items() if is_so), "")
