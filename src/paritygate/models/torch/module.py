"""A PyTorch module behind a signature: inputs in order, outputs picked by name, in eval mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from paritygate.models.named_call import check_rename, select_outputs, source_names, takes_keywords
from paritygate.signature import Signature

if TYPE_CHECKING:
    import torch

__all__ = ["as_named_module", "device_of", "put_in_eval_mode", "unused_outputs"]


class _Seen:
    # An object of its own: torch.export forbids a module to change its attributes while it is traced.
    unused: tuple[str, ...] = ()


def as_named_module(module: torch.nn.Module, signature: Signature, rename: Mapping[str, str]) -> torch.nn.Module:
    """Return a module that takes and returns exactly the tensors of the signature, in its order.

    The inputs reach `module` by keyword where its forward has parameters of these names, else in
    order. Dicts, named tuples and such objects as `ModelOutput` are read by name, tensors, tuples and lists
    in order. Outputs that are not in the signature are left out: see `unused_outputs`.

    Args:
        module: The user's module; it is referred to, not copied.
        signature: Inputs and outputs under the names served.
        rename: The name served, by the source's name.

    Raises:
        UsageError: The signature does not fit forward's parameters; when the module is called, that
            it returned something else.
    """
    import torch

    check_rename(signature, rename)
    names = source_names(signature.inputs, rename)
    by_keyword = takes_keywords(module.forward, names, f"forward of {type(module).__name__}")

    class NamedModule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.seen = _Seen()
            # A new module says it is in train mode. Not by train(): that would change the user's module.
            self.training = module.training

        def forward(self, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
            result = self.module(**dict(zip(names, arrays, strict=True))) if by_keyword else self.module(*arrays)
            outputs, self.seen.unused = select_outputs(result, signature, rename)
            return outputs

    return NamedModule()


def unused_outputs(named: torch.nn.Module) -> tuple[str, ...]:
    """Return the source's names of the outputs that the last call of a named module left out.

    Args:
        named: What `as_named_module` returned, called or exported at least once.
    """
    return cast("_Seen", named.seen).unused


def put_in_eval_mode(module: torch.nn.Module) -> str | None:
    """Put the module and all it holds into eval mode; return a note for the user if it was not.

    In train mode dropout is active and batch norm uses the statistics of the batch: no such module is served.
    """
    # A frozen module of TorchScript has no mode any more.
    parts = [(name, part) for name, part in module.named_modules() if hasattr(part, "training")]
    training = [name or "the module itself" for name, part in parts if part.training]
    if parts:
        module.eval()
    if not training:
        return None
    return f"the module was in train mode ({len(training)} parts, first {training[0]!r}) and was put into eval mode"


def device_of(module: torch.nn.Module) -> Any:  # noqa: ANN401 - a torch.device, and torch is not imported here
    """Return the device that the module's first parameter or buffer is on; the CPU if it has none."""
    import torch

    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")
