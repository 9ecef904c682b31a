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

from paritygate.files import digest_of_json

__all__ = ["CHAINED_SCHEMA", "Record", "RecordKind", "digest_of_record", "utc_now"]

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
        return replace(linked, digest=digest_of_record(linked.to_json()))

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON data."""
        return {
            "schema": self.schema,
            "kind": str(self.kind),
            "time": self.time,
            "version": self.version,
            "aliases": dict(self.aliases),
            "manifest": self.manifest,
            "reason": self.reason,
            "despite": self.despite,
            "trust": self.trust,
            "who": self.who,
            "host": self.host,
            "predecessor": self.predecessor,
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """Return the record that stands in a file of the log; one of schema 1 has no digest yet.

        Raises:
            ValueError: The kind or the schema is not known to this version of paritygate, or a version is no number.
            KeyError: A field is missing.
            TypeError: A text is none, or the aliases are no mapping.
        """
        schema = data["schema"]
        if schema not in (_FIRST_SCHEMA, CHAINED_SCHEMA):
            msg = f"its schema is {schema!r}, not {_FIRST_SCHEMA} or {CHAINED_SCHEMA}"
            raise ValueError(msg)
        kind = RecordKind(data["kind"])
        version = data["version"]
        if schema == CHAINED_SCHEMA:
            aliases = data["aliases"]
            if not isinstance(aliases, Mapping):
                msg = f"its aliases are {aliases!r}, and no mapping"
                raise TypeError(msg)
        else:
            alias = _text_or_none(data, "alias")
            aliases = {} if alias is None else {alias: _whole(version)}
            version = _whole(version) if kind is RecordKind.RELEASED else None
        return cls(
            kind=kind,
            time=_text(data, "time"),
            version=None if version is None else _whole(version),
            aliases={str(alias): _whole(number) for alias, number in aliases.items()},
            manifest=_text_or_none(data, "manifest"),
            reason=_text(data, "reason"),
            despite=_text(data, "despite") if schema == CHAINED_SCHEMA else "",
            # Records from before packs were told apart lack it.
            trust=_text(data, "trust") if "trust" in data else "",
            who=_text(data, "who"),
            host=_text(data, "host"),
            schema=schema,
            predecessor=_text_or_none(data, "predecessor") if schema == CHAINED_SCHEMA else None,
            digest=_text(data, "digest") if schema == CHAINED_SCHEMA else "",
        )


def _text(data: Mapping[str, Any], name: str) -> str:
    if not isinstance(data[name], str):
        msg = f"its {name} is {data[name]!r}, and no text"
        raise TypeError(msg)
    return str(data[name])


def _text_or_none(data: Mapping[str, Any], name: str) -> str | None:
    return None if data[name] is None else _text(data, name)


def _whole(number: object) -> int:
    if type(number) is not int:
        msg = f"{number!r} is no version"
        raise ValueError(msg)
    return number


def digest_of_record(data: Mapping[str, Any]) -> str:
    """Return the digest over all that a record of schema 2 says, whatever digest it names."""
    return digest_of_json({key: value for key, value in data.items() if key != "digest"})


def utc_now() -> str:
    """Return the time as records hold it."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
