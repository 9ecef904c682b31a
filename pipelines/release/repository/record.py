"""One record of a model's log, in the form in which it is stored.

Records of schema 2 form a chain: each holds a digest of itself and names that of the record before it. Those of
schema 1, which 0.1.0 wrote, hold neither; the record that follows the last of them names the digest of its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.files import digest_of_json

_FIRST_SCHEMA = 1
CHAINED_SCHEMA = 2


class RecordKind(str, Enum):
    """What happened."""

    RELEASED = "released"
    ALIAS_MOVED = "alias_moved"
    ROLLED_BACK = "rolled_back"
    COLLECTED = "collected"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One thing that happened to a model of the repository.

    Attributes:
        kind: What happened.
        time: When, UTC, ISO 8601. The order of records is that of their numbers, never that of times.
        version: The version that was released, or whose files were collected; None where only aliases were moved.
        aliases: The version that each alias which was moved points to from now on.
        manifest: Digest of the release's manifest.json; None unless something was released.
        reason: Why, in words.
        despite: Why it was released although its run failed; empty if the run passed.
        trust: Digest of the pack whose evidence was trusted; empty where all of it was made here.
        who: Who did it, as far as they said so.
        host: Where it was done, as far as they said so.
        schema: The form in which it is stored.
        predecessor: Digest of the record before it; None for the first, and for records of schema 1.
        digest: Digest of the record, which the next one names; empty until it is stored.
    """

    kind: RecordKind
    time: str
    version: int | None = None
    aliases: Mapping[str, int] = field(default_factory=dict)
    manifest: str | None = None
    reason: str = ""
    despite: str = ""
    trust: str = ""
    who: str = ""
    host: str = ""
    schema: int = CHAINED_SCHEMA
    predecessor: str | None = None
    digest: str = ""

    def after(self, before: Record | None) -> Record:
        """Return the record as it is stored after `before`, or as the first one if that is None."""
        linked = replace(self, schema=CHAINED_SCHEMA, predecessor=None if before is None else before.digest)
        return replace(linked, digest=digest_of_record(to_data(linked)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """Return the record that stands in a file of the log; one of schema 1 has no digest yet.

        Raises:
            ValueError: It is no record, or one of a schema that this version of paritygate does not know.
        """
        schema = data["schema"]
        if schema == _FIRST_SCHEMA:
            # A record of the first schema moves at most one alias, to the version that it names.
            version, alias = data["version"], data["alias"]
            if not isinstance(alias, str | None):
                msg = f"alias is {alias!r}, and no text"
                raise ValueError(msg)
            is_release = data["kind"] == RecordKind.RELEASED
            aliases = {} if alias is None else {alias: version}
            data = {**data, "version": version if is_release else None, "aliases": aliases}
            if is_release and version is None:
                msg = "no version"
                raise ValueError(msg)
        elif schema != CHAINED_SCHEMA:
            msg = f"its schema is {schema!r}, not {_FIRST_SCHEMA} or {CHAINED_SCHEMA}"
            raise ValueError(msg)
        return from_data(cls, data)


def digest_of_record(data: Mapping[str, Any]) -> str:
    """Return the digest over all that a record of schema 2 says, whatever digest it names."""
    return digest_of_json({key: value for key, value in data.items() if key != "digest"})


def utc_now() -> str:
    """Return the time as records hold it."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
