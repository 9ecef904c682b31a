"""The attention of models of transformers, written out while they are exported: not every fused one can be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["eager_attention", "may_be_eager"]

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
