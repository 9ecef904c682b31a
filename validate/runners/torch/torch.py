"""Run a PyTorch module: eval mode, no autocast, float32 computed in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from paritygate.backends import require_backend
from paritygate.errors import BackendError, UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.torch.module import as_named_module, device_of, put_in_eval_mode, signature_of_module
from paritygate.precision import Precision
from paritygate.validate.runners.runner import reason_of
from paritygate.validate.runners.torch.calls import TorchRunner, check_device, precision_of_tensors, torch_facts

if TYPE_CHECKING:
    import torch

    from paritygate.models.example import Example

__all__ = ["TorchRunner", "open_model"]

# Modules of these packages hold their weights packed, where no parameter shows them.
_QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")


def open_model(loaded: LoadedModel) -> TorchRunner:
    """Return the module, put into eval mode and moved to the device.

    Reads all parameters and buffers, to find their precision.

    Raises:
        MissingBackendError: PyTorch is not installed, or has no CUDA where CUDA is asked for.
        BackendError: The module cannot be moved to the device.
        UsageError: There is no signature, or it does not fit the module.
    """
    require_backend("torch")
    if loaded.ref.signature is None and loaded.example is None:
        msg = f"the names and dtypes of {loaded.ref.text} are not known: a PyTorch module does not say them"
        raise UsageError(msg, hint="declare inputs: and outputs: in the spec")
    module: torch.nn.Module = loaded.model
    note = put_in_eval_mode(module)
    _move(module, loaded.device)
    signature = loaded.ref.signature
    if signature is None:
        signature = signature_of_module(module, cast("Example", loaded.example), loaded.ref.rename)
    return TorchRunner(
        named=as_named_module(module, signature, loaded.ref.rename),
        signature=signature,
        facts=torch_facts(device_of(module).type, _precision_found(module), [note]),
    )


def _move(module: torch.nn.Module, device: str) -> None:
    check_device(device)
    try:
        module.to(device)
    except Exception as err:
        msg = f"the module cannot be moved to device {device!r}: {reason_of(err)}"
        raise BackendError(msg, hint="load all weights in the callable, and leave the device to paritygate") from err


def _precision_found(module: torch.nn.Module) -> Precision | None:
    if any(type(part).__module__.startswith(_QUANTIZED) for part in module.modules()):
        return Precision.INT8
    return precision_of_tensors((*module.parameters(), *module.buffers()))
