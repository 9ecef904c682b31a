"""Detect PyTorch models that compute in float16 or bfloat16, as many checkpoints are saved, and name the remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_HALF = frozenset({"float16", "bfloat16"})
LOAD_IN_FP32 = (
    "load the model in FP32: call .float() on the module, or from_pretrained(..., dtype=torch.float32), and convert to "
    "a -fp16 or -bf16 target"
)


def half_dtype(tensors: Iterable[torch.Tensor]) -> str | None:
    """Return `float16` or `bfloat16` where most float values of the weights are of that dtype; else None."""
    counts: Counter[str] = Counter()
    for tensor in tensors:
        if tensor.is_floating_point():
            counts[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
    dtype = max(counts, key=counts.__getitem__, default=None)
    return dtype if dtype in _HALF else None


def half_dtype_of_model(model: Any) -> str | None:  # noqa: ANN401 - a model of any framework, or None
    """Return `half_dtype` of a model object; None if it is not a PyTorch module."""
    is_module = any(cls.__module__ == "torch.nn.modules.module" for cls in type(model).__mro__)
    return half_dtype(model.parameters()) if is_module else None


def half_precision_words(dtype: str) -> str:
    """Return the message that a source computes in a dtype."""
    return f"the source computes in half precision ({dtype}), so its own rounding is part of every difference"
