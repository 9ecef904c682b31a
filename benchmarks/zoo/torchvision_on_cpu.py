"""Makes torchvision importable where its compiled operators are not.

What a package index holds is built for PyTorch with CUDA, and its library does not load beside a CPU build, while
transformers and timm import torchvision where it is installed. Non-maximum suppression is then written in Python.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["make_importable"]

_kept: list[object] = []


def make_importable() -> None:
    """Define the operators without which torchvision's import fails."""
    if _kept or not importlib.util.find_spec("torchvision"):
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        import torch

        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.impl(name, _nms, "CPU")
        _kept.append(library)


def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    import torch

    order = scores.argsort(descending=True, stable=True)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(best)
        low = torch.maximum(boxes[best, :2], boxes[rest, :2])
        high = torch.minimum(boxes[best, 2:], boxes[rest, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        order = rest[shared / (area[best] + area[rest] - shared) <= iou_threshold]
    return torch.stack(kept) if kept else order
