"""Hold one batch of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Some rows of real input, run through a model in one call.

    Attributes:
        inputs: Array of each input by name; axis 0 holds the rows of the batch.
        ids: One id a row, unique over all batches, for reports.
        gold: The known answer of each row, shape `(rows,)`.

    `strata` has for each stratum its value in each row, such as `{"source": ["news", "web"]}`. `case` is the batch's
    name in its file. `lengths` has each row's length along axis 1 before padding. `answer_bytes` is the size of the
    reference's answer by output, if known.
    """

    inputs: Mapping[str, NDArray[np.generic]]
    ids: Sequence[str]
    gold: NDArray[np.generic] | None = None
    strata: Mapping[str, Sequence[str]] = field(default_factory=dict)
    case: str | None = None
    lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    answer_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.ids)

    def with_answer(self, outputs: Mapping[str, NDArray[np.generic]]) -> Batch:
        """Return the batch with the size of the reference's answer."""
        return replace(self, answer_bytes={name: array.nbytes for name, array in outputs.items()})
