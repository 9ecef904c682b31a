"""Run an ONNX model and read its inner tensors, with values of another model in the place of some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paritygate.errors import BackendError
from paritygate.validate.divergence.tensor_graph import TensorGraph
from paritygate.validate.runners.runner import first_line

if TYPE_CHECKING:
    import onnx
    import onnxruntime

Feed = Mapping[str, NDArray[np.generic]]
Arrays = Sequence[NDArray[np.generic]]

# Each inner tensor that is read lives until the run ends, so a graph is read in parts of about so many bytes. Sizes are
# known only after a run: the first part has few tensors.
_BYTES_AT_ONCE = 256 * 2**20
_FIRST, _FEWEST, _MOST = 64, 4, 1000
_FATAL = 4
_NOTHING: Mapping[str, Arrays] = {}


def read_inner(
    graph: TensorGraph, names: Sequence[str], feeds: Sequence[Feed], values: Mapping[str, Arrays] = _NOTHING
) -> Iterator[tuple[str, list[NDArray[np.generic]]]]:
    """Yield name and values of each tensor, one array for each feed, in the order of the names.

    Graph optimisations are off, so that each tensor of the file exists. `names` are tensors of the main graph: inner
    ones, outputs or constants. `values` replace inner tensors and weights, one array for each feed.

    Raises:
        BackendError: ONNX Runtime cannot run the model, or not with these values.
        BudgetSpentError: The runs would compute more tensors than the meter of the graph allows.
    """
    forced = [{**feed, **{name: arrays[at] for name, arrays in values.items()}} for at, feed in enumerate(feeds)]
    start, size = 0, _FIRST
    while start < len(names):
        graph.meter.take(len(graph.nodes) * len(feeds))
        part = list(names[start : start + size])
        own = [name for name in part if name not in values]
        session = _open(_changed(graph.model, own, values), graph.path)
        read: dict[str, list[NDArray[np.generic]]] = {name: [] for name in own}
        for feed in forced:
            for name, array in zip(own, _run(session, own, feed), strict=True):
                read[name].append(array)
        held = sum(array.nbytes for arrays in read.values() for array in arrays)
        start, size = start + len(part), _next_size(held, len(own))
        # What has been read goes as soon as its reader is done.
        yield from ((name, read.pop(name) if name in read else list(values[name])) for name in part)


def _next_size(held: int, tensors: int) -> int:
    """Return how many tensors to read at once after so many of so many bytes."""
    return min(max(_BYTES_AT_ONCE * tensors // max(held, 1), _FEWEST), _MOST)


def read_outputs(graph: TensorGraph, feeds: Iterable[Feed]) -> Iterator[Feed]:
    """Yield the outputs of the model for each feed; raise what `read_inner` raises."""
    session, names = _open(_changed(graph.model, graph.outputs, _NOTHING), graph.path), list(graph.outputs)
    for feed in feeds:
        graph.meter.take(len(graph.nodes))
        yield dict(zip(names, _run(session, names, feed), strict=True))


def run_model(model: onnx.ModelProto, names: list[str], feed: Feed, path: Path) -> Arrays:
    """Return these outputs of a model made from the file `path`; raise a `BackendError` if it does not run."""
    return _run(_open(model, path), names, feed)


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
