"""One finding about a reference: whether it is fit to judge by, or what its outputs depend on."""

from __future__ import annotations

from msgspec import Struct

from paritygate.validate.measure.check import Kind
from paritygate.validate.words.sentence import Sentence, render


class Health(Struct, frozen=True, kw_only=True):
    """One finding: its name among the checks, how it came about, and its sentences."""

    name: str
    kind: Kind = Kind.MEASURED
    words: tuple[Sentence, ...]

    @property
    def as_text(self) -> tuple[str, str]:
        """Return its name and its sentence."""
        return self.name, render(self.words)
