"""Hold one batch of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The inputs or the outputs of a model, by name.
Arrays: TypeAlias = "Mapping[str, NDArray[np.generic]]"


class Batch(Struct, frozen=True, kw_only=True):
    """Some rows of real input, run through a model in one call."""

    inputs: Arrays  # axis 0 holds the rows
    ids: Sequence[str]  # one a row, unique over all batches, for reports
    gold: NDArray[np.generic] | None = None  # the known answers, shape (rows,)
    strata: Mapping[str, Sequence[str]] = field(default_factory=dict)  # {"source": ["news", "web"]}: a value a row
    case: str | None = None  # the batch's name in its file
    lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)  # by input: rows along axis 1 before padding
    answer_bytes: Mapping[str, int] = field(default_factory=dict)  # by output, of the reference

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.ids)

    def with_answer(self, outputs: Arrays) -> Batch:
        """Return the batch with the size of the reference's answer."""
        return replace(self, answer_bytes={name: array.nbytes for name, array in outputs.items()})
