"""Give the inputs and outputs of a PyTorch file the names served."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from paritygate.errors import UsageError
from paritygate.models.named_call import check_rename, source_names
from paritygate.models.torch.archive import SaidNames
from paritygate.models.torch.module import as_named_module
from paritygate.signature import Signature, rename_signature

if TYPE_CHECKING:
    import torch

_DECLARE = "declare model.inputs and model.outputs in a spec, and use: convert-and-validate run SPEC"


class KnownNames(Struct, frozen=True, kw_only=True):
    """The sources of names for a PyTorch file."""

    file: Path  # for messages
    said: SaidNames | None = None  # those that paritygate wrote into it
    kept: Signature | None = None  # those of its format, if it has all
    declared: Signature | None = None  # those of the spec
    rename: Mapping[str, str]  # the name served, by the name in `said`, or else by the model's own

    @property
    def own(self) -> Signature:
        """The names before renaming, of the file or its format; UsageError if it has none."""
        own = self.said.signature if self.said is not None else self.kept
        if own is None:
            msg = f"{self.file} has no names of inputs and outputs, and the spec declares none"
            raise UsageError(msg, hint=_DECLARE)
        return own


def module_taking(
    names: Sequence[str] | None, call: Callable[..., Any], part: torch.nn.Module | None
) -> torch.nn.Module:
    """Return a module around `call`, which takes all inputs in order, with a forward of parameters `names`.

    `names` of None mean any inputs in order. `part` is the module that `call` runs, which gives the result its
    parameters and mode.
    """
    import torch

    class Taking(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = part
            self.training = getattr(part, "training", False)

        def forward(self, *arrays: Any, **named: Any) -> Any:  # noqa: ANN401 - what the model takes and returns
            return call(*arrays, *(named[name] for name in names or () if name in named))

    # The name in messages.
    Taking.__name__ = str(getattr(part, "original_name", Taking.__name__))
    if names is not None and all(name.isidentifier() for name in names):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        # `takes_keywords` reads it, because a file of PyTorch has no Python function with parameters.
        Taking.forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # functions may have it
            [inspect.Parameter(name, kind) for name in ("self", *names)]
        )
    return Taking()


def named_file(module: torch.nn.Module, known: KnownNames) -> tuple[torch.nn.Module, Signature]:
    """Return the file's module as `as_named_module` does, and the signature that it is served with.

    Raises:
        UsageError: There are no names, or the declared ones differ from those of the file.
    """
    import torch

    if known.said is None and known.declared is not None:
        return as_named_module(module, known.declared, known.rename), known.declared
    own = known.own
    if known.said is not None and known.said.is_in_order:
        module = _in_order(module, own)
    inner = as_named_module(module, own, known.said.rename if known.said is not None else {})
    if known.declared is None:
        return inner, rename_signature(own, known.rename)
    _check_declared(own, known.declared, known.rename)

    class ByName(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner
            self.training = inner.training

        def forward(self, **named: torch.Tensor) -> dict[str, torch.Tensor]:
            outputs = self.inner(*(named[spec.name] for spec in own.inputs))
            return dict(zip((spec.name for spec in own.outputs), outputs, strict=True))

    return as_named_module(ByName(), known.declared, known.rename), known.declared


def _in_order(module: torch.nn.Module, own: Signature) -> torch.nn.Module:
    """Return the module with its outputs by name, which their order decides in a file that paritygate wrote.

    The names of its parameters are the tracer's, and an output called `output_1` may be its first.
    """
    names = [spec.name for spec in own.outputs]
    return module_taking(None, lambda *arrays: dict(zip(names, module(*arrays), strict=True)), module)


def said_by_copy(known: KnownNames) -> SaidNames:
    """Return the names to write into a copy of the file, so that it needs no declaration.

    Raises:
        UsageError: There are no names, or the declared ones differ from those of the file.
    """
    in_file, declared, rename = known.said, known.declared, known.rename
    if in_file is None and declared is not None:
        check_rename(declared, rename)
        return SaidNames(signature=declared, is_in_order=False, rename=rename)
    own = known.own
    if declared is not None:
        _check_declared(own, declared, rename)
    served = rename_signature(own, rename)
    if declared is not None:
        served = replace(served, dims=declared.dims)
    if in_file is not None and in_file.is_in_order:
        return SaidNames(signature=served)
    before = {} if in_file is None else {name: source for source, name in in_file.rename.items()}
    names = [spec.name for spec in (*own.inputs, *own.outputs)]
    chained = {before.get(name, name): rename.get(name, name) for name in names}
    changed = {source: name for source, name in chained.items() if source != name}
    return SaidNames(signature=served, is_in_order=False, rename=changed)


def _check_declared(own: Signature, declared: Signature, rename: Mapping[str, str]) -> None:
    check_rename(declared, rename)
    for side, there, wanted in (("input", own.inputs, declared.inputs), ("output", own.outputs, declared.outputs)):
        dtypes = {spec.name: spec.dtype for spec in there}
        for spec, name in zip(wanted, source_names(wanted, rename), strict=True):
            if name not in dtypes:
                msg = f"the model has no {side} {name!r} (it has: {', '.join(dtypes)})"
                raise UsageError(msg, hint="correct model.inputs and model.outputs, or rename: {its name: name served}")
            if dtypes[name] != spec.dtype:
                msg = f"{side} {spec.name!r} is declared as {spec.dtype}, but the model has {dtypes[name]}"
                raise UsageError(msg, hint="declare the dtypes that the model has")
    unfed = {spec.name for spec in own.inputs} - set(source_names(declared.inputs, rename))
    if unfed:
        msg = f"the model needs the input {min(unfed)!r}, which the signature does not have"
        raise UsageError(msg, hint="declare all the model's inputs")
