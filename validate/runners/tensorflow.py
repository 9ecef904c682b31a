"""Run Keras models and signatures of SavedModels in TensorFlow."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.artifact import ARTIFACT_FILE
from paritygate.batch import Arrays
from paritygate.errors import BackendError
from paritygate.machine import device_name
from paritygate.models.loading import LoadedModel
from paritygate.models.source import SourceKind
from paritygate.models.tensorflow.importing import import_keras, import_tensorflow
from paritygate.models.tensorflow.keras_model import (
    NamedKerasModel,
    as_named_function,
    load_keras_file,
    notes_on_names,
    second_names,
    signature_of_keras,
)
from paritygate.models.tensorflow.savedmodel import SavedFunction, load_savedmodel, note_on_signatures
from paritygate.models.weights import WeightTally
from paritygate.precision import Precision
from paritygate.signature import Signature, rename_signature, with_declared_dims
from paritygate.validate.runners.runner import FIXED_BY_TENSORFLOW, ON_THE_GPU, Runner, RuntimeFacts

# Places in TensorFlow where an error was raised, which do not help a user.
_PLACES = re.compile(r"\{\{function_node [^}]*\}\}\s*|\s*\[Op:\w+\]")
_LOWER = {"float16": Precision.FP16, "bfloat16": Precision.BF16}


# Operators whose dtype shows in which precision a model computes.
_OPERATORS = frozenset(
    {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "Einsum", "MatMul"}
)


def open_model(loaded: LoadedModel) -> KerasRunner | SavedModelRunner:
    """Return the Keras model or SavedModel, ready to run; it reads all weights for their precision."""
    tf = _prepare_device(loaded.device)
    return _open_savedmodel(tf, loaded) if loaded.ref.kind is SourceKind.SAVEDMODEL else _open_keras(tf, loaded)


def _open_keras(tf: Any, loaded: LoadedModel) -> KerasRunner:  # noqa: ANN401 - the module, which has no types
    keras = import_keras()
    rename = loaded.ref.rename
    model = load_keras_file(loaded.ref.path) if loaded.model is None else loaded.model
    signature = loaded.ref.signature or signature_of_keras(model, rename, loaded.example)
    facts = RuntimeFacts(
        runtime="keras",
        version=f"{keras.__version__} on tensorflow {tf.__version__}",
        device=device_name(loaded.device),
        precision_found=precision_of_keras(model),
        tf32=_is_tf32_allowed(loaded.device),
        notes=notes_on_names(model, signature, rename),
    )
    return KerasRunner(
        function=as_named_function(model, signature, rename),
        signature=signature,
        facts=facts,
        second_names=second_names(model),
    )


def precision_of_keras(model: Any) -> Precision | None:  # noqa: ANN401 - a keras.Model, and Keras has no types
    """Return the precision that a Keras model computes in, by its weights and layers; None where neither shows it."""
    tally = WeightTally()
    _add_variables(tally, model.weights)
    # A mixed policy keeps weights in float32 and casts them for every call.
    return precision_of_operations(
        tally.precision_of_parameters(), {layer.compute_dtype for layer in _layers_with_weights(model)}
    )


def _layers_with_weights(layer: Any) -> Iterator[Any]:  # noqa: ANN401 - a keras.Layer
    parts = getattr(layer, "layers", None)
    if parts:
        for part in parts:
            yield from _layers_with_weights(part)
    elif layer.weights:
        yield layer


class TensorflowRunner(Runner):
    """A runner of a model in TensorFlow."""

    _hint = "check that the model accepts these samples"

    @property
    def _device(self) -> str:
        return self._facts.device.partition(":")[0]

    def on_one_thread(self) -> str:
        """Return why it does not run on one thread."""
        return FIXED_BY_TENSORFLOW if self._device == "cpu" else ON_THE_GPU

    def _reason(self, err: Exception) -> str:
        return tensorflow_reason(err)


class KerasRunner(TensorflowRunner):
    """One Keras model, called eagerly.

    Tracing a function fixes decisions of Python, and a converter traces as well: a traced reference would share and
    hide that fault. `second_names` maps an output's own name to the one by its order, by which it can be selected.
    `function` takes one tensor for each input, in the order of the signature.
    """

    _what = "keras failed"

    def __init__(
        self,
        *,
        function: NamedKerasModel,
        signature: Signature,
        facts: RuntimeFacts,
        second_names: Mapping[str, str],
        graph: Any = None,  # noqa: ANN401 - a concrete function of TensorFlow
    ) -> None:
        super().__init__(signature, facts)
        self.second_names = second_names
        self.function = function
        self._called = function if graph is None else graph

    @property
    def facts(self) -> RuntimeFacts:
        """Return what runs, read back; after the first batch also which outputs the signature leaves out."""
        unused = self.function.unused_outputs
        if not unused:
            return self._facts
        note = f"the model also returns {', '.join(unused)}, which the signature does not have"
        return replace(self._facts, notes=(*self._facts.notes, note), unread=tuple(unused))

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        import tensorflow as tf

        tensors = [tf.convert_to_tensor(array) for array in feed.values()]
        return [_own_array(tensor, self._device) for tensor in self._called(*tensors)]

    def compiled(self, graph: Any) -> KerasRunner:  # noqa: ANN401 - a concrete function of TensorFlow
        """Return a runner that calls the model as a graph, which was traced from `function`."""
        facts = replace(self._facts, optimisation="graph")
        return KerasRunner(
            function=self.function, signature=self._served, facts=facts, second_names=self.second_names, graph=graph
        )


def _open_savedmodel(tf: Any, loaded: LoadedModel) -> SavedModelRunner:  # noqa: ANN401 - the module
    ref = loaded.ref
    function = load_savedmodel(ref.path, ref.signature_key)
    # An artifact is its serving_default, whatever else was copied.
    is_artifact = (ref.path / ARTIFACT_FILE).is_file()
    note = "" if is_artifact else note_on_signatures(ref.path, ref.text, ref.signature_key)
    facts = RuntimeFacts(
        runtime="tensorflow",
        version=tf.__version__,
        device=device_name(loaded.device),
        precision_found=precision_of_savedmodel(function),
        tf32=_is_tf32_allowed(loaded.device),
        notes=(note,) if note else (),
    )
    served = with_declared_dims(rename_signature(function.signature, ref.rename), ref.signature)
    return SavedModelRunner(function=function, signature=served, facts=facts)


def precision_of_savedmodel(function: SavedFunction) -> Precision | None:
    """Return the precision that a signature computes in, by its weights and operators; None where neither shows it."""
    import tensorflow as tf

    tally = WeightTally()
    _add_variables(tally, function.function.variables)
    dtypes = set()
    for node in nodes_of_function(function.function):
        if node.op == "Const" and tf.dtypes.as_dtype(node.attr["dtype"].type).is_floating:
            tally.add(tf.make_ndarray(node.attr["value"].tensor))
        elif node.op in _OPERATORS:
            dtypes.add(tf.dtypes.as_dtype(node.attr["T"].type).name)
    return precision_of_operations(tally.precision_of_parameters(), dtypes)


def nodes_of_function(function: Any) -> Iterator[Any]:  # noqa: ANN401 - TensorFlow ships no types
    """Yield the nodes of a concrete function of TensorFlow, and of all functions that it calls."""
    graph = function.graph.as_graph_def()
    yield from graph.node
    for called in graph.library.function:
        yield from called.node_def


class SavedModelRunner(TensorflowRunner):
    """One signature of a SavedModel."""

    _what = "tensorflow failed"
    _hint = "check that the model was exported for such samples"

    def __init__(self, *, function: SavedFunction, signature: Signature, facts: RuntimeFacts) -> None:
        super().__init__(signature, facts, function.signature)
        self._function = function

    def function(self, *tensors: Any) -> tuple[Any, ...]:  # noqa: ANN401 - tensors of TensorFlow, which has no types
        """Return the output tensors, in the order of the signature, for one tensor for each input."""
        names = [spec.name for spec in self._own.inputs]
        answers = self._function(dict(zip(names, tensors, strict=True)))
        return tuple(answers[spec.name] for spec in self._own.outputs)

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        answers = self._function(feed)
        return [_own_array(answers[spec.name], self._device) for spec in self._own.outputs]


def _prepare_device(device: str) -> Any:  # noqa: ANN401 - the module, which has no types
    """Return the module `tensorflow`, set to compute on `device` and float32 in float32.

    BackendError is raised where there is no GPU for `cuda`, or TensorFlow already uses one for `cpu`.
    """
    tf = import_tensorflow()
    device_name(device)
    # TensorFlow allows TF32 by default.
    tf.config.experimental.enable_tensor_float_32_execution(enabled=False)
    if device == "cuda":
        if not tf.config.list_physical_devices("GPU"):
            msg = f"this build of tensorflow ({tf.__version__}) finds no GPU"
            raise BackendError(msg, hint="pip install 'tensorflow[and-cuda]', or use device cpu")
    elif tf.config.get_visible_devices("GPU"):
        # TensorFlow would take the GPU by default.
        try:
            tf.config.set_visible_devices([], "GPU")
        except RuntimeError as err:
            msg = f"tensorflow is to run on the CPU, but uses the GPU already: {err}"
            raise BackendError(msg, hint="export CUDA_VISIBLE_DEVICES=-1, or use device cuda") from err
    return tf


def _is_tf32_allowed(device: str) -> bool | None:
    """Return whether TF32 may be used; None on the CPU, which has none."""
    tf = import_tensorflow()
    return bool(tf.config.experimental.tensor_float_32_execution_enabled()) if device == "cuda" else None


def _add_variables(tally: WeightTally, variables: Iterable[Any]) -> None:
    """Count the variables of a model in `tally`; those of float32 are read, one at a time."""
    for variable in variables:
        dtype = variable.dtype if isinstance(variable.dtype, str) else variable.dtype.name
        if dtype == "float32":
            tally.add(np.asarray(variable.numpy()))
        else:
            tally.add_stored(dtype, int(np.prod(variable.shape)))


def precision_of_operations(weights: Precision | None, dtypes: Iterable[str]) -> Precision | None:
    """Return the precision of a model whose operations compute in `dtypes`, whatever its weights are stored in.

    Mixed policies store weights in float32 and cast them before each operation.
    """
    precisions = {_LOWER.get(dtype, Precision.FP32) for dtype in dtypes}
    if weights not in {Precision.FP32, None} or not precisions & {Precision.FP16, Precision.BF16}:
        return weights
    return precisions.pop() if len(precisions) == 1 else Precision.MIXED


def _own_array(tensor: Any, device: str) -> NDArray[np.generic]:  # noqa: ANN401 - a tensor of TensorFlow's
    """Return a copy of an output for the caller; raise BackendError where it was computed on another device."""
    if device == "cuda" and "GPU" not in tensor.device:
        msg = f"tensorflow was to run on the GPU, but an output was computed on {tensor.device}"
        raise BackendError(msg, hint="use device cpu, or a build of tensorflow that supports this GPU")
    # TensorFlow copies here, so that nobody changes a tensor by its array.
    return np.asarray(tensor.numpy())


def tensorflow_reason(err: BaseException) -> str:
    """Return an error of TensorFlow in one line; in a graph, the cause is between the operator's place and its name."""
    text = _PLACES.sub("", str(err))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for before, line in itertools.pairwise(lines):
        if line.startswith("[[{{node"):
            return f"{type(err).__name__}: {before}"
    return f"{type(err).__name__}: {lines[0]}" if lines else type(err).__name__
