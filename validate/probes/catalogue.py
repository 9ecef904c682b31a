"""All probes there are: those that derive inputs, and those of the session, which ask the same rows in other ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paritygate.errors import UsageError
from paritygate.text import meant, nearest_first
from paritygate.validate.probes.probe import PROBES, ProbeKind

# The probe whose recorded batches are asked again by those of the session.
ASKED_AGAIN = "batches"


def _kind(name: str, module: str, looks_for: str) -> ProbeKind:
    return ProbeKind(name=name, module=f"paritygate.validate.probes.sessions.{module}", looks_for=looks_for)


SESSION_PROBES: Mapping[str, ProbeKind] = {
    kind.name: kind
    for kind in (
        _kind("repeats", "repeats", "answers that change from call to call"),
        _kind("concurrent", "concurrency", "answers that change where several calls run at once"),
        _kind("optimisation", "optimisation", "graph optimisations that change the answers"),
        _kind("fresh", "fresh", "answers that hang on what the process did before"),
    )
}
ALL_PROBES: Mapping[str, ProbeKind] = {**PROBES, **SESSION_PROBES}


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the probes named, each once, in the order of the table."""
    wanted = set(names)
    return tuple(name for name in ALL_PROBES if name in wanted)


def probes_named(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the probes named, in the order of the table; none of them for `none` alone, and None for None.

    Args:
        given: Their names, or one text with commas between them.

    Raises:
        UsageError: A name is no probe.
    """
    if given is None:
        return None
    names = tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else tuple(given)
    if names == ("none",):
        return ()
    for name in names:
        if name not in ALL_PROBES:
            msg = f"{name!r} is no probe (allowed: none, {', '.join(nearest_first(name, ALL_PROBES))})"
            raise UsageError(msg, hint=f"name probes of these, such as batches,masks{meant(name, ALL_PROBES)}")
    return in_order(names)


def to_record(names: Iterable[str]) -> tuple[str, ...]:
    """Return the probes that the reference has to answer for these to be asked."""
    wanted = set(names)
    again = {ASKED_AGAIN} if wanted & set(SESSION_PROBES) else set()
    return tuple(name for name in PROBES if name in wanted | again)
