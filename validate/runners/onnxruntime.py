"""Run an ONNX file in ONNX Runtime, on the CPU or on an NVIDIA GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.backends import require_backend
from paritygate.errors import BackendError, MissingBackendError
from paritygate.machine import device_name
from paritygate.onnx_file import precision_of_onnx, read_onnx, signature_of_onnx
from paritygate.onnx_graph import graphs_in, nodes_in
from paritygate.precision import Precision
from paritygate.signature import Signature, rename_signature
from paritygate.validate.runners.interface import check_inputs, describe_arrays, first_line
from paritygate.validate.runners.runner import ModelToRun, RuntimeFacts

if TYPE_CHECKING:
    import onnx
    import onnxruntime
    from numpy.typing import NDArray

__all__ = ["OnnxRuntimeRunner", "open_model"]

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
# What ONNX Runtime would log is in the exceptions as well: only what ends the process is printed.
_FATAL = 4
_BFLOAT16 = "bfloat16"
_ERROR_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")


def open_model(model: ModelToRun) -> OnnxRuntimeRunner:
    """Return the ONNX file loaded in ONNX Runtime.

    Reads all weights, to find their precision.

    Raises:
        MissingBackendError: ONNX Runtime is not installed, or has no CUDA where CUDA is asked for.
        InputFileError: The file is no ONNX model, or its external data is missing, cut off or elsewhere.
        BackendError: ONNX Runtime refused the model, or ran it on another device than was asked for.
        UsageError: A name to be renamed is not in the model.
    """
    require_backend("onnxruntime")
    path = model.source.path
    proto = read_onnx(path)
    own = signature_of_onnx(proto)
    served = rename_signature(own, model.rename)
    precision = precision_of_onnx(proto, path.parent)
    has_lower = _has_lower_precision(proto)
    # The parsed file is as large as the weights in it, and the session holds its own copy.
    del proto
    session = _open_session(str(path), model.device)
    return OnnxRuntimeRunner(
        session=session, own=own, served=served, facts=_facts(session, model.device, precision, has_lower=has_lower)
    )


def _open_session(path: str, device: str) -> onnxruntime.InferenceSession:
    import onnxruntime

    device_name(device)
    provider = _PROVIDERS[device]
    if provider not in onnxruntime.get_available_providers():
        has = ", ".join(onnxruntime.get_available_providers())
        msg = f"this build of onnxruntime has no {provider} (it has: {has})"
        raise MissingBackendError(msg, hint="pip uninstall onnxruntime && pip install 'paritygate[gpu]'")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.use_deterministic_compute = True
    # Two models often run in turn: threads that wait busily for the next batch of one slow the other down.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    asked = (provider, {"use_tf32": "0"}) if device == "cuda" else provider
    try:
        session = onnxruntime.InferenceSession(path, sess_options=options, providers=[asked])
    except Exception as err:
        msg = f"onnxruntime {onnxruntime.__version__} refused {path}: {_reason(err)}"
        raise BackendError(msg, hint="export the model again with another opset or exporter") from err
    if session.get_providers()[0] != provider:
        msg = f"onnxruntime was asked for {provider} and runs {path} with {', '.join(session.get_providers())}"
        raise BackendError(
            msg, hint="check the CUDA and cuDNN libraries that this onnxruntime needs, or use device cpu"
        )
    return session


def _reason(err: BaseException) -> str:
    return _ERROR_PREFIX.sub("", first_line(err))


def _has_lower_precision(model: onnx.ModelProto) -> bool:
    """Return whether the graph has tensors in float16 or bfloat16; weights in float32 may be of lower precision too."""
    from onnx import TensorProto

    lower = {TensorProto.FLOAT16, TensorProto.BFLOAT16}
    values = (*model.graph.input, *model.graph.output)
    if any(value.type.tensor_type.elem_type in lower for value in values):
        return True
    return any(tensor.data_type in lower for graph in graphs_in(model.graph) for tensor in graph.initializer) or any(
        (attribute.name in {"to", "dtype"} and attribute.i in lower) or attribute.t.data_type in lower
        for node in nodes_in(model.graph)
        for attribute in node.attribute
    )


def _facts(
    session: onnxruntime.InferenceSession, device: str, precision: Precision, *, has_lower: bool
) -> RuntimeFacts:
    import onnxruntime

    level = session.get_session_options().graph_optimization_level
    notes = []
    if device == "cpu" and has_lower:
        notes.append(
            "ONNX Runtime's CPU provider computes most operators of lower precision in float32: "
            "this run says nothing of another device"
        )
    return RuntimeFacts(
        runtime="onnxruntime",
        version=onnxruntime.__version__,
        device=device_name(device),
        precision_found=precision,
        tf32=_is_tf32_allowed(session) if device == "cuda" else None,
        optimisation=level.name.removeprefix("ORT_ENABLE_").lower(),
        notes=tuple(notes),
    )


def _is_tf32_allowed(session: onnxruntime.InferenceSession) -> bool:
    options: Mapping[str, str] = session.get_provider_options()["CUDAExecutionProvider"]
    # A build that does not know the option has TF32 on for convolutions.
    return options.get("use_tf32", "1") != "0"


class OnnxRuntimeRunner:
    """One ONNX model in one session."""

    def __init__(
        self, *, session: onnxruntime.InferenceSession, own: Signature, served: Signature, facts: RuntimeFacts
    ) -> None:
        self._session = session
        self._signature = served
        self._facts = facts
        self._input_names = {spec.name: of_model.name for spec, of_model in zip(served.inputs, own.inputs, strict=True)}
        self._own_outputs = [spec.name for spec in own.outputs]
        self._outputs = [spec.name for spec in served.outputs]
        # NumPy has no bfloat16, so ONNX Runtime neither takes nor returns such arrays by itself.
        self._has_bfloat16 = any(spec.dtype == _BFLOAT16 for spec in (*own.inputs, *own.outputs))

    @property
    def signature(self) -> Signature:
        """Inputs and outputs under the names served."""
        return self._signature

    @property
    def facts(self) -> RuntimeFacts:
        """What runs, read back from the session."""
        return self._facts

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name for one batch; the arrays belong to the caller.

        Raises:
            BackendError: The inputs are not those of the model, or ONNX Runtime failed.
        """
        check_inputs(self._signature, inputs)
        feed = {self._input_names[name]: np.asarray(array, order="C") for name, array in inputs.items()}
        try:
            found = self._run_bfloat16(feed) if self._has_bfloat16 else self._session.run(self._own_outputs, feed)
        except Exception as err:
            msg = f"onnxruntime failed on {describe_arrays(inputs)}: {_reason(err)}"
            raise BackendError(msg, hint="check that the samples are within what the model was exported for") from err
        return dict(zip(self._outputs, found, strict=True))

    def _run_bfloat16(self, feed: Mapping[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        values = {name: _ort_value(array) for name, array in feed.items()}
        return [_array(value) for value in self._session.run_with_ort_values(self._own_outputs, values)]


def _ort_value(array: NDArray[np.generic]) -> onnxruntime.OrtValue:
    import onnx
    import onnxruntime

    if array.dtype.name == _BFLOAT16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), onnx.TensorProto.BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _array(value: Any) -> NDArray[np.generic]:  # noqa: ANN401 - onnxruntime ships no types
    if value.data_type() != "tensor(bfloat16)":
        array: NDArray[np.generic] = value.numpy()
        return array
    import ctypes

    import ml_dtypes

    if value.device_name() != "cpu":
        msg = f"a bfloat16 output was left on {value.device_name()}, where it cannot be read"
        raise BackendError(msg, hint="run the model on device cpu")
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    # By way of bytearray, because an array over bytes cannot be written to.
    flat: NDArray[np.generic] = np.frombuffer(bytearray(raw), dtype=np.dtype(ml_dtypes.bfloat16))
    return flat.reshape(tuple(value.shape()))
