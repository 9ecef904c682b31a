"""Wrap a PyTorch module behind a signature: inputs in order, outputs picked by name, in eval mode."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from paritygate.batch import Arrays
from paritygate.errors import BackendError, ParitygateError, UsageError
from paritygate.models.example import Example, signature_seen
from paritygate.models.half_precision import LOAD_IN_FP32, half_dtype_of_model
from paritygate.models.named_call import check_rename, outputs_by_name, select_outputs, source_names, takes_keywords
from paritygate.signature import Signature
from paritygate.text import one_or_many

if TYPE_CHECKING:
    import torch

    from paritygate.models.declaration import Answer

# The messages of an embedding and an indexed tensor.
_WANTS_INTEGERS = re.compile(r"scalar types: Long, Int;|tensors used as indices must be")
# For each operator, the positions of its train flag, and of the input without which the flag changes nothing.
TRAIN_FLAGS = {
    **dict.fromkeys(("dropout", "dropout_", "native_dropout", "feature_dropout", "alpha_dropout"), (2, 1)),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_functional"), (5, 3)),
    **dict.fromkeys(("lstm", "gru"), (6, 5)),
}


class _Seen:
    # A separate object, because torch.export forbids a module to change its attributes while it is traced.
    unused: tuple[str, ...] = ()


def as_named_module(module: torch.nn.Module, signature: Signature, rename: Mapping[str, str]) -> torch.nn.Module:
    """Return a module that takes and returns exactly the tensors of the signature, in its order.

    Inputs reach `module` by keyword where its forward has parameters of these names, else in order. Dicts, named tuples
    and objects such as `ModelOutput` are read by name, tensors, tuples and lists in order. Other outputs are left out,
    see `unused_outputs`. The user's module is not copied.

    Raises:
        UsageError: The signature does not fit forward's parameters, or, in a call, its outputs.
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
            # A new module is in train mode. Calling train() would change the user's module.
            self.training = module.training

        def forward(self, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
            result = self.module(**dict(zip(names, arrays, strict=True))) if by_keyword else self.module(*arrays)
            outputs, self.seen.unused = select_outputs(result, signature, rename)
            return outputs

    return NamedModule()


def unused_outputs(named: torch.nn.Module) -> tuple[str, ...]:
    """Return the source's names of the outputs that the last call or export of a named module left out."""
    return cast("_Seen", named.seen).unused


def put_in_eval_mode(module: torch.nn.Module) -> str | None:
    """Put the module and its parts into eval mode; return a note for the user if it was not.

    In train mode dropout is active and batch norm uses the statistics of the batch, so no such module is served.
    """
    training = train_mode_of(module)
    # A frozen module of TorchScript has no mode.
    if any(hasattr(part, "training") for part in module.modules()):
        module.eval()
    return f"{training} and was put into eval mode" if training else None


def train_mode_of(module: torch.nn.Module) -> str:
    """Return a sentence that the module or parts of it are in train mode; empty if none is."""
    parts = module.named_modules()
    training = [name or "the module itself" for name, part in parts if getattr(part, "training", False)]
    return f"the module was in train mode ({len(training)} parts, first {training[0]!r})" if training else ""


def answer_of(module: torch.nn.Module, rows: Arrays) -> tuple[dict[str, torch.Tensor], Any]:
    """Return the arrays that the module takes, as tensors, and its outputs in eval mode, into which it is put.

    Arrays named like parameters of `forward` are passed by name. Without any such name, all are passed in order.
    """
    import torch

    place = device_of(module)
    parameters = parameters_of_forward(module)
    kinds = {item.kind for item in parameters.values()}
    by_name = [name for name in rows if name in parameters]
    # Text is not a tensor. Each tensor is a copy, because the module may change its inputs in place.
    taken = by_name or [name for name, array in rows.items() if array.dtype.kind not in "US"]
    tensors = {name: torch.tensor(rows[name]).to(place) for name in taken}
    put_in_eval_mode(module)
    with torch.no_grad():
        if by_name or kinds == {inspect.Parameter.VAR_KEYWORD}:
            return tensors, module(**tensors)
        return tensors, module(*tensors.values())


def tensors_of(module: torch.nn.Module) -> Answer:
    """Return a function that runs a module as `answer_of` does, and returns inputs and output tensors by name."""
    import torch

    def answer(rows: Arrays) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        taken, outputs = answer_of(module, rows)
        return taken, {name: item for name, item in outputs_by_name(outputs).items() if isinstance(item, torch.Tensor)}

    return answer


def signature_of_module(module: torch.nn.Module, example: Example, rename: Mapping[str, str]) -> Signature:
    """Return the signature of a module for which none is declared, under the names served, by running it once.

    Raises:
        UsageError: The samples lack an input of `forward` or have another dtype or shape, or no tensor is returned.
        BackendError: The module failed.
    """
    rows = example.by_own_names(rename)
    what = f"forward of {type(module).__name__}"
    parameters = parameters_of_forward(module)
    named = [name for name in rows if name in parameters]
    needed = [
        name
        for name, item in parameters.items()
        if item.default is item.empty and item.kind in {item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY}
    ]
    missing = [name for name in needed if name not in named]
    if named and missing:
        msg = f"the samples have no input {missing[0]!r}, which {what} expects (seen: {', '.join(rows)})"
        raise UsageError(msg, hint="name the samples' keys like the parameters of forward")
    takes_keywords(module.forward, named or list(rows), what)
    try:
        inputs, answer = answer_of(module, rows)
    except ParitygateError:
        raise
    except Exception as err:
        seen = "; ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in rows.items())
        text = (str(err).strip() or "no message").splitlines()[0]
        dtype = half_dtype_of_model(module)
        failed = f"the PyTorch module failed on {seen}: {type(err).__name__}: {text}"
        unfit = _no_integers(rows, str(err)) or _other_floats(module, rows) or example.unlike_the_other()
        if unfit:
            if dtype is not None and dtype in unfit:
                raise UsageError(f"{what} computes in half precision: {unfit}", hint=LOAD_IN_FP32) from err
            msg = f"{unfit}: {failed}"
            raise UsageError(msg, hint="give the samples in the dtype and shape that the model expects") from err
        hint = "check that the module accepts these samples" if dtype is None else LOAD_IN_FP32
        raise BackendError(failed, hint=hint) from err
    return signature_seen(example, inputs, answer, rename)


def _no_integers(rows: Arrays, message: str) -> str:
    """Return a message on float rows where PyTorch's message is about a lookup by integers; empty for none."""
    names = [repr(name) for name, array in rows.items() if array.dtype.kind == "f"]
    if not names or not _WANTS_INTEGERS.search(message):
        return ""
    what = one_or_many(len(names), "it", "one of them")
    return f"the samples hold {', '.join(names)} as floats, and the module takes {what} as int64 or int32"


def _other_floats(module: torch.nn.Module, rows: Arrays) -> str:
    """Return a message on float rows of another dtype than the parameters; empty for none."""
    own = {str(tensor.dtype).removeprefix("torch.") for tensor in module.parameters() if tensor.is_floating_point()}
    name = next((name for name, array in rows.items() if array.dtype.kind == "f" and array.dtype.name not in own), None)
    if name is None or not own:
        return ""
    dtypes = ", ".join(sorted(own))
    return f"the samples hold {name!r} as {rows[name].dtype}, and the parameters of the module are {dtypes}"


def parameters_of_forward(module: torch.nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a module's forward, by name; none where they are hidden."""
    try:
        return inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        # Compiled functions hide their parameters.
        return {}


@contextlib.contextmanager
def modes_kept(module: torch.nn.Module) -> Iterator[None]:
    """Set every part of the module back to its mode, train or eval, on leaving."""
    modes = [(part, part.training) for part in module.modules() if hasattr(part, "training")]
    try:
        yield
    finally:
        for part, is_training in modes:
            part.training = is_training


@contextlib.contextmanager
def precision_kept() -> Iterator[None]:
    """Restore PyTorch's settings on the precision of float32 in this process on leaving."""
    import torch

    before = torch.get_float32_matmul_precision()
    is_allowed = torch.backends.cudnn.allow_tf32
    parts = [(part, part.fp32_precision) for part in parts_with_fp32_precision()]
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = is_allowed
        for part, precision in parts:
            part.fp32_precision = precision


@functools.cache
def parts_with_fp32_precision() -> list[Any]:
    """Return PyTorch's parts with a switch for float32; newer versions have one for each kind of operator."""
    import torch

    backends = (torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn)
    parts = [getattr(backend, kind, None) for backend in backends for kind in ("matmul", "conv", "rnn")]
    return [part for part in parts if hasattr(part, "fp32_precision")]


def device_of(module: torch.nn.Module) -> Any:  # noqa: ANN401 - a torch.device, and torch is not imported here
    """Return the device that the module's first parameter or buffer is on; the CPU if it has none."""
    import torch

    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")
