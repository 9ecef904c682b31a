"""What a spec is to declare of a PyTorch module, which says nothing itself: found by running it on real inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from paritygate.models.named_call import outputs_by_name
from paritygate.models.torch.module import answer_of

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

__all__ = ["declaration_of"]

_BATCH = "batch"
_NO_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def declaration_of(module: torch.nn.Module, rows: Mapping[str, NDArray[np.generic]]) -> str:
    """Return the lines `inputs: {...}` and `outputs: {...}` of a spec, each after a line break.

    Nothing is returned where the module does not answer, or with no tensor. Axis 0 is taken for the batch where it has
    as many entries as the inputs have rows; every other dim has the size that was seen.

    Args:
        module: The module.
        rows: The first batch of the samples; of its inputs, those that `forward` has parameters for are given to it by
            name, and where it has none of them, all in their order.
    """
    import torch

    if not rows:
        return ""
    try:
        inputs, answer = answer_of(module, rows)
    except Exception:  # noqa: BLE001 - why it does not answer is said where it is run with a declaration
        return ""
    count = len(next(iter(rows.values())))
    tensors = {name: found for name, found in outputs_by_name(answer).items() if isinstance(found, torch.Tensor)}
    return f"\n  inputs: {_declared(inputs, count)}\n  outputs: {_declared(tensors, count)}" if tensors else ""


def _declared(tensors: Mapping[str, torch.Tensor], count: int) -> str:
    """Return what a spec says of tensors, in YAML's flow style."""
    return f"{{{', '.join(f'{_text(name)}: {_of_tensor(tensor, count)}' for name, tensor in tensors.items())}}}"


def _of_tensor(tensor: torch.Tensor, count: int) -> str:
    dims = [str(size) for size in tensor.shape]
    if dims and tensor.shape[0] == count:
        dims[0] = _BATCH
    return f"{{dtype: {str(tensor.dtype).removeprefix('torch.')}, shape: [{', '.join(dims)}]}}"


def _text(name: str) -> str:
    # JSON's quotes are YAML's, and some plain words are no text to YAML.
    return name if name.isidentifier() and name.lower() not in _NO_WORDS else json.dumps(name)
