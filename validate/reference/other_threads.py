"""Asks the reference for some rows again on one thread, once the samples are through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import ParitygateError
from paritygate.validate.reference.noise_floor import largest_difference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.reference.profile import OutputProfile
    from paritygate.validate.reference.recording import StoredBatch
    from paritygate.validate.runners.runner import Runner

    Arrays = Mapping[str, NDArray[np.generic]]

__all__ = ["OtherThreads"]

# Rows that are answered on one thread; a first batch of fixed size may have more.
_ROWS = 32


class OtherThreads:
    """Keeps the inputs of the first rows that were run twice, and asks them once more on one thread."""

    def __init__(self, runner: Runner, blank: Callable[[Arrays, Arrays], Arrays] = lambda outputs, _: outputs) -> None:
        """Begin.

        Args:
            runner: The reference.
            blank: Puts zeros into outputs where, by the inputs, they do not count, as in what it is compared with.
        """
        self._runner = runner
        self._blank = blank
        self._kept: list[dict[str, NDArray[np.generic]]] = []
        self._rows_left = _ROWS
        self.why_not = ""

    def keep(self, inputs: Arrays, rows: int) -> None:
        """Keep a copy of what was run twice, while there are rows left.

        Args:
            inputs: The inputs of the batch, cut to the rows that were run twice.
            rows: How many these are.
        """
        if self._kept and rows > self._rows_left:
            # No later one is taken either: those kept are the first that were run twice.
            self._rows_left = 0
            return
        self._rows_left -= rows
        self._kept.append({name: np.array(array, order="C") for name, array in inputs.items()})

    def measure(
        self, batches: Iterable[StoredBatch], profiles: Mapping[str, OutputProfile]
    ) -> dict[str, NDArray[np.float64]]:
        """Return the largest difference of an answer on one thread, by float output, one a channel.

        Empty where it was not measured: `why_not` then says why. What was kept is dropped.

        Args:
            batches: What was run twice, in the order in which it was kept: outputs by `first/NAME`.
            profiles: The profile of each output.
        """
        kept, self._kept = self._kept, []
        floats = [profile for profile in profiles.values() if profile.is_float]
        opened = self._runner.on_one_thread() if floats else ""
        if isinstance(opened, str):
            self.why_not = opened
            return {}
        largest = {profile.name: np.zeros(profile.channels) for profile in floats}
        try:
            with opened as alone:
                for inputs, batch in zip(kept, batches, strict=False):
                    answer = self._blank(alone.run(inputs), inputs)
                    for profile in floats:
                        pair = answer[profile.name], batch.outputs[f"first/{profile.name}"]
                        found = largest_difference(*pair, profile)
                        largest[profile.name] = np.maximum(largest[profile.name], found)
        except ParitygateError as err:
            self.why_not = f"it does not answer on one thread ({err})"
            return {}
        return largest
