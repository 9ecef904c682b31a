"""Run what stands for an engine on the shapes alone that the engine takes.

An ONNX file answers batches of any size. Where it runs in an engine's place, what the engine would refuse is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paritygate.engine.record import EngineRecord
from paritygate.signature import Signature
from paritygate.validate.runners.engine.profile_limits import check_profile
from paritygate.validate.runners.interface import check_inputs
from paritygate.validate.runners.runner import Runner, RuntimeFacts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["WithinProfile"]


class WithinProfile:
    """A runner of the ONNX file that an engine was built from."""

    def __init__(self, runner: Runner, record: EngineRecord) -> None:
        """Wrap the runner.

        Args:
            runner: Of the file; its inputs and outputs are those of the engine.
            record: The engine's.
        """
        self._runner = runner
        self._record = record

    @property
    def signature(self) -> Signature:
        """Inputs and outputs of the engine, with the declared sizes of dims."""
        return self._record.signature

    @property
    def facts(self) -> RuntimeFacts:
        """What runs: the file."""
        return self._runner.facts

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name for one batch; the arrays belong to the caller.

        Raises:
            BackendError: The inputs are not those of the engine, or outside the shapes it was built for; or the
                runtime failed.
        """
        check_inputs(self.signature, inputs)
        check_profile(self.signature, self._record.profile, inputs)
        return self._runner.run(inputs)
