"""What is done to a module while it is exported, so that an exporter takes it: the module itself stays as it was.

Attention of transformers is written out, because not every fused one is translated. What recurrent layers return for
packed sequences becomes more outputs: the TorchScript exporter crashes on a layer of which nothing but the last state
is used, as of a classifier of texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["eager_attention", "may_be_eager", "with_packed_outputs"]

# Where configurations of transformers say which attention their model computes, and what is written out.
_SETTING = "_attn_implementation"
_EAGER = "eager"


def may_be_eager(module: torch.nn.Module) -> bool:
    """Return whether a part of the module computes an attention of transformers that is not written out."""
    return any(getattr(config, _SETTING) not in {None, _EAGER} for config in _configs(module))


@contextmanager
def eager_attention(module: torch.nn.Module) -> Iterator[None]:
    """Let all parts of the module compute written out attention, and what they computed before when this is left.

    The module itself is changed for the while, and not a copy: its weights may fill the memory.
    """
    # Whole dicts: the setting has a setter, which changes configurations within others as well.
    before = [(config, dict(vars(config))) for config in _configs(module)]
    try:
        for config, _ in before:
            setattr(config, _SETTING, _EAGER)
        yield
    finally:
        for config, values in before:
            vars(config).clear()
            vars(config).update(values)


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


def _configs(module: torch.nn.Module) -> Iterator[Any]:
    """Yield each configuration of transformers that a part of the module has, once."""
    seen: set[int] = set()
    found = [part.config for part in module.modules() if hasattr(part, "config")]
    while found:
        config = found.pop()
        if id(config) in seen or not hasattr(config, _SETTING):
            continue
        seen.add(id(config))
        # Those of the parts of a model, such as its text and its vision.
        found += [value for value in vars(config).values() if hasattr(value, _SETTING)]
        yield config
