"""One finding about a reference: whether it is fit to judge by, or what its outputs depend on."""

from __future__ import annotations

from dataclasses import dataclass

from paritygate.validate.measure.check import Kind
from paritygate.validate.words.sentence import Sentence, render


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """One finding: its name among the checks, how it came about, and its sentences."""

    name: str
    kind: Kind = Kind.MEASURED
    words: tuple[Sentence, ...]

    @property
    def as_text(self) -> tuple[str, str]:
        """Return its name and its sentence."""
        return self.name, render(self.words)
