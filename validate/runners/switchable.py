"""Run an ONNX model with any choice of its nodes in a lower precision, in one session."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Arrays
from paritygate.validate.runners.emulated import open_rounding_session
from paritygate.validate.runners.onnxruntime import reason_of_onnxruntime
from paritygate.validate.runners.runner import Runner, RuntimeFacts

if TYPE_CHECKING:
    import onnxruntime
    from numpy.typing import NDArray

    from paritygate.signature import Signature
    from paritygate.validate.emulation.switchable import SwitchableGraph


class SwitchableModel:
    """One session of a switchable graph, which `keeping` runs with some of its nodes in FP32."""

    def __init__(self, graph: SwitchableGraph, signature: Signature) -> None:
        """Open the session.

        Raises:
            BackendError: ONNX Runtime refused the graph.
        """
        import onnxruntime

        self.switches = graph.switches
        self._switch_input = graph.switch_input
        self._session = open_rounding_session(graph.model, graph.weights, "the switchable model")
        self._signature = signature
        self._facts = RuntimeFacts(runtime="onnxruntime", version=onnxruntime.__version__, device="emulated")

    def keeping(self, kept: Collection[str]) -> Runner:
        """Return the model with these nodes in FP32, and all other switches on."""
        is_low = np.array([name not in kept for name in self.switches], dtype=np.bool_)
        return _Keeping(self._session, {self._switch_input: is_low}, self._signature, self._facts)


class _Keeping(Runner):
    _what = "onnxruntime failed in emulation"

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        switches: Mapping[str, NDArray[np.bool_]],
        signature: Signature,
        facts: RuntimeFacts,
    ) -> None:
        super().__init__(signature, facts)
        self._session = session
        self._switches = switches

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        arrays = {name: np.asarray(array, order="C") for name, array in feed.items()}
        outputs: Sequence[NDArray[np.generic]] = self._session.run(
            [spec.name for spec in self.signature.outputs], {**arrays, **self._switches}
        )
        return outputs

    def _reason(self, err: Exception) -> str:
        return reason_of_onnxruntime(err)
