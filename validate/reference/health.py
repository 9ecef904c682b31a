"""One thing that was found of a reference: whether it can be judged by, and what its answers depend on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paritygate.validate.measure.check import Kind
from paritygate.validate.words.sentence import Sentence, render, say


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """One of them: its name among the checks, how it was found, and what is said of it."""

    name: str
    kind: Kind = Kind.MEASURED
    words: tuple[Sentence, ...]

    @property
    def as_text(self) -> tuple[str, str]:
        """Its name and its sentence."""
        return self.name, render(self.words)


def health_of_text(pairs: Iterable[tuple[str, str]]) -> tuple[Health, ...]:
    """Return what a recording of before kinds were written holds as `(name, sentence)`: its sentences are read here."""
    kinds = {"not measured": Kind.NOT_MEASURED, "depends on": Kind.DEPENDS}
    return tuple(
        Health(
            name=name,
            kind=next((kind for start, kind in kinds.items() if text.startswith(start)), Kind.MEASURED),
            words=say("text", text=text),
        )
        for name, text in pairs
    )
