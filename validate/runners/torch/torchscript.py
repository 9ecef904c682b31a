"""Run a TorchScript file."""

from __future__ import annotations

from paritygate.backends import require_backend
from paritygate.models.loading import LoadedModel
from paritygate.models.torch.archive import names_in_archive
from paritygate.models.torch.module import put_in_eval_mode
from paritygate.models.torch.names import KnownNames, named_file
from paritygate.models.torch.torchscript_file import constants_of, load_torchscript, notes_of, taking_its_names
from paritygate.validate.runners.torch.calls import TorchRunner, check_device, precision_of_tensors, torch_facts

__all__ = ["open_model"]


def open_model(loaded: LoadedModel) -> TorchRunner:
    """Return the module in the file, in eval mode and on the device, whatever it was saved on.

    Loading runs code of the file's author. Reads all weights, to find their precision.

    Raises:
        MissingBackendError: PyTorch is not installed, or has no CUDA where CUDA is asked for.
        InputFileError: The file is no TorchScript, or damaged.
        UsageError: Neither the file nor the spec says its names, or they are not those of the file.
    """
    require_backend("torch")
    check_device(loaded.device)
    path = loaded.ref.path
    module = load_torchscript(path, loaded.device)
    note = put_in_eval_mode(module)
    known = KnownNames(file=path, said=names_in_archive(path), declared=loaded.ref.signature, rename=loaded.ref.rename)
    named, signature = named_file(taking_its_names(module), known)
    weights = (*module.parameters(), *module.buffers(), *constants_of(module))
    device = next((tensor.device.type for tensor in weights), loaded.device)
    facts = torch_facts(device, precision_of_tensors(weights), (note, *notes_of(module)))
    return TorchRunner(named=named, signature=signature, facts=facts)
