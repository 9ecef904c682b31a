"""A batch of real inputs: what samples are made of."""

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
        ids: One id a row, unique over all batches; it names the row in reports.
        gold: The known answer of each row, shape `(rows,)`, or None.
        strata: For each stratum its value in each row, such as `{"source": ["news", "web"]}`.
        case: Name of the batch where the file it comes from names it, else None.
        lengths: Of inputs whose rows were filled up to one length, how long each row was along axis 1 before.
        answer_bytes: How many bytes the reference's answer to it has, by output; empty where that is not known.
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
        """Return the batch with how large the reference's answer to it is."""
        return replace(self, answer_bytes={name: array.nbytes for name, array in outputs.items()})
