"""A TensorFlow SavedModel: its signature, read without loading the graph, and calling it by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.errors import BackendError, InputFileError, UsageError
from paritygate.models.tensorflow.importing import import_tensorflow
from paritygate.signature import Signature, TensorSpec, name_unknown_dims
from paritygate.text import first_line

SERVING_SIGNATURE = "serving_default"
_SERVING_TAG = "serve"


def signature_of_savedmodel(path: Path, signature_key: str | None = None) -> Signature:
    """Return a signature of the SavedModel, read from `saved_model.pb` alone; None means `serving_default`.

    Inputs and outputs are sorted by name, because a SavedModel does not store their order. Open dims get the names of
    `name_unknown_dims`.

    Raises:
        InputFileError: It is not a SavedModel, or has no such signature.
    """
    graph = serving_graph(path)
    key = signature_key or SERVING_SIGNATURE
    if key not in graph.signature_def:
        keys = _keys(graph)
        msg = f"{path} has no signature {key!r} (it has: {', '.join(keys) or 'none'})"
        choice = f"name one of these: model.signature: {keys[0]} in a spec, or --signature" if keys else ""
        raise InputFileError(msg, hint=choice or f"save it with signatures={{'{key}': function}}")
    signature = graph.signature_def[key]
    return name_unknown_dims(_specs(signature.inputs), _specs(signature.outputs))


def note_on_signatures(path: Path, name: str, signature_key: str | None) -> str:
    """Return a note on the SavedModel's signatures and the used one; empty if there is one. `name` is the user's."""
    used = signature_key or SERVING_SIGNATURE
    others = [key for key in _keys(serving_graph(path)) if key != used]
    if not others:
        return ""
    listed = ", ".join([f"{used} (used)", *others])
    return (
        f"{name.rstrip('/')}/ has {len(others) + 1} signatures: {listed}; model.signature: {others[0]} in a spec, "
        "or --signature, chooses another"
    )


@contextmanager
def signatures_named(path: Path, name: str, signature_key: str | None) -> Iterator[None]:
    """Add a note on all signatures to a UsageError inside the context."""
    try:
        yield
    except UsageError as err:
        note = note_on_signatures(path, name, signature_key)
        if not note:
            raise
        raise UsageError(f"{err}; {note}", hint=err.hint) from err


def _keys(graph: Any) -> list[str]:  # noqa: ANN401 - a protocol buffer of TensorFlow's, which has no types
    # This prefix marks TensorFlow's own, such as the operator that fills tables.
    return sorted(key for key in graph.signature_def if not key.startswith("__"))


def serving_graph(path: Path) -> Any:  # noqa: ANN401 - a protocol buffer of TensorFlow's, which has no types
    """Return the graph in `saved_model.pb` that is meant for serving.

    Raises:
        InputFileError: It is not a SavedModel, or holds no such graph.
    """
    import_tensorflow()
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    file = path / "saved_model.pb"
    if not file.is_file():
        msg = f"{path} is not a SavedModel: saved_model.pb is missing"
        raise InputFileError(msg, hint="give the folder that holds saved_model.pb and variables/")
    model = saved_model_pb2.SavedModel()
    try:
        model.ParseFromString(file.read_bytes())
    except DecodeError as err:
        msg = f"{file} is not a SavedModel: {err}"
        raise InputFileError(msg, hint="save the model again; the file may be cut off") from err
    for graph in model.meta_graphs:
        if _SERVING_TAG in graph.meta_info_def.tags:
            return graph
    msg = f"{file} holds no graph with the tag {_SERVING_TAG!r}"
    raise InputFileError(msg, hint="save the model again with tf.saved_model.save or model.export")


def _specs(tensors: Mapping[str, Any]) -> list[TensorSpec]:
    import tensorflow as tf

    specs = []
    for name, info in sorted(tensors.items()):
        if info.WhichOneof("encoding") != "name":
            msg = f"{name!r} of the SavedModel is not a dense tensor"
            raise InputFileError(msg, hint="export the model with dense tensors only, not sparse or ragged ones")
        shape = None
        if not info.tensor_shape.unknown_rank:
            shape = tuple(None if dim.size < 0 else int(dim.size) for dim in info.tensor_shape.dim)
        specs.append(TensorSpec(name=name, dtype=tf.dtypes.as_dtype(info.dtype).name, shape=shape))
    return specs


class SavedFunction(Struct, frozen=True, kw_only=True):
    """One signature of a loaded SavedModel."""

    signature: Signature  # as of signature_of_savedmodel
    model: Any  # owns the variables
    function: Any  # TensorFlow's own
    parameters: Mapping[str, str]  # by the input's name, which may not be a name in Python (input.1)

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the output tensors by name, for tensors or arrays of the exact dtypes."""
        import tensorflow as tf

        arguments = {self.parameters[name]: tf.convert_to_tensor(value) for name, value in inputs.items()}
        return dict(self.function(**arguments))


def load_savedmodel(path: Path, signature_key: str | None = None) -> SavedFunction:
    """Return one signature of the SavedModel, ready to be called. Reads all its files.

    Raises:
        InputFileError: It is not a SavedModel, has no such signature, or a file of it is missing.
        BackendError: TensorFlow does not load it.
    """
    signature = signature_of_savedmodel(path, signature_key)
    key = signature_key or SERVING_SIGNATURE
    tf = import_tensorflow()
    try:
        model = tf.saved_model.load(str(path))
    except FileNotFoundError as err:
        msg = f"a file of the SavedModel {path} is missing: {str(err).splitlines()[0]}"
        raise InputFileError(msg, hint="copy the whole folder, variables/ and assets/ included") from err
    except Exception as err:
        line = first_line(err)
        msg = f"TensorFlow {tf.__version__} does not load {path}: {line}"
        raise BackendError(msg, hint="save the model again with this version of TensorFlow") from err
    function = model.signatures[key]
    arguments = function.structured_input_signature[1]
    parameters = {spec.name: parameter for parameter, spec in arguments.items()}
    unknown = {spec.name for spec in signature.inputs} ^ set(parameters)
    if unknown:
        msg = f"the inputs {sorted(unknown)} of signature {key!r} in {path} cannot be fed by name"
        raise UsageError(msg, hint="save the model again with a name for every input")
    return SavedFunction(signature=signature, model=model, function=function, parameters=parameters)
