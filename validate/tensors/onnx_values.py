"""Run an ONNX model in ONNX Runtime and read its inner tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paritygate.errors import BackendError
from paritygate.models.onnx.file import read_onnx
from paritygate.models.onnx.functions import inline_functions
from paritygate.models.onnx.graph import name_nodes, stored_tensors
from paritygate.models.onnx.weights import load_tensor
from paritygate.text import first_line
from paritygate.validate.tensors.meter import Meter
from paritygate.validate.tensors.tensor_graph import Arrays, Feed, TensorGraph, Weight, graph_of

if TYPE_CHECKING:
    import onnx
    import onnxruntime

_FATAL = 4


class OnnxValues:
    """Runs a model, whose external data is beside its path.

    Graph optimisations are off, so that each tensor of the file exists.
    """

    def __init__(self, model: onnx.ModelProto, path: Path) -> None:
        self._model, self._path = model, path
        self._last: tuple[object, onnxruntime.InferenceSession | None] = (None, None)

    def open(self, names: Sequence[str], values: Mapping[str, Arrays]) -> Callable[[Feed], list[NDArray[np.generic]]]:
        """Return what computes these tensors: inner ones, outputs or constants of the main graph."""
        key = tuple(names), tuple((name, arrays[0].dtype) for name, arrays in values.items())
        session = self._last[1] if self._last[0] == key else None
        if session is None:
            # The last one goes first, so that two are never there at once.
            self._last = None, None
            session = self._session(_changed(self._model, names, values))
        # Several values are tried in one place, one after the other.
        self._last = key, session
        return partial(_run, session, list(names))

    def _session(self, model: onnx.ModelProto) -> onnxruntime.InferenceSession:
        return _open(model, self._path)


def run_model(model: onnx.ModelProto, names: list[str], feed: Feed, path: Path) -> Arrays:
    """Return these outputs of a model made from the file `path`; raise a `BackendError` if it does not run."""
    return OnnxValues(model, path).open(names, {})(feed)


def read_tensor_graph(path: Path, meter: Meter) -> TensorGraph:
    """Return the graph of an ONNX file; its external data is not read.

    Raises:
        InputFileError: The file is not an ONNX model, or its external data is missing.
    """
    model = read_onnx(path)
    inline_functions(model)
    name_nodes(model.graph)
    return tensor_graph_of(model, path, meter)


def tensor_graph_of(model: onnx.ModelProto, path: Path, meter: Meter) -> TensorGraph:
    """Return the graph of a model without local functions, whose nodes have names; it was read from `path`."""
    weights = {name: _weight(tensor, path.parent) for name, tensor in stored_tensors(model.graph).items()}
    return graph_of(model, OnnxValues(model, path), weights, path=path, meter=meter)


# onnx.TensorProto.DataType: float, float16, double and bfloat16.
_FLOATS = frozenset({1, 10, 11, 16})


def _weight(tensor: onnx.TensorProto, folder: Path) -> Weight:
    return Weight(
        shape=tuple(tensor.dims), is_float=tensor.data_type in _FLOATS, load=partial(load_tensor, tensor, folder)
    )


def _changed(model: onnx.ModelProto, names: Sequence[str], values: Mapping[str, Arrays]) -> onnx.ModelProto:
    """Return the model with more outputs, and with an input in the place of each tensor that is given."""
    import onnx

    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    for node in graph.node if values else ():
        node.output[:] = [f"{name}/before" if name in values else name for name in node.output]
    there = {value.name for value in graph.input}
    for name in (name for name in values if name not in there):
        element = onnx.helper.np_dtype_to_tensor_dtype(values[name][0].dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(name, element, None))
    outputs = [value for value in graph.output if value.name not in values]
    # ONNX Runtime infers the type of an output that declares none.
    more = [onnx.ValueInfoProto(name=name) for name in names if all(value.name != name for value in outputs)]
    del graph.output[:]
    graph.output.extend([*outputs, *more])
    return changed


def _open(model: onnx.ModelProto, path: Path) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    folder = str(path.parent.resolve())
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as err:
        msg = f"onnxruntime refused {path} while its inner tensors were exposed: {first_line(err)}"
        raise BackendError(msg, hint="check that the file runs: use `inspect`") from err


def _run(session: onnxruntime.InferenceSession, names: list[str], feed: Feed) -> list[NDArray[np.generic]]:
    if not names:
        return []
    inputs = {item.name for item in (*session.get_inputs(), *session.get_overridable_initializers())}
    try:
        answers = session.run(names, {name: value for name, value in feed.items() if name in inputs})
    except Exception as err:
        msg = f"onnxruntime failed while inner tensors were read: {first_line(err)}"
        raise BackendError(msg, hint="check that both models run on these samples: use `compare`") from err
    return [_array_of(answer) for answer in answers]


def _array_of(answer: Any) -> NDArray[Any]:  # noqa: ANN401 - whatever ONNX Runtime returns
    """Return a sequence of tensors as one array, and a sequence of maps as one with a field for each key."""
    if isinstance(answer, np.ndarray):
        return answer
    parts: list[Any] = [answer] if isinstance(answer, dict) else list(answer or ())
    if parts and all(isinstance(part, dict) for part in parts):
        keys = sorted(parts[0], key=str)
        values = np.array([[part.get(key) for key in keys] for part in parts])
        fields = np.dtype([(str(key), values.dtype) for key in keys])
        return np.array([tuple(row) for row in values], dtype=fields)
    # An optional without a value, or an empty sequence.
    return np.concatenate([np.ravel(part) for part in parts]) if parts else np.empty(0, np.float32)
