"""Word the facts that a converter recorded about an artifact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from paritygate.pipelines.report.figures import number
from paritygate.pipelines.report.tables.table import Table, facts

_OPERATOR = "operator"
# The keys of an attempt to export a PyTorch module.
_ATTEMPT = {"exporter", "said"}


def conversion_table(recorded: Mapping[str, Any]) -> Table | None:
    """Return the facts of a conversion by name, without empty ones; None if there are none."""
    named = [(name.replace("_", " "), fact_words(fact)) for name, fact in recorded.items()]
    rows = [(name, words) for name, words in named if words]
    return facts("How it was made", rows) if rows else None


def fact_words(fact: object) -> str:
    """Return JSON data as text, without its empty parts; nodes are counted by operator."""
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, int | float):
        return number(fact)
    if isinstance(fact, Mapping):
        return _mapping_words(fact)
    if isinstance(fact, Sequence) and not isinstance(fact, str):
        return _list_words(fact)
    return "" if fact is None else str(fact)


def _mapping_words(fact: Mapping[str, Any]) -> str:
    if set(fact) == _ATTEMPT:
        return f"{fact['exporter']}: {fact['said']}"
    parts = []
    for name, value in fact.items():
        words = fact_words(value)
        if words:
            is_group = isinstance(value, Mapping | list | tuple)
            parts.append(f"{name.replace('_', ' ')}{':' if is_group else ''} {words}")
    return ("; " if any(":" in part for part in parts) else ", ").join(parts)


def _list_words(fact: Sequence[Any]) -> str:
    if fact and all(isinstance(item, Mapping) and _OPERATOR in item for item in fact):
        counts = Counter(str(item[_OPERATOR]) for item in fact)
        return f"{number(len(fact))}: " + ", ".join(f"{number(count)} {name}" for name, count in counts.most_common())
    return "; ".join(words for item in fact if (words := fact_words(item)))
