"""The table of all probes: those that derive inputs, and those that run the same rows in other sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from paritygate.errors import UsageError
from paritygate.text import meant, nearest_first

# The session probes repeat the recorded batches of this probe.
ASKED_AGAIN = "batches"


class ProbeKind(Struct, frozen=True, kw_only=True):
    """A row of the table: the probe's name, its module, the faults it finds, and why it may have nothing to derive."""

    name: str
    module: str
    looks_for: str
    missing: str = ""


def _kind(name: str, looks_for: str, missing: str) -> ProbeKind:
    return ProbeKind(
        name=name, module=f"paritygate.validate.probes.derive.{name}", looks_for=looks_for, missing=missing
    )


def _session(name: str, module: str, looks_for: str) -> ProbeKind:
    return ProbeKind(name=name, module=f"paritygate.validate.probes.sessions.{module}", looks_for=looks_for)


PROBES: Mapping[str, ProbeKind] = {
    kind.name: kind
    for kind in (
        _kind(
            "batches",
            "rows that depend on the rows beside them, on their position or on how many they are",
            "no input has rows",
        ),
        _kind("shapes", "sizes that were traced as constants", "no dim but that of the rows has another size"),
        _kind(
            "masks",
            "masks that are dropped, or taken for filled up on the right",
            "no input with rows is a mask of positions, a length, or an id with an id for padding",
        ),
        _kind(
            "ids",
            "rows of embeddings and entries of vocabularies that are lost, ids that are rounded or cut",
            "no input with rows is an id, or is looked up in a table",
        ),
        _kind(
            "values",
            "rare values: zeros, negative, constant, tied, large, missing",
            "no input holds numbers, pictures or lengths",
        ),
        _kind(
            "flat",
            "rows with one value all over, as of an idle sensor or a blank picture, that are divided by their spread",
            "no input holds numbers or pictures whose rows have several values",
        ),
        _kind("sensitivity", "inputs that are ignored or swapped", "no two rows of the samples have one shape"),
    )
}
SESSION_PROBES: Mapping[str, ProbeKind] = {
    kind.name: kind
    for kind in (
        _session("repeats", "repeats", "answers that change from call to call"),
        _session("concurrent", "concurrency", "answers that change where several calls run at once"),
        _session("optimisation", "optimisation", "graph optimisations that change the answers"),
        _session("fresh", "fresh", "outputs that depend on what the process did before"),
    )
}
ALL_PROBES: Mapping[str, ProbeKind] = {**PROBES, **SESSION_PROBES}


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the probes named, each once, in the order of the table."""
    wanted = set(names)
    return tuple(name for name in ALL_PROBES if name in wanted)


def probes_named(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the named probes in order, () for `none` alone and None for None; raise UsageError for other names."""
    if given is None:
        return None
    names = tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else tuple(given)
    if names == ("none",):
        return ()
    for name in names:
        if name not in ALL_PROBES:
            msg = f"{name!r} is not a probe (allowed: none, {', '.join(nearest_first(name, ALL_PROBES))})"
            raise UsageError(msg, hint=f"name some of these probes, such as batches,masks{meant(name, ALL_PROBES)}")
    return in_order(names)


def to_record(names: Iterable[str]) -> tuple[str, ...]:
    """Return the probes whose reference outputs are needed to run the named ones."""
    wanted = set(names)
    again = {ASKED_AGAIN} if wanted & set(SESSION_PROBES) else set()
    return tuple(name for name in PROBES if name in wanted | again)
