"""List the files of a model, external data included, and compute digests of files and of the weights of objects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paritygate.artifact import ARTIFACT_FILE
from paritygate.engine.record import RECORD_FILE, EngineRecord
from paritygate.files import digest_of_file, digest_of_files, files_below
from paritygate.models.onnx.file import external_files, read_onnx
from paritygate.models.source import ModelRef, SourceKind

_Array = tuple[str, str, tuple[int, ...], bytes]


def files_of_model(model: ModelRef) -> dict[str, Path]:
    """Return the files of a model that is a path, each under the name that its digest is computed with.

    The file that is opened is called `model`, so that a renamed copy has the same digest. Other files have their
    relative paths. The settings of OpenVINO and the record of an engine decide the outputs, so they belong to the
    model.

    Raises:
        InputFileError: The model cannot be read.
    """
    path = model.path
    if model.kind is SourceKind.ONNX:
        return {"model": path, **{name: path.parent / name for name in external_files(read_onnx(path))}}
    if model.kind is SourceKind.OPENVINO:
        from paritygate.models.openvino.model import openvino_files

        return openvino_files(path)
    if model.kind in {SourceKind.TENSORRT, SourceKind.TENSORRT_RTX}:
        # Without a sound record, an engine has no digest that represents it.
        EngineRecord.load(path)
        return {"model": path, RECORD_FILE: path.parent / RECORD_FILE}
    if path.is_dir():
        own = path / ARTIFACT_FILE
        return {file.relative_to(path).as_posix(): file for file in files_below(path) if file != own}
    return {"model": path}


def digest_of_model(model: ModelRef) -> str | None:
    """Return the digest of the model's files; None for a `module:callable`, which is not a file."""
    if model.kind in {SourceKind.CALLABLE, SourceKind.TORCH} or not model.path.exists():
        return None
    return digest_of_files({name: digest_of_file(path) for name, path in files_of_model(model).items()})


def digest_of_parameters(kind: SourceKind, model: Any) -> str:  # noqa: ANN401 - a torch.nn.Module or a keras.Model
    """Return a digest over names, dtypes, shapes and bytes of the parameters and buffers of a model object."""
    state = hashlib.sha256()
    # One at a time: all of them once more would double the memory of a large model.
    for name, dtype, shape, raw in _torch_arrays(model) if kind is SourceKind.TORCH else _keras_arrays(model):
        state.update(f"{name}:{dtype}:{shape}:".encode())
        state.update(raw)
    return f"sha256:{state.hexdigest()}"


def _torch_arrays(module: Any) -> Iterator[_Array]:  # noqa: ANN401 - a torch.nn.Module
    import torch

    for name, tensor in module.state_dict().items():
        flat = tensor.detach().cpu().contiguous().flatten()
        raw = flat.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        yield name, str(tensor.dtype), tuple(tensor.shape), raw


def _keras_arrays(model: Any) -> Iterator[_Array]:  # noqa: ANN401 - a keras.Model
    import numpy as np

    for variable in model.weights:
        value = np.ascontiguousarray(variable.numpy())
        yield variable.path, str(value.dtype), value.shape, value.tobytes()
