"""The digest of a model object: over its parameters and buffers, because it is no file."""

from __future__ import annotations

import hashlib
from typing import Any

from paritygate.source import SourceKind

__all__ = ["digest_of_parameters"]


def digest_of_parameters(kind: SourceKind, model: Any) -> str:  # noqa: ANN401 - a torch.nn.Module or a keras.Model
    """Return a digest over names, dtypes, shapes and bytes of the parameters and buffers of a model object."""
    state = hashlib.sha256()
    if kind is SourceKind.TORCH:
        named = [(name, tensor.detach().cpu()) for name, tensor in model.state_dict().items()]
        arrays = [(name, _torch_bytes(tensor), str(tensor.dtype), tuple(tensor.shape)) for name, tensor in named]
    else:
        import numpy as np

        arrays = []
        for variable in model.weights:
            value = np.ascontiguousarray(variable.numpy())
            arrays.append((variable.path, value.tobytes(), str(value.dtype), value.shape))
    for name, raw, dtype, shape in arrays:
        state.update(f"{name}:{dtype}:{shape}:".encode())
        state.update(raw)
    return f"sha256:{state.hexdigest()}"


def _torch_bytes(tensor: Any) -> bytes:  # noqa: ANN401 - torch is not imported here
    import torch

    return bytes(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()) if tensor.numel() else b""
