"""Run a program of torch.export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.backends import require_backend
from paritygate.errors import BackendError
from paritygate.models.loading import LoadedModel
from paritygate.models.torch.names import named_file
from paritygate.models.torch.pt2_file import known_names, load_pt2, notes_of, taking_its_names
from paritygate.validate.runners.runner import reason_of
from paritygate.validate.runners.torch.calls import TorchRunner, check_device, precision_of_tensors, torch_facts

if TYPE_CHECKING:
    import torch

__all__ = ["open_model"]


def open_model(loaded: LoadedModel) -> TorchRunner:
    """Return the program in the file, on the device.

    Loading may run code of the file's author. Reads all weights, to find their precision.

    Raises:
        MissingBackendError: PyTorch is not installed, or has no CUDA where CUDA is asked for.
        InputFileError: The file is no program of torch.export, or damaged.
        BackendError: The program cannot be moved to the device.
        UsageError: Neither the file nor the spec says its names, or they are not those of the file.
    """
    require_backend("torch")
    check_device(loaded.device)
    program = load_pt2(loaded.ref.path)
    known = known_names(loaded.ref.path, program, loaded.ref.signature, loaded.ref.rename)
    program = _moved(program, loaded.device)
    module = program.module()
    named, signature = named_file(taking_its_names(program, module, module), known)
    weights = (*program.state_dict.values(), *_tensors(program))
    device = next((tensor.device.type for tensor in weights), loaded.device)
    facts = torch_facts(device, precision_of_tensors(weights), notes_of(program))
    return TorchRunner(named=named, signature=signature, facts=facts)


def _moved(program: torch.export.ExportedProgram, device: str) -> torch.export.ExportedProgram:
    from torch.export.passes import move_to_device_pass

    try:
        return move_to_device_pass(program, device)
    except Exception as err:
        msg = f"the program cannot be moved to device {device!r}: {reason_of(err)}"
        raise BackendError(msg, hint=f"export the model again on {device!r}") from err


def _tensors(program: torch.export.ExportedProgram) -> list[torch.Tensor]:
    import torch

    return [item for item in program.constants.values() if isinstance(item, torch.Tensor)]
