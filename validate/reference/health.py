"""One finding about a reference: whether it is fit to judge by, or what its outputs depend on."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from paritygate.validate.measure.check import Kind
from paritygate.validate.words.sentence import Sentence, render, say


class Health(Struct, frozen=True, kw_only=True):
    """One finding: its name among the checks, how it came about, and its sentences."""

    name: str
    kind: Kind = Kind.MEASURED
    words: tuple[Sentence, ...]

    @property
    def as_text(self) -> tuple[str, str]:
        """Return its name and its sentence."""
        return self.name, render(self.words)


def health_of_text(pairs: Iterable[tuple[str, str]]) -> tuple[Health, ...]:
    """Return the findings of a recording from before kinds existed, from its pairs `(name, sentence)`."""
    kinds = {"not measured": Kind.NOT_MEASURED, "depends on": Kind.DEPENDS}
    return tuple(
        Health(
            name=name,
            kind=next((kind for start, kind in kinds.items() if text.startswith(start)), Kind.MEASURED),
            words=say("text", text=text),
        )
        for name, text in pairs
    )
