"""Run an OpenVINO model on the CPU, compiled with the settings file next to it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.errors import BackendError
from paritygate.machine import device_name
from paritygate.models.loading import LoadedModel
from paritygate.models.openvino.model import (
    import_openvino,
    openvino_reason,
    openvino_version,
    precision_of_openvino,
    read_openvino,
    settings_file,
    signature_of_openvino,
)
from paritygate.models.openvino.settings import DEFAULT_HINT, CompiledOpenvino, compile_openvino, read_settings
from paritygate.precision import Precision
from paritygate.signature import Signature, rename_signature
from paritygate.validate.runners.runner import ALL_THERE_IS, Runner, RuntimeFacts

_PRECISION_OF_HINT = {"bf16": Precision.BF16, "f16": Precision.FP16}
_BFLOAT16 = "bfloat16"
_THREADS = "INFERENCE_NUM_THREADS"


def open_model(loaded: LoadedModel) -> OpenvinoRunner:
    """Return the OpenVINO model, compiled for the CPU in the precision of its settings file, else in f32.

    It reads all weights for their precision. BackendError is raised where OpenVINO refuses the model, the CPU does not
    compute in the precision, or the device is not the CPU.
    """
    import_openvino()
    if loaded.device != "cpu":
        raise BackendError(f"OpenVINO models are run on the cpu, not on {loaded.device!r}", hint="run it on device cpu")
    path = loaded.ref.path
    network = read_openvino(path)
    own = signature_of_openvino(network, loaded.ref.rename)
    served = rename_signature(own, loaded.ref.rename)
    weights = precision_of_openvino(network)
    settings = read_settings(path)
    compiled = compile_openvino(network, settings)
    facts = RuntimeFacts(
        runtime="openvino",
        version=openvino_version(),
        device=device_name(loaded.device),
        precision_found=_precision_found(compiled, weights),
        optimisation=f"{compiled.mode}, {compiled.hint}",
        notes=tuple(_notes(path, compiled, weights, has_settings=settings is not None)),
    )
    return OpenvinoRunner(
        compiled=compiled.model,
        served=served,
        facts=facts,
        compile_for_one_thread=functools.partial(_compile_for_one_thread, path, settings),
    )


def _compile_for_one_thread(path: Path, settings: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - no types
    compiled = compile_openvino(read_openvino(path), {**(settings or {}), _THREADS: 1}).model
    threads = compiled.get_property(_THREADS)
    if threads != 1:
        msg = f"OpenVINO uses {threads} threads, but one was requested"
        raise BackendError(msg, hint=f"remove NUM_STREAMS and {_THREADS} from the settings file beside the model")
    return compiled


def _precision_found(compiled: CompiledOpenvino, weights: Precision | None) -> Precision:
    """Return the precision in which the model computes; if its weights are lower, theirs."""
    if weights is Precision.INT8:
        return weights
    is_lower = compiled.operators.get(compiled.hint, 0) > 0 or compiled.has_bodies
    if compiled.hint in _PRECISION_OF_HINT and is_lower:
        return _PRECISION_OF_HINT[compiled.hint]
    return weights or Precision.FP32


def _notes(path: Path, compiled: CompiledOpenvino, weights: Precision | None, *, has_settings: bool) -> list[str]:
    notes = []
    if compiled.hint != DEFAULT_HINT or weights is Precision.INT8:
        notes.append(f"OpenVINO runs its operators in these precisions: {compiled.describe_operators()}")
    if not has_settings:
        notes.append(
            f"it has no settings file ({settings_file(path).name}) and was compiled for {DEFAULT_HINT}: "
            "a server that sets no precision hint may run it in another precision"
        )
    if weights in {Precision.FP16, Precision.BF16, Precision.MIXED}:
        notes.append(f"its weights are of precision {weights}")
    return notes


class OpenvinoRunner(Runner):
    """One OpenVINO model in one inference request."""

    _what = "OpenVINO failed"

    def __init__(
        self,
        *,
        compiled: Any,  # noqa: ANN401 - no types
        served: Signature,
        facts: RuntimeFacts,
        compile_for_one_thread: Callable[[], Any],
    ) -> None:
        super().__init__(served, facts)
        self._compiled = compiled
        self._compile_for_one_thread = compile_for_one_thread
        self._request = compiled.create_infer_request()

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        # By position, because a name served need not be one that OpenVINO knows.
        tensors = {index: _tensor(array) for index, array in enumerate(feed.values())}
        # Copies, because the request writes its next outputs to the same memory.
        arrays = self._request.infer(tensors, share_outputs=False).to_tuple()
        return [_array(array, spec.dtype) for spec, array in zip(self._served.outputs, arrays, strict=True)]

    def _reason(self, err: Exception) -> str:
        return openvino_reason(err)

    def on_one_thread(self) -> contextlib.AbstractContextManager[OpenvinoRunner] | str:
        """Return an opener of the model compiled for one thread, or why there is none."""
        return self._compiled_again() if self._compiled.get_property(_THREADS) > 1 else ALL_THERE_IS

    @contextlib.contextmanager
    def _compiled_again(self) -> Iterator[OpenvinoRunner]:
        yield OpenvinoRunner(
            compiled=self._compile_for_one_thread(),
            served=self._served,
            facts=self._facts,
            compile_for_one_thread=self._compile_for_one_thread,
        )


def _tensor(array: NDArray[Any]) -> Any:  # noqa: ANN401 - an openvino.Tensor
    import openvino

    # Copies, because an operator may change its input in place.
    if array.dtype.name == _BFLOAT16:
        own = np.array(array, order="C")
        return openvino.Tensor(own.view(np.uint16), own.shape, openvino.Type.bf16)
    return openvino.Tensor(np.asarray(array, order="C"), shared_memory=False)


def _array(array: NDArray[Any], dtype: str) -> NDArray[np.generic]:
    if dtype != _BFLOAT16:
        return array
    import ml_dtypes

    # NumPy has no bfloat16, and OpenVINO returns its bytes as float16.
    return array.view(np.dtype(ml_dtypes.bfloat16))
