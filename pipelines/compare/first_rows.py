"""The samples before anything is made: the first batch, which a conversion tries its model with, and all of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from paritygate.validate.samples.samples import SampleSource, open_samples

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch

__all__ = ["FirstRows", "first_rows", "readable_batches"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstRows:
    """Real inputs, or why there are none.

    Attributes:
        batch: The first batch; None where there is none.
        note: What the user should know.
    """

    batch: Batch | None = None
    note: str | None = None

    @property
    def inputs(self) -> Mapping[str, NDArray[np.generic]]:
        """The inputs by the names served; empty where there are none."""
        return {} if self.batch is None else self.batch.inputs


def first_rows(source: SampleSource) -> FirstRows:
    """Return the first batch of the samples; samples that cannot be read stop no conversion."""
    try:
        # Closed at once: what the user's function holds open is not held while the model is converted.
        with closing(cast("Generator[Batch]", open_samples(source)())) as batches:
            batch = next(batches, None)
    except (Exception, SystemExit) as err:  # noqa: BLE001 - the recording says what is wrong with them
        why = (str(err).strip() or type(err).__name__).splitlines()[0]
        return FirstRows(note=f"it was traced and tried with made-up inputs only: {why}")
    return FirstRows(batch=batch)


def readable_batches(source: SampleSource) -> Iterator[Batch]:
    """Yield the batches of the samples, up to where they cannot be read: the recording says why."""
    try:
        yield from open_samples(source)()
    except (Exception, SystemExit):  # noqa: BLE001 - whatever the user's function raises
        return
