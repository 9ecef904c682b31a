"""Parse sizes in bytes as people write them, such as `8GB` or `512 MiB`."""

from __future__ import annotations

import re

SIZES_ALLOWED = "a number above 0 with kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 8GB"
_SIZE = re.compile(r"(?P<number>\d{1,9}(\.\d{1,9})?) ?(?P<unit>[kmgt]i?b)", re.ASCII | re.IGNORECASE)
_UNITS = {
    f"{letter}{form}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for form, base in (("b", 1000), ("ib", 1024))
}


def bytes_of(text: str) -> int | None:
    """Return the bytes of a size; None for a text that is not a size above 0."""
    match = _SIZE.fullmatch(text.strip())
    size = 0 if match is None else int(float(match["number"]) * _UNITS[match["unit"].lower()])
    return size if size > 0 else None
