"""What runs of every PyTorch model, whatever it comes in: eval mode, no autocast, float32 computed in float32."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import MissingBackendError
from paritygate.machine import device_name
from paritygate.models.torch.module import parts_with_fp32_precision, unused_outputs
from paritygate.models.weights import WeightTally
from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.validate.runners.runner import ALL_THERE_IS, ON_THE_GPU, Runner, RuntimeFacts

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

__all__ = ["TorchRunner", "check_device", "precision_of_tensors", "torch_facts"]

_BFLOAT16 = "bfloat16"


def check_device(device: str) -> None:
    """Do nothing if this PyTorch runs on the device.

    Raises:
        MissingBackendError: It has no CUDA, where CUDA is asked for.
        BackendError: There is no such device.
    """
    import torch

    device_name(device)
    if device == "cuda" and not torch.cuda.is_available():
        msg = f"this build of torch ({torch.__version__}) does not run on CUDA here"
        raise MissingBackendError(
            msg, hint="install torch for the CUDA version that nvidia-smi shows, or use device cpu"
        )


def precision_of_tensors(tensors: Iterable[torch.Tensor]) -> Precision | None:
    """Return the precision of weights; None where they are packed, or there are none.

    Reads all of them.
    """
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


def torch_facts(device: str, precision: Precision | None, notes: Iterable[str | None]) -> RuntimeFacts:
    """Return what runs, read back from PyTorch.

    Args:
        device: The type of the device that the model's weights are on.
        precision: The precision found in the weights.
        notes: What the user should know; None where there is nothing.
    """
    import torch

    with _full_precision(device):
        tf32 = _is_tf32_allowed() if device == "cuda" else None
    found = [note for note in notes if note]
    if precision is None:
        found.append("the precision of the weights could not be read: they are packed, or none is a float")
    return RuntimeFacts(
        runtime="torch",
        version=str(torch.__version__),
        device=device_name(device),
        precision_found=precision,
        tf32=tf32,
        notes=tuple(found),
        # No gradients and no switch of a call's own: what is set for every batch is the same for all.
        may_be_called_at_once=device == "cpu",
    )


@contextlib.contextmanager
def _full_precision(device: str) -> Iterator[None]:
    """Compute without gradients, autocast, TF32 and bfloat16 kernels for float32.

    The switches are those of the process. They are set for every batch, because importing somebody's
    module may turn them.
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
    """One PyTorch module, or what was loaded from a file of PyTorch's."""

    _what = "the PyTorch module failed"
    _hint = "check that the samples are within what the module takes"

    def __init__(self, *, named: torch.nn.Module, signature: Signature, facts: RuntimeFacts) -> None:
        super().__init__(signature, facts)
        self._named = named
        self._device = facts.device.partition(":")[0]

    @property
    def facts(self) -> RuntimeFacts:
        """What runs, read back; after the first batch also which outputs the signature leaves out."""
        unused = unused_outputs(self._named)
        if not unused:
            return self._facts
        note = f"the module also returns {', '.join(unused)}, which the signature does not have"
        return replace(self._facts, notes=(*self._facts.notes, note))

    def _call(self, feed: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        with _full_precision(self._device):
            tensors = [_tensor(array, self._device) for array in feed.values()]
            return [_array(output) for output in self._named(*tensors)]

    def on_one_thread(self) -> contextlib.AbstractContextManager[TorchRunner] | str:
        """Return what sets PyTorch to one thread while it is open, or why it is not."""
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


def _tensor(array: NDArray[np.generic], device: str) -> torch.Tensor:
    import torch

    # A copy, because the module may change its inputs in place, and they are the caller's.
    own = np.array(array, order="C")
    if own.dtype.name == _BFLOAT16:
        return torch.from_numpy(own.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(own).to(device)


def _array(tensor: torch.Tensor) -> NDArray[np.generic]:
    import torch

    # A copy, because it may be one with a weight, an input or another output.
    own = tensor.detach().to("cpu", copy=True).contiguous()
    if own.dtype != torch.bfloat16:
        array: NDArray[np.generic] = own.numpy()
        return array
    import ml_dtypes

    return own.view(torch.int16).numpy().view(np.dtype(ml_dtypes.bfloat16))
