"""The digest of a model object: over its parameters and buffers, because it is no file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from paritygate.models.source import SourceKind

__all__ = ["digest_of_parameters"]

_Array = tuple[str, str, tuple[int, ...], bytes]


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
