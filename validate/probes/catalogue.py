"""All probes there are: those that derive inputs, and those of the session, which ask the same rows in other ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paritygate.validate.probes.probe import PROBES, ProbeKind

__all__ = ["ALL_PROBES", "ASKED_AGAIN", "SESSION_PROBES", "in_order", "to_record"]

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


def to_record(names: Iterable[str]) -> tuple[str, ...]:
    """Return the probes that the reference has to answer for these to be asked."""
    wanted = set(names)
    again = {ASKED_AGAIN} if wanted & set(SESSION_PROBES) else set()
    return tuple(name for name in PROBES if name in wanted | again)
