"""Print the lowest version that paritygate allows of each dependency, as constraints for pip.

pip always takes the newest version; `pip install --constraint` with these lines takes the oldest. The
arguments are the extras to cover beside the core. Reads the installed paritygate's metadata.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys

_REQUIREMENT = re.compile(
    r"""(?P<name>[\w.-]+)(\[[\w,-]+\])?>=(?P<version>[\w.]+)(\s*;\s*extra\s*==\s*["'](?P<extra>[\w-]+)["'])?"""
)


def lowest_constraints(requirements: list[str], extras: set[str]) -> list[str]:
    """Return one `name==version` per requirement of the core and of `extras`, in the order given.

    Raises:
        ValueError: A requirement is not of the form `name>=version`, so its lowest version is unknown.
    """
    lines = []
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement)
        if match is None:
            msg = f"{requirement!r} names no lowest version (allowed: name>=version)"
            raise ValueError(msg)
        if match["extra"] is None or match["extra"] in extras:
            lines.append(f"{match['name']}=={match['version']}")
    return lines


if __name__ == "__main__":
    for line in lowest_constraints(importlib.metadata.requires("paritygate") or [], set(sys.argv[1:])):
        print(line)
