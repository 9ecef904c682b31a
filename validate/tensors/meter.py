"""Limit a search by the tensors that it computes, so that its result depends on no machine."""

from __future__ import annotations


class BudgetSpentError(Exception):
    """Tell the search that its budget allows no other run of a model."""


class Meter:
    """Counts computed tensors, of all runs of both models together; `most` is None for no limit."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self.count = 0
        self.is_spent = False

    def take(self, tensors: int) -> None:
        """Count the tensors of the next run; raise `BudgetSpentError` if they are too many, and at every later call."""
        self.is_spent = self.is_spent or (self._most is not None and self.count + tensors > self._most)
        if self.is_spent:
            raise BudgetSpentError
        self.count += tensors
