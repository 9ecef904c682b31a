"""Run an ONNX file on the CPU as a device of lower precision would, to predict a device that is absent.

ONNX Runtime's CPU provider computes float16 graphs in float32 and does not run bfloat16 ones. Here every value of lower
precision is rounded to it, after every operator and in and out of the model. Sums inside an operator are float32, as on
tensor cores. A model that overflows in half precision becomes non-finite, but this predicts a device and replaces none.

`OverflowWatch` also returns which rows went beyond the range of the precision. An overflow need not show in the
outputs: a variance that became infinite divides to zeros, and the outputs are finite and wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.backends import require_backend
from paritygate.batch import Arrays
from paritygate.errors import BackendError, UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.onnx.file import opset_of, precision_of_onnx, read_onnx, signature_of_onnx
from paritygate.models.onnx.graph import UniqueNames, names_in
from paritygate.models.onnx.locales import hint_on_locale
from paritygate.models.onnx.weights import DTYPES, ELEMENT_TYPES, FLOAT
from paritygate.precision import Precision
from paritygate.signature import Signature, rename_signature
from paritygate.text import first_of
from paritygate.validate.emulation.canary import VALUES, canary_alone, check_canary
from paritygate.validate.emulation.graph import EmulatedGraph, emulate
from paritygate.validate.runners.onnxruntime import reason_of_onnxruntime
from paritygate.validate.runners.onnxruntime_waiting import set_waiting
from paritygate.validate.runners.runner import Runner, RuntimeFacts

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    import onnxruntime
    from numpy.typing import NDArray

_LOW_DTYPES: Mapping[str, np.dtype[Any]] = {dtype.name: dtype for dtype in DTYPES.values()}
_FATAL = 4
# No operators are fused, because rounding happens between them.
_LEVEL = "ORT_ENABLE_BASIC"
_SHOWN = 5
# From these on, an operator takes its axes as an input.
_UNSQUEEZE_OPSET = 13
_REDUCE_OPSET = 18
_AXES = {"Unsqueeze": (_UNSQUEEZE_OPSET, [-1]), "ReduceMax": (_REDUCE_OPSET, [1])}


def open_emulated(loaded: LoadedModel, precision: Precision) -> EmulatedRunner:
    """Return the ONNX file, to run as it would in the precision.

    Of a float32 model every float32 tensor is rounded, of an artifact its tensors of lower precision; see
    `validate.emulation.graph`. `mixed` is for an artifact that may hold `fp16` and `bf16`. UsageError is raised where
    the precision cannot be emulated or is not the artifact's, for another device than `cpu`, or for a wrong name to
    rename.
    """
    require_backend("onnxruntime")
    if loaded.device != "cpu":
        msg = f"a precision is emulated only on the cpu, not on {loaded.device!r}"
        raise UsageError(msg, hint="run the artifact itself on that device")
    path = loaded.ref.path
    proto = read_onnx(path)
    own = signature_of_onnx(proto)
    served = rename_signature(own, loaded.ref.rename)
    stored = precision_of_onnx(proto, path.parent)
    graph = emulate(proto, path.parent, precision)
    check_rounding(tuple(graph.canary_outputs))
    session = open_rounding_session(graph.model, graph.weights, str(path))
    # The weights of an original were rounded before they ran.
    weights_precision = precision if graph.is_original else stored
    facts = _facts(session, graph, precision, precision_found=weights_precision)
    return EmulatedRunner(session=session, graph=graph, own=own, served=served, facts=facts)


def check_rounding(precisions: tuple[Precision, ...]) -> None:
    """Raise BackendError unless a session like those of the emulated graphs rounds to the precisions."""
    canary, fed, outputs = canary_alone(precisions)
    session = open_rounding_session(canary, {}, "the canary")
    for precision, squares in zip(outputs, session.run(list(outputs.values()), {fed: VALUES}), strict=True):
        check_canary(squares, precision)


def open_rounding_session(
    graph: onnx.ModelProto, weights: Arrays, name: str, *, level: str = _LEVEL
) -> onnxruntime.InferenceSession:
    """Return a session that keeps the rounding of a graph; `weights` are those that the graph holds no data of.

    Raises:
        BackendError: ONNX Runtime refused the graph, which is called `name`.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.use_deterministic_compute = True
    set_waiting(options)
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
        hint = hint_on_locale(str(err)) or "export the model again with another opset or exporter"
        raise BackendError(msg, hint=hint) from err


def _facts(
    session: onnxruntime.InferenceSession, graph: EmulatedGraph, precision: Precision, *, precision_found: Precision
) -> RuntimeFacts:
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
        tensors = first_of([f"{name} ({count})" for name, count in graph.clamped.items()], _SHOWN)
        notes.append(f"weights beyond the range of {precision} were brought into it, as converters do: {tensors}")
    if graph.with_values_inside:
        operators = first_of(graph.with_values_inside, _SHOWN)
        notes.append(f"of these operators only results were rounded, a device may round values inside: {operators}")
    return notes


class EmulatedRunner(Runner):
    """One ONNX model in one session with rounded values; the device `emulated:PRECISION` is that of no machine."""

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

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        return self._fetch(feed)[0]

    def _fetch(self, feed: Arrays, besides: Sequence[str] = ()) -> tuple[list[NDArray[np.generic]], list[NDArray[Any]]]:
        """Return the outputs in the dtypes of the file, and the other values of the graph named in `besides`."""
        arrays = {self._input_names[name]: widened(array) for name, array in feed.items()}
        arrays[self._canary_input] = VALUES
        own = [spec.name for spec in self._own.outputs]
        canaries = list(self._canary_outputs.values())
        results = self._session.run([*own, *canaries, *besides], arrays)
        end = len(own) + len(canaries)
        for precision, canary in zip(self._canary_outputs, results[len(own) : end], strict=True):
            check_canary(canary, precision)
        outputs = [
            _narrowed(array, spec.dtype) for spec, array in zip(self._own.outputs, results[: len(own)], strict=True)
        ]
        return outputs, list(results[end:])

    def _reason(self, err: Exception) -> str:
        return reason_of_onnxruntime(err)


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return values in float32 where they are of lower precision."""
    return np.asarray(array.astype(np.float32) if array.dtype.name in _LOW_DTYPES else array, order="C")


def _narrowed(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    # Values are rounded already, so only the dtype changes.
    return array.astype(_LOW_DTYPES[dtype]) if dtype in _LOW_DTYPES else array


def open_overflow_watch(path: Path, precision: Precision) -> OverflowWatch:
    """Return the ONNX file, to run as it would in the precision, `fp16` or `bf16`, and watched.

    Raises:
        InputFileError: The file is not an ONNX model.
        UsageError: The precision cannot be emulated, or is not the file's.
        BackendError: The model cannot be emulated, or ONNX Runtime refused it.
    """
    proto = read_onnx(path)
    signature = signature_of_onnx(proto)
    graph = emulate(proto, path.parent, precision)
    watched = _add_watch(graph.model, besides=graph.canary_outputs.values())
    session = open_rounding_session(graph.model, graph.weights, str(path))
    facts = _facts(session, graph, precision, precision_found=precision)
    return OverflowWatch(session=session, graph=graph, signature=signature, facts=facts, watched=watched)


def _add_watch(model: onnx.ModelProto, besides: Collection[str]) -> list[str]:
    """Add an output for every value that is rounded outside of subgraphs, `besides` some, and return their names.

    Each is 1 where a finite number at this place of the first dim was rounded to plus infinity, else 0. Minus infinity
    does not count, because masks use it on purpose.
    """
    import onnx

    names = UniqueNames(names_in(model.graph))
    watched = []
    # The canary overflows on purpose.
    for raw, rounded in (pair for pair in _pairs(model.graph) if pair[1] not in besides):
        *nodes, flag = _watch(raw, rounded, names, model)
        model.graph.node.extend([*nodes, flag])
        watched.append(flag.output[0])
        model.graph.output.append(onnx.helper.make_tensor_value_info(flag.output[0], FLOAT, None))
    return watched


def _pairs(graph: onnx.GraphProto) -> list[tuple[str, str]]:
    """Return the names of each value before and after rounding, by its pair of Casts."""
    lows = set(ELEMENT_TYPES.values())
    down = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Cast" and _target(node) in lows}
    return [
        (down[node.input[0]], node.output[0])
        for node in graph.node
        if node.op_type == "Cast" and node.input[0] in down and _target(node) == FLOAT
    ]


def _target(node: onnx.NodeProto) -> int:
    return next(int(attribute.i) for attribute in node.attribute if attribute.name == "to")


def _watch(raw: str, rounded: str, names: UniqueNames, model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    import onnx

    def step(kind: str, *inputs: str, **attributes: int) -> onnx.NodeProto:
        node = onnx.helper.make_node(kind, list(inputs), [names.new(f"{rounded}_{kind}")])
        since, axes = _AXES.get(kind, (0, []))
        if axes and opset_of(model) < since:
            node.attribute.append(onnx.helper.make_attribute("axes", axes))
        elif axes:
            node.input.append(names.new(f"{rounded}_axes"))
            tensor = onnx.numpy_helper.from_array(np.array(axes, dtype=np.int64), node.input[-1])
            model.graph.initializer.append(tensor)
        node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items())
        return node

    after = step("IsInf", rounded, detect_negative=0)
    # A conversion of the file's own may start from integers.
    float_before = step("Cast", raw, to=FLOAT)
    before = step("IsInf", float_before.output[0], detect_negative=0)
    was_finite = step("Not", before.output[0])
    is_new = step("And", after.output[0], was_finite.output[0])
    number = step("Cast", is_new.output[0], to=FLOAT)
    # A scalar has no first dim, so it gets a last one.
    wide = step("Unsqueeze", number.output[0])
    flat = step("Flatten", wide.output[0], axis=1)
    yield from (after, float_before, before, was_finite, is_new, number, wide, flat)
    yield step("ReduceMax", flat.output[0], keepdims=0)


class OverflowWatch(EmulatedRunner):
    """One ONNX model in one session, its values rounded and watched."""

    def __init__(
        self,
        *,
        session: onnxruntime.InferenceSession,
        graph: EmulatedGraph,
        signature: Signature,
        facts: RuntimeFacts,
        watched: Sequence[str],
    ) -> None:
        super().__init__(session=session, graph=graph, own=signature, served=signature, facts=facts)
        self._watched = watched
        self._flags: list[NDArray[Any]] = []

    def run_watched(self, inputs: Arrays, rows: int) -> tuple[dict[str, NDArray[np.generic]], NDArray[np.bool_]]:
        """Return the outputs by name, and for each row whether a value overflowed; one without rows counts for all."""
        outputs = self.run(inputs)
        overflowed = np.zeros(rows, dtype=bool)
        for flag in self._flags:
            overflowed |= flag > 0 if flag.shape == (rows,) else bool((flag > 0).any())
        return outputs, overflowed

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        outputs, self._flags = self._fetch(feed, self._watched)
        return outputs
