"""Graph optimisations of the runtime: the candidate runs without them."""

from __future__ import annotations

from collections.abc import Iterator

from paritygate.validate.causes.cause import Case, Trial


def trials(case: Case) -> Iterator[Trial]:
    """Yield the candidate without graph optimisations, if its runtime offers that."""
    if case.open_plain is not None:
        yield Trial(kind="optimisations", open=case.open_plain, is_opened=True)
