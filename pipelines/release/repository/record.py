"""Describe one record of a model's log in its stored form.

Records form a chain: each holds a digest of itself and names that of the record before it. Schema 3 marks the
collection of an upload that was never released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.files import digest_of_json
from paritygate.text import StrEnum

CHAINED_SCHEMA = 2
UPLOAD_SCHEMA = 3
_KNOWN = (CHAINED_SCHEMA, UPLOAD_SCHEMA)


class RecordKind(StrEnum):
    """List the kinds of events."""

    RELEASED = "released"
    ALIAS_MOVED = "alias_moved"
    ROLLED_BACK = "rolled_back"
    COLLECTED = "collected"


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Hold one event of a model of the repository. Records are ordered by number, never by time."""

    kind: RecordKind
    time: str  # UTC, ISO 8601
    version: int | None = None  # released or collected; None where only aliases were moved
    aliases: Mapping[str, int] = field(default_factory=dict)  # the new version of each moved alias
    manifest: str | None = None  # digest of manifest.json; None unless something was released
    reason: str = ""
    despite: str = ""  # why it was released although its run failed
    trust: str = ""  # digest of the pack whose evidence was trusted
    signature: str | None = None  # digest of model.sig; None for an unsigned release
    who: str = ""
    host: str = ""
    schema: int = CHAINED_SCHEMA
    predecessor: str | None = None  # digest of the record before; None for the first
    digest: str = ""  # of this record; empty until it is stored

    def after(self, before: Record | None) -> Record:
        """Return the record as it is stored after `before`, or as the first one if that is None."""
        linked = replace(self, predecessor=None if before is None else before.digest)
        return replace(linked, digest=digest_of_record(to_data(linked)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """Return the record in a file of the log.

        Raises:
            ValueError: It is not a record, or its schema is unknown to this version of paritygate.
        """
        schema = data["schema"]
        if schema not in _KNOWN:
            is_newer = isinstance(schema, int) and schema > UPLOAD_SCHEMA
            by = ", so a newer version of paritygate wrote it" if is_newer else ""
            raise ValueError(f"its schema is {schema!r}{by} (known: {', '.join(map(str, _KNOWN))})")
        return from_data(cls, data)


def digest_of_record(data: Mapping[str, Any]) -> str:
    """Return the digest over all fields of a record except its own digest."""
    return digest_of_json({key: value for key, value in data.items() if key != "digest"})


def utc_now() -> str:
    """Return the time as records hold it."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
