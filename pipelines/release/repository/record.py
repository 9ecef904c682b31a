"""Describe one record of a model's log in its stored form.

Records of schema 2 form a chain: each holds a digest of itself and names that of the record before it. Those of schema
1, which 0.1.0 wrote, hold neither; the record after the last of them names the digest of its bytes. Schema 3 marks the
collection of an upload that was never released: earlier versions would take it for a corrupt log.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.codec import from_data, to_data
from paritygate.files import digest_of_json
from paritygate.text import StrEnum

_FIRST_SCHEMA = 1
CHAINED_SCHEMA = 2
UPLOAD_SCHEMA = 3
_KNOWN = (_FIRST_SCHEMA, CHAINED_SCHEMA, UPLOAD_SCHEMA)


class RecordKind(StrEnum):
    """List the kinds of events."""

    RELEASED = "released"
    ALIAS_MOVED = "alias_moved"
    ROLLED_BACK = "rolled_back"
    COLLECTED = "collected"


class Record(Struct, frozen=True, kw_only=True):
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
    predecessor: str | None = None  # digest of the record before; None for the first, and for schema 1
    digest: str = ""  # of this record; empty until it is stored

    def after(self, before: Record | None) -> Record:
        """Return the record as it is stored after `before`, or as the first one if that is None."""
        linked = replace(self, predecessor=None if before is None else before.digest)
        return replace(linked, digest=digest_of_record(to_data(linked)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """Return the record in a file of the log; one of schema 1 has no digest yet.

        Raises:
            ValueError: It is not a record, or its schema is unknown to this version of paritygate.
        """
        schema = data["schema"]
        if schema == _FIRST_SCHEMA:
            # A record of the first schema moves at most one alias, to the version that it names.
            version, alias = data["version"], data["alias"]
            if not isinstance(alias, str | None):
                raise ValueError(f"alias is {alias!r}, not text")
            is_release = data["kind"] == RecordKind.RELEASED
            aliases = {} if alias is None else {alias: version}
            data = {**data, "version": version if is_release else None, "aliases": aliases}
            if is_release and version is None:
                raise ValueError("no version")
        elif schema not in _KNOWN:
            is_newer = isinstance(schema, int) and schema > UPLOAD_SCHEMA
            by = ", so a newer version of paritygate wrote it" if is_newer else ""
            raise ValueError(f"its schema is {schema!r}{by} (known: {', '.join(map(str, _KNOWN))})")
        return from_data(cls, data)


def digest_of_record(data: Mapping[str, Any]) -> str:
    """Return the digest over all fields of a record of schema 2 or 3 except its own digest."""
    return digest_of_json({key: value for key, value in data.items() if key != "digest"})


def utc_now() -> str:
    """Return the time as records hold it."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
