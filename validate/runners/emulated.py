"""Run an ONNX file as a device of lower precision would, on the CPU: the judge for a device that is absent.

ONNX Runtime's CPU provider computes float16 graphs in float32 and does not run bfloat16 ones at all. Here every
value that the device would hold in lower precision is really rounded to it, after every operator and in and out
of the model, while an operator's own sums are float32, as on tensor cores. A model that overflows in half
precision comes out non-finite. This predicts a device; it does not stand for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from paritygate.backends import require_backend
from paritygate.errors import BackendError, UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.onnx.file import precision_of_onnx, read_onnx, signature_of_onnx
from paritygate.precision import Precision
from paritygate.signature import Signature, rename_signature
from paritygate.validate.emulation.canary import VALUES, canary_alone, check_canary
from paritygate.validate.emulation.graph import EmulatedGraph, emulate
from paritygate.validate.runners.onnxruntime.runner import reason_of_onnxruntime
from paritygate.validate.runners.runner import Runner, RuntimeFacts

if TYPE_CHECKING:
    import onnx
    import onnxruntime
    from numpy.typing import NDArray

__all__ = ["EmulatedRunner", "emulated_facts", "open_emulated", "open_session"]

_LOW_DTYPES: Mapping[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
_FATAL = 4
# No operators are fused: the rounding is between them.
_LEVEL = "ORT_ENABLE_BASIC"
_SHOWN = 5


def open_emulated(loaded: LoadedModel, precision: Precision) -> EmulatedRunner:
    """Return the ONNX file, to be run as it would be in the precision.

    Args:
        loaded: A float32 model, of which then every float32 tensor is rounded; or an artifact with tensors of lower
            precision, of which these are. `validate.emulation.graph` says what exactly.
        precision: `fp16` or `bf16`, the artifact's own if it has one; `mixed` for an artifact that may hold both.

    Raises:
        MissingBackendError: ONNX Runtime is not installed.
        InputFileError: The file is no ONNX model, or its external data is missing, cut off or elsewhere.
        UsageError: The precision cannot be emulated or is not the artifact's, the device is not `cpu`, or a name to
            be renamed is not in the model.
        BackendError: The model cannot be emulated, ONNX Runtime refused it, or the canary shows that it does not
            round.
    """
    require_backend("onnxruntime")
    if loaded.device != "cpu":
        msg = f"a precision is emulated on the cpu, not on {loaded.device!r}"
        raise UsageError(msg, hint="run the artifact itself on that device")
    path = loaded.ref.path
    proto = read_onnx(path)
    own = signature_of_onnx(proto)
    served = rename_signature(own, loaded.ref.rename)
    stored = precision_of_onnx(proto, path.parent)
    graph = emulate(proto, path.parent, precision)
    _run_canary_alone(tuple(graph.canary_outputs))
    session = open_session(graph.model, graph.weights, str(path))
    # The weights of an original were rounded before they ran.
    found = precision if graph.is_original else stored
    facts = emulated_facts(session, graph, precision, precision_found=found)
    return EmulatedRunner(session=session, graph=graph, own=own, served=served, facts=facts)


def _run_canary_alone(precisions: tuple[Precision, ...]) -> None:
    """Check that a session like those of the emulated graphs rounds.

    Raises:
        BackendError: It does not.
    """
    canary, fed, outputs = canary_alone(precisions)
    session = open_session(canary, {}, "the canary")
    for precision, found in zip(outputs, session.run(list(outputs.values()), {fed: VALUES}), strict=True):
        check_canary(found, precision)


def open_session(
    graph: onnx.ModelProto, weights: Mapping[str, NDArray[np.generic]], name: str, *, level: str = _LEVEL
) -> onnxruntime.InferenceSession:
    """Return the session of a graph whose values are rounded, on the CPU and with its operators unfused.

    Raises:
        BackendError: ONNX Runtime refused it; the message calls it `name`.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.use_deterministic_compute = True
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    if weights:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
    try:
        return onnxruntime.InferenceSession(
            graph.SerializeToString(), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as err:
        msg = (
            f"onnxruntime {onnxruntime.__version__} refused the emulated graph of {name}: {reason_of_onnxruntime(err)}"
        )
        raise BackendError(msg, hint="export the model again with another opset or exporter") from err


def emulated_facts(
    session: onnxruntime.InferenceSession, graph: EmulatedGraph, precision: Precision, *, precision_found: Precision
) -> RuntimeFacts:
    """Return what runs, and how much of it was rounded."""
    import onnxruntime

    level = session.get_session_options().graph_optimization_level
    return RuntimeFacts(
        runtime="onnxruntime",
        version=onnxruntime.__version__,
        device=f"emulated:{precision}",
        precision_found=precision_found,
        optimisation=level.name.removeprefix("ORT_ENABLE_").lower(),
        notes=tuple(_notes(graph, precision)),
    )


def _notes(graph: EmulatedGraph, precision: Precision) -> list[str]:
    every = f"every float32 tensor was rounded to {precision}"
    some = (
        f"operator results that the file has in lower precision ({graph.rounded}) were rounded to it, "
        f"those in float32 or float64 ({graph.unrounded}) were not"
    )
    extent = every if graph.is_original else some
    notes = [f"{precision} was emulated on the CPU: {extent}; sums inside an operator are float32"]
    if graph.clamped:
        tensors = _listed([f"{name} ({count})" for name, count in graph.clamped.items()])
        notes.append(f"weights beyond the range of {precision} were brought into it, as converters do: {tensors}")
    if graph.with_values_inside:
        operators = _listed(graph.with_values_inside)
        notes.append(f"of these operators only results were rounded, a device may round values inside: {operators}")
    return notes


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


class EmulatedRunner(Runner):
    """One ONNX model in one session, its values rounded; the device is `emulated:PRECISION`, which no machine is."""

    _what = "onnxruntime failed in emulation"

    def __init__(
        self,
        *,
        session: onnxruntime.InferenceSession,
        graph: EmulatedGraph,
        own: Signature,
        served: Signature,
        facts: RuntimeFacts,
    ) -> None:
        super().__init__(served, facts, own)
        self._session = session
        # Not the graph itself, which holds the weights once more.
        self._input_names = graph.inputs
        self._canary_input = graph.canary_input
        self._canary_outputs = graph.canary_outputs

    def _call(self, feed: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        return self._fetch(feed)[0]

    def _fetch(
        self, feed: Mapping[str, NDArray[np.generic]], besides: Sequence[str] = ()
    ) -> tuple[list[NDArray[np.generic]], list[NDArray[Any]]]:
        """Return the outputs in the dtypes of the file, and other values of the graph, by their names, besides.

        Raises:
            BackendError: The canary shows that values were not rounded.
        """
        arrays = {self._input_names[name]: _widened(array) for name, array in feed.items()}
        arrays[self._canary_input] = VALUES
        own = [spec.name for spec in self._own.outputs]
        canaries = list(self._canary_outputs.values())
        found = self._session.run([*own, *canaries, *besides], arrays)
        end = len(own) + len(canaries)
        for precision, canary in zip(self._canary_outputs, found[len(own) : end], strict=True):
            check_canary(canary, precision)
        outputs = [
            _narrowed(array, spec.dtype) for spec, array in zip(self._own.outputs, found[: len(own)], strict=True)
        ]
        return outputs, list(found[end:])

    def _reason(self, err: Exception) -> str:
        return reason_of_onnxruntime(err)


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    wide = array.astype(np.float32) if array.dtype.name in _LOW_DTYPES else array
    return np.asarray(wide, order="C")


def _narrowed(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    # Rounded values are those of the lower precision already: nothing changes but the dtype.
    return array.astype(_LOW_DTYPES[dtype]) if dtype in _LOW_DTYPES else array
