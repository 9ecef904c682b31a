"""Compare the files found in a folder with those recorded, by name."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

_FEW = 8


class FileDifference(Struct, frozen=True, kw_only=True):
    """Hold the relative paths of files that differ from the record, each sorted."""

    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether everything is as recorded."""
        return not (self.changed or self.missing or self.added)

    def __str__(self) -> str:
        parts = [
            *(f"{name} was changed" for name in self.changed),
            *(f"{name} is missing" for name in self.missing),
            *(f"{name} was added" for name in self.added),
        ]
        # A message fits on a screen; the lists have all.
        more = [f"and {len(parts) - _FEW} more"] if len(parts) > _FEW else []
        return ", ".join([*parts[:_FEW], *more]) or "no difference"


def compare_files(found: Mapping[str, str], recorded: Mapping[str, str]) -> FileDifference:
    """Return how `found` differs from `recorded`, both digests by relative path."""
    return FileDifference(
        changed=tuple(sorted(name for name in recorded if name in found and found[name] != recorded[name])),
        missing=tuple(sorted(name for name in recorded if name not in found)),
        added=tuple(sorted(name for name in found if name not in recorded)),
    )
