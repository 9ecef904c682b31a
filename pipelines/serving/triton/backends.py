"""Map formats to Triton's backends, with their names for files, inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from msgspec import Struct

from paritygate.artifact import Artifact
from paritygate.errors import UsageError
from paritygate.signature import Signature, rename_signature

_ONNX_FILE = "model.onnx"


class Backend(Struct, frozen=True, kw_only=True):
    """A backend of Triton."""

    name: str  # `backend` in a configuration
    file: str  # opened by default in the version's folder
    names_by_position: bool = False  # the file has no names, so they are `NAME__POSITION`


# By format of artifacts.
BACKENDS: Mapping[str, Backend] = {
    "onnx": Backend(name="onnxruntime", file=_ONNX_FILE),
    "tensorrt": Backend(name="tensorrt", file="model.plan"),
    "openvino": Backend(name="openvino", file="model.xml"),
    "torchscript": Backend(name="pytorch", file="model.pt", names_by_position=True),
}
_WHY_NOT: Mapping[str, str] = {
    "pt2": "its .pt2 holds an exported program, and Triton loads only those that AOTInductor compiled",
    "torch": "it is Python code and weights",
    "tensorrt-rtx": "Triton's backend loads engines of TensorRT, and this one is of TensorRT-RTX",
    "savedmodel": "Triton has no TensorFlow backend any more",
    "tflite": "Triton has no backend of TFLite",
}


def backend_of(form: str) -> Backend:
    """Return the backend of a format; raise UsageError if there is none."""
    if form in BACKENDS:
        return BACKENDS[form]
    msg = f"Triton does not serve {form}: {_WHY_NOT.get(form, 'no backend is known')} (allowed: {', '.join(BACKENDS)})"
    raise UsageError(msg, hint="release a variant of one of these formats, such as onnx-fp32")


def files_of(artifact: Artifact) -> dict[str, str]:
    """Return the files of a version's folder: by the name there, the name in the artifact's folder.

    An ONNX model of several files is a folder `model.onnx` with all of them, because the graph names its weights'
    files.

    Raises:
        UsageError: Triton does not serve the format, or the artifact lacks a file.
    """
    backend = backend_of(artifact.variant.format)
    main = artifact.main
    if backend.file == _ONNX_FILE and len(artifact.files) > 1:
        return {f"{_ONNX_FILE}/{_ONNX_FILE if name == main else name}": name for name in artifact.files}
    if backend.name != "openvino":
        return {backend.file: main}
    weights = str(PurePosixPath(main).with_suffix(".bin"))
    if weights not in artifact.files:
        msg = f"{artifact.variant} has no weights {weights} beside {main} (its files: {', '.join(artifact.files)})"
        raise UsageError(msg, hint="make it again with", command="convert-and-validate export")
    return {backend.file: main, str(PurePosixPath(backend.file).with_suffix(".bin")): weights}


def model_file_of(backend: str) -> str | None:
    """Return the file that a backend opens by default in a version's folder, if known."""
    return next((item.file for item in BACKENDS.values() if item.name == backend), None)


def served_signature(artifact: Artifact) -> Signature:
    """Return the signature under the server's names for inputs and outputs."""
    signature = artifact.signature
    if not backend_of(artifact.variant.format).names_by_position:
        return signature
    sides = (signature.inputs, signature.outputs)
    return rename_signature(
        signature, {spec.name: f"{spec.name}__{at}" for side in sides for at, spec in enumerate(side)}
    )
