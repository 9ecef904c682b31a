"""Change a module while it is exported, so that an exporter accepts it, and restore it.

Attention of transformers is written out, and its experts use one matrix product a batch, because fused or grouped ones
are not always translated. Packed sequences that recurrent layers return become more outputs. Otherwise the TorchScript
exporter crashes on a layer whose last state alone is used, as in a classifier of texts. Autograd functions of the
module compute only their forward, because no file can hold a trace's call of Python. PyTorch's transformer layers omit
their fast path, an operator that ONNX lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Settings of transformers for attention and experts, with values that exporters accept.
_PLAIN = {"_attn_implementation": "eager", "_experts_implementation": "batched_mm"}
_SETTING = "_attn_implementation"


def plain_settings(module: torch.nn.Module) -> dict[str, str]:
    """Return settings of transformers that let exporters accept the module."""
    configs = list(_configs(module))
    return {
        name.removeprefix("_"): plain
        for name, plain in _PLAIN.items()
        if any(_is_fused(config, name) for config in configs)
    }


def _is_fused(config: Any, name: str) -> bool:  # noqa: ANN401 - a configuration of transformers
    return getattr(config, name, None) not in {None, "eager", _PLAIN[name]}


@contextmanager
def plainly_computed(module: torch.nn.Module) -> Iterator[None]:
    """Let all parts of the module compute by these settings inside the context.

    The module itself is changed, because a copy of its weights may not fit into memory.
    """
    # Whole dicts, because the setter also changes configurations inside others.
    before = [(config, dict(vars(config))) for config in _configs(module)]
    try:
        for config, _ in before:
            for name, plain in _PLAIN.items():
                if _is_fused(config, name):
                    setattr(config, name, plain)
        yield
    finally:
        for config, values in before:
            vars(config).clear()
            vars(config).update(values)


@contextmanager
def forward_alone() -> Iterator[None]:
    """Let autograd functions in Python compute only their forward."""
    import torch

    function = torch.autograd.Function
    inherited = vars(function)["apply"]
    without_context = function.setup_context

    def apply(cls: Any, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the function takes
        if cls.setup_context is not without_context:
            return cls.forward(*inputs, **named)
        context = torch.autograd.function.FunctionCtx()
        context.needs_input_grad = (False,) * len(inputs)  # type: ignore[attr-defined]  # the engine sets it
        return cls.forward(context, *inputs, **named)

    function.apply = classmethod(apply)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        function.apply = inherited  # type: ignore[method-assign]


@contextmanager
def without_fast_path() -> Iterator[None]:
    """Let PyTorch's transformer layers compute by plain operators inside the context."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def with_packed_outputs(named: torch.nn.Module) -> torch.nn.Module:
    """Return a named module with additional outputs: all packed sequences of its layers, unpacked.

    Without recurrent layers, the module itself is returned.
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
            unpacked: list[torch.Tensor] = []

            def keep(_layer: torch.nn.Module, _inputs: Any, answer: Any) -> None:  # noqa: ANN401 - as torch calls it
                if isinstance(answer[0], PackedSequence):
                    unpacked.append(pad_packed_sequence(answer[0])[0])

            hooks = [layer.register_forward_hook(keep) for layer in layers]
            try:
                return (*self.named(*arrays), *unpacked)
            finally:
                for hook in hooks:
                    hook.remove()

    return WithPackedOutputs()


def _configs(module: torch.nn.Module) -> Iterator[Any]:
    """Yield each configuration of transformers that a part of the module has, once."""
    seen: set[int] = set()
    pending = [part.config for part in module.modules() if hasattr(part, "config")]
    while pending:
        config = pending.pop()
        if id(config) in seen or not hasattr(config, _SETTING):
            continue
        seen.add(id(config))
        # Of the parts of a model, such as its text and its vision.
        pending += [value for value in vars(config).values() if hasattr(value, _SETTING)]
        yield config
