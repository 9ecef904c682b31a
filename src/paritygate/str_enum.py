"""The base of enumerations of texts; Python has it from 3.11 on."""

from __future__ import annotations

from enum import Enum


class StrEnum(str, Enum):
    """A closed set of texts, each written as its value."""

    def __str__(self) -> str:
        return str(self.value)
