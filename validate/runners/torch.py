"""Run PyTorch modules, TorchScript and `.pt2` files: eval mode, no autocast, float32 computed in float32."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from paritygate.backends import require_backend
from paritygate.batch import Arrays
from paritygate.errors import BackendError, MissingBackendError, UsageError
from paritygate.machine import device_name
from paritygate.models.half_precision import half_dtype
from paritygate.models.loading import LoadedModel
from paritygate.models.source import SourceKind
from paritygate.models.torch import pt2_file, torchscript_file
from paritygate.models.torch.archive import names_in_archive
from paritygate.models.torch.module import (
    as_named_module,
    device_of,
    modes_kept,
    parts_with_fp32_precision,
    put_in_eval_mode,
    signature_of_module,
    train_mode_of,
    unused_outputs,
)
from paritygate.models.torch.names import KnownNames, named_file
from paritygate.models.weights import WeightTally
from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.text import counted
from paritygate.validate.runners.runner import ALL_THERE_IS, ON_THE_GPU, Runner, RuntimeFacts, reason_of

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from paritygate.models.example import Example

# Modules of these packages hold their weights packed, where no parameter shows them.
_QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")
_BFLOAT16 = "bfloat16"
# PyTorch's words for tensors on several devices.
_ELSEWHERE = ("the same device", "torch.cuda.FloatTensor")


def open_model(loaded: LoadedModel) -> TorchRunner:
    """Return the module, or the one in the file, in eval mode and on the device; it reads all weights.

    Loading a file may run code of its author's.
    """
    require_backend("torch")
    if loaded.ref.kind is SourceKind.TORCHSCRIPT:
        return _open_torchscript(loaded)
    return _open_pt2(loaded) if loaded.ref.kind is SourceKind.PT2 else _open_module(loaded)


def _open_module(loaded: LoadedModel) -> TorchRunner:
    if loaded.ref.signature is None and loaded.example is None:
        msg = f"the names and dtypes of {loaded.ref.text} are unknown, because a PyTorch module does not declare them"
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
        facts=_torch_facts(device_of(module).type, precision_of_module(module), [note], module.parameters()),
    )


def _move(module: torch.nn.Module, device: str) -> None:
    _check_device(device)
    try:
        module.to(device)
    except Exception as err:
        msg = f"the module cannot be moved to device {device!r}: {reason_of(err)}"
        raise BackendError(msg, hint="load all weights in the callable, and leave the device to paritygate") from err


def precision_of_module(module: torch.nn.Module) -> Precision | None:
    """Return the precision of a module's weights, which it reads; None where they are packed, or there are none."""
    if any(type(part).__module__.startswith(_QUANTIZED) for part in module.modules()):
        return Precision.INT8
    return precision_of_tensors((*module.parameters(), *module.buffers()))


def _open_torchscript(loaded: LoadedModel) -> TorchRunner:
    _check_device(loaded.device)
    path = loaded.ref.path
    module = torchscript_file.load_torchscript(path, loaded.device)
    if loaded.side == "candidate":
        # A server runs the file as it loads, so a candidate in train mode is measured in train mode.
        mode = train_mode_of(module)
        note = f"{mode} and was measured so, as a server may run it: call eval() before saving it" if mode else None
    else:
        note = put_in_eval_mode(module)
    taking = torchscript_file.taking_its_names(module)
    archived_names, declared = names_in_archive(path), loaded.ref.signature
    if archived_names is None and declared is None and loaded.example is not None:
        with modes_kept(module):
            declared = signature_of_module(taking, loaded.example, loaded.ref.rename)
    names = KnownNames(file=path, said=archived_names, declared=declared, rename=loaded.ref.rename)
    named, signature = named_file(taking, names)
    weights = (*module.parameters(), *module.buffers(), *torchscript_file.constants_of(module))
    device = next((tensor.device.type for tensor in weights), loaded.device)
    lowered = torchscript_file.count_tf32_convolutions(module) if device == "cuda" else 0
    lowered_note = (
        f"{counted(lowered, 'convolution')} may compute in TF32, whatever is set, because the trace says so: trace the "
        "module with torch.backends.cudnn.allow_tf32 = False"
    )
    notes = (note, *torchscript_file.notes_of(module), lowered_note if lowered else None)
    train = torchscript_file.in_training(module)
    facts = _torch_facts(device, precision_of_tensors(weights), notes, weights, train)
    return TorchRunner(named=named, signature=signature, facts=replace(facts, tf32=True) if lowered else facts)


def _open_pt2(loaded: LoadedModel) -> TorchRunner:
    _check_device(loaded.device)
    program = pt2_file.load_pt2(loaded.ref.path)
    names = pt2_file.known_names(loaded.ref.path, program, loaded.ref.signature, loaded.ref.rename)
    program = _moved(program, loaded.device)
    module = program.module()
    named, signature = named_file(pt2_file.taking_its_names(program, module, module), names)
    weights = (*program.state_dict.values(), *_tensors(program))
    device = next((tensor.device.type for tensor in weights), loaded.device)
    notes, train = pt2_file.notes_of(program), pt2_file.in_training(program)
    facts = _torch_facts(device, precision_of_tensors(weights), notes, weights, train)
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


def _check_device(device: str) -> None:
    """Raise MissingBackendError where this PyTorch has no CUDA, but CUDA is requested."""
    import torch

    device_name(device)
    if device == "cuda" and not torch.cuda.is_available():
        msg = f"this build of torch ({torch.__version__}) does not run on CUDA here"
        raise MissingBackendError(
            msg, hint="install torch for the CUDA version that nvidia-smi shows, or use device cpu"
        )


def precision_of_tensors(tensors: Iterable[torch.Tensor]) -> Precision | None:
    """Return the precision of weights, which it reads; None where they are packed, or there are none."""
    import torch

    tally = WeightTally()
    for tensor in tensors:
        if type(tensor) not in {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}:
            # A tensor class of its own, such as quantized or not yet initialised weights.
            return None
        if tensor.is_quantized:
            return Precision.INT8
        if tensor.dtype == torch.float32:
            tally.add(tensor.detach().cpu().numpy())
        else:
            tally.add_stored(str(tensor.dtype).removeprefix("torch."), tensor.numel())
    return tally.precision_of_parameters()


def _torch_facts(
    device: str,
    precision: Precision | None,
    notes: Iterable[str | None],
    weights: Iterable[torch.Tensor],
    in_training: Iterable[str] = (),
) -> RuntimeFacts:
    """Return what runs, read back from PyTorch, on the device of the model's weights."""
    import torch

    with _full_precision(device):
        tf32 = _is_tf32_allowed() if device == "cuda" else None
    sentences = [note for note in notes if note]
    if precision is None:
        sentences.append("the precision of the weights could not be read: they are packed, or none is a float")
    return RuntimeFacts(
        runtime="torch",
        version=str(torch.__version__),
        device=device_name(device),
        precision_found=precision,
        tf32=tf32,
        notes=tuple(sentences),
        half_precision=half_dtype(weights),
        in_training=tuple(dict.fromkeys(in_training)),
        # No gradients and no switch of a call's own: the settings are the same for every batch.
        may_be_called_at_once=device == "cpu",
    )


@contextlib.contextmanager
def _full_precision(device: str) -> Iterator[None]:
    """Compute without gradients, autocast, TF32 and bfloat16 kernels for float32.

    These switches of the process are set for every batch, because importing a user's module may change them.
    """
    import torch

    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    for part in parts_with_fp32_precision():
        part.fp32_precision = "ieee"
    with torch.inference_mode(), torch.autocast(device_type=device, enabled=False):
        yield


def _is_tf32_allowed() -> bool:
    import torch

    switches = [getattr(part, "fp32_precision", "ieee") != "ieee" for part in parts_with_fp32_precision()]
    return torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32 or any(switches)


class TorchRunner(Runner):
    """One PyTorch module, possibly from a file of PyTorch's."""

    _what = "the PyTorch module failed"
    _hint = "check that the module accepts these samples"
    _hint_elsewhere = (
        "a tensor of the model is on another device: make it where an input is (device=x.device) or keep it as a "
        "buffer, and trace or export again; or leave the device at cpu"
    )

    def __init__(self, *, named: torch.nn.Module, signature: Signature, facts: RuntimeFacts) -> None:
        super().__init__(signature, facts)
        self.named = named
        self._device = facts.device.partition(":")[0]

    @property
    def facts(self) -> RuntimeFacts:
        """Return what runs, read back; after the first batch also which outputs the signature leaves out."""
        unused = unused_outputs(self.named)
        if not unused:
            return self._facts
        note = f"the module also returns {', '.join(unused)}, which the signature does not have"
        return replace(self._facts, notes=(*self._facts.notes, note), unread=tuple(unused))

    def _reason(self, err: Exception) -> str:
        return torchscript_file.reason_in_torchscript(err) or reason_of(err)

    def _hint_for(self, err: Exception) -> str:
        return self._hint_elsewhere if any(words in str(err) for words in _ELSEWHERE) else self._hint

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        with _full_precision(self._device):
            tensors = [tensor_of(array, self._device) for array in feed.values()]
            return [array_of(output) for output in self.named(*tensors)]

    def on_one_thread(self) -> contextlib.AbstractContextManager[TorchRunner] | str:
        """Return a context that sets PyTorch to one thread, or why there is none."""
        import torch

        if self._device != "cpu":
            return ON_THE_GPU
        return self._on_one_thread() if torch.get_num_threads() > 1 else ALL_THERE_IS

    @contextlib.contextmanager
    def _on_one_thread(self) -> Iterator[TorchRunner]:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield self
        finally:
            torch.set_num_threads(threads)


def tensor_of(array: NDArray[np.generic], device: str) -> torch.Tensor:
    """Return a copy of an array as a tensor."""
    import torch

    # A copy, because the module may change its inputs in place, and they are the caller's.
    own = np.array(array, order="C")
    if own.dtype.name == _BFLOAT16:
        return torch.from_numpy(own.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(own).to(device)


def array_of(tensor: torch.Tensor) -> NDArray[np.generic]:
    """Return a copy of a tensor as an array."""
    import torch

    # A copy, because it may share memory with a weight, an input or another output.
    own = tensor.detach().to("cpu", copy=True).contiguous()
    if own.dtype != torch.bfloat16:
        array: NDArray[np.generic] = own.numpy()
        return array
    import ml_dtypes

    return own.view(torch.int16).numpy().view(np.dtype(ml_dtypes.bfloat16))
