"""What recurrent layers return for packed sequences, as more outputs of a module that is traced for torch.onnx.

The TorchScript exporter crashes on a layer of which nothing but the last state is used, as of a classifier of texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["with_packed_outputs"]


def with_packed_outputs(named: torch.nn.Module) -> torch.nn.Module:
    """Return a module that answers like a named one, and after that with all that layers returned packed, unpacked.

    Args:
        named: What `as_named_module` returned; it is returned itself where nothing in it is recurrent.
    """
    import torch
    from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

    layers = [part for part in named.modules() if isinstance(part, torch.nn.RNNBase)]
    if not layers:
        return named

    class WithPackedOutputs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.named = named
            self.training = named.training

        def forward(self, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found: list[torch.Tensor] = []

            def keep(_layer: torch.nn.Module, _inputs: Any, answer: Any) -> None:  # noqa: ANN401 - as torch calls it
                if isinstance(answer[0], PackedSequence):
                    found.append(pad_packed_sequence(answer[0])[0])

            hooks = [layer.register_forward_hook(keep) for layer in layers]
            try:
                return (*self.named(*arrays), *found)
            finally:
                for hook in hooks:
                    hook.remove()

    return WithPackedOutputs()
