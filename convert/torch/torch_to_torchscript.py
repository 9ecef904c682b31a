"""Convert PyTorch to TorchScript by tracing."""

from __future__ import annotations

import contextlib
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend, version_of
from paritygate.convert.contract import notes_left_out
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.torch.exportable import forward_alone
from paritygate.convert.torch.inputs import Rows, input_draws
from paritygate.convert.torch.program import declared_signature, untraceable
from paritygate.convert.torch.sizes import example_sizes
from paritygate.convert.torch.traced_devices import have_devices_follow
from paritygate.models.torch.archive import SaidNames, write_archive
from paritygate.models.torch.module import as_named_module, device_of, precision_kept, put_in_eval_mode, unused_outputs
from paritygate.signature import Signature
from paritygate.text import counted

if TYPE_CHECKING:
    import torch

_MAIN = "model.pt"
_SOURCE_PLACES = ".debug_pkl"


def convert(job: ConversionJob) -> Conversion:
    """Write the module, in eval mode with a note, as `model.pt`, with the names of the signature in it.

    A trace holds the operators that one input went through. The format's check compares the file with the module at
    other sizes.
    """
    require_backend("torch")
    import torch

    signature = declared_signature(job)
    eval_note = put_in_eval_mode(job.model)
    named = as_named_module(job.model, signature, job.rename)
    script, _, trace_notes = traced(named, signature, job.rows, job.ties)
    stays = have_devices_follow(script)
    device_note = (
        f"the trace makes tensors on the {device_of(named).type} at {counted(stays, 'place')}, wherever its inputs are"
        if stays
        else None
    )
    with tempfile.TemporaryDirectory(dir=job.folder, prefix=".traced-") as place:
        saved = Path(place) / _MAIN
        torch.jit.save(script, str(saved))
        names = SaidNames(signature=signature)
        # The code's origin is paths of this machine, so files would differ between checkouts.
        write_archive(saved, job.folder / _MAIN, names, left_out=_SOURCE_PLACES)
    return Conversion(
        main=_MAIN,
        signature=signature,
        notes=tuple(
            note for note in (eval_note, *notes_left_out(unused_outputs(named)), device_note, *trace_notes) if note
        ),
        facts={"torch": version_of("torch")},
    )


def traced(
    named: torch.nn.Module, signature: Signature, rows: Rows, ties: Mapping[str, str]
) -> tuple[Any, tuple[torch.Tensor, ...], tuple[str, ...]]:
    """Return the module traced with example sizes, the inputs of the trace, and the tracer's warnings.

    Inputs are real rows, or generated ones if there are none or the module refuses them. `ties` are sums that a dim
    equals in all samples.

    Raises:
        UsageError: The outputs do not fit the signature, or an input has no full shape.
        ConversionError: It cannot be traced.
    """
    device = device_of(named)
    errors: list[Exception] = []
    for inputs in chain.from_iterable(input_draws(signature, example_sizes(signature, ties), rows)):
        arrays = tuple(tensor.to(device) for tensor in inputs)
        try:
            script, notes = _traced_with(named, arrays)
        except Exception as err:  # noqa: BLE001 - whatever the user's module raises
            errors.append(err)
        else:
            return script, arrays, notes
    # The error of the likeliest inputs.
    raise untraceable(errors[0], "torch.jit.trace") from errors[0]


def _traced_with(named: torch.nn.Module, arrays: tuple[torch.Tensor, ...]) -> tuple[Any, tuple[str, ...]]:
    import torch

    with warnings.catch_warnings(record=True) as seen, tracing():
        warnings.simplefilter("always")
        # Not strict, because dicts inside the module are harmless: the output is a tuple.
        script = torch.jit.trace(named, arrays, strict=False, check_trace=True)  # type: ignore[no-untyped-call]
    return script, tuple(dict.fromkeys(_told(seen)))


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Let modules compute for a trace: in float32, and only by operators."""
    import torch

    plain = torch.no_grad(), torch.autocast("cpu", enabled=False), _convolutions_in_float32(), forward_alone()
    with contextlib.ExitStack() as stack:
        for context in plain:
            stack.enter_context(context)
        yield


@contextlib.contextmanager
def _convolutions_in_float32() -> Iterator[None]:
    """Record convolutions in float32, not TF32, in a trace.

    A trace stores PyTorch's switch, which is on by default, for every GPU that the file will run on.
    """
    import torch

    with precision_kept():
        torch.backends.cudnn.allow_tf32 = False
        yield


def _told(seen: Iterable[warnings.WarningMessage]) -> Iterator[str]:
    from torch.jit._trace import TracerWarning

    for warning in seen:
        if issubclass(warning.category, TracerWarning):
            # Without the folder, which is of this machine, and the line of code below it.
            text = " ".join(str(warning.message).split())
            first = re.split(r"(?<=[.!])\s", text, maxsplit=1)[0]
            yield f"torch.jit.trace at {Path(warning.filename).name}:{warning.lineno}: {first}"
