"""A PyTorch file as a module whose inputs and outputs have the names served."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.errors import UsageError
from paritygate.models.named_call import check_rename, source_names
from paritygate.models.torch.archive import SaidNames
from paritygate.models.torch.module import as_named_module
from paritygate.signature import Signature, rename_signature

if TYPE_CHECKING:
    import torch

_DECLARE = "declare model.inputs and model.outputs in a spec, and use: convert-and-validate run SPEC"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownNames:
    """What is known of the names of a PyTorch file.

    Attributes:
        file: Its path, for messages.
        said: What the file says of itself, if we wrote it.
        kept: Names that the file's format keeps; None where it does not keep all of them.
        declared: What the spec says.
        rename: The name served, by the name in `said`, or else by the model's own.
    """

    file: Path
    said: SaidNames | None = None
    kept: Signature | None = None
    declared: Signature | None = None
    rename: Mapping[str, str]

    @property
    def own(self) -> Signature:
        """The names before renaming, where the spec declares none or the file says them.

        Raises:
            UsageError: Nothing says them.
        """
        own = self.said.signature if self.said is not None else self.kept
        if own is None:
            msg = f"{self.file} does not say the names of its inputs and outputs, and none are declared"
            raise UsageError(msg, hint=_DECLARE)
        return own


def module_taking(
    names: Sequence[str] | None, call: Callable[..., Any], part: torch.nn.Module | None
) -> torch.nn.Module:
    """Return a module around `call` whose forward says that it takes `names`, by keyword or in this order.

    Args:
        names: The names of its parameters; None where it has none, and takes what it is given in order.
        call: What is called with all inputs in their order.
        part: The module that `call` runs, so that its parameters and its mode are those of the result.
    """
    import torch

    class Taking(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = part
            self.training = getattr(part, "training", False)

        def forward(self, *arrays: Any, **named: Any) -> Any:  # noqa: ANN401 - what the model takes and returns
            return call(*arrays, *(named[name] for name in names or () if name in named))

    # What messages call it.
    Taking.__name__ = str(getattr(part, "original_name", Taking.__name__))
    if names is not None and all(name.isidentifier() for name in names):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        # What `takes_keywords` reads: a file of PyTorch has no function in Python that would say it.
        Taking.forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # functions may have it
            [inspect.Parameter(name, kind) for name in ("self", *names)]
        )
    return Taking()


def named_file(module: torch.nn.Module, known: KnownNames) -> tuple[torch.nn.Module, Signature]:
    """Return the file's module as `as_named_module` does, and the signature that it is served with.

    Raises:
        UsageError: Nothing says the names, or what was declared is not what the file says.
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
    """Return the module with its outputs by name: of a file that we wrote, the order is what holds.

    The names of its parameters are the tracer's, and an output that is named `output_1` may well be its first.
    """
    names = [spec.name for spec in own.outputs]
    return module_taking(None, lambda *arrays: dict(zip(names, module(*arrays), strict=True)), module)


def said_by_copy(known: KnownNames) -> SaidNames:
    """Return what a copy of the file is to say of itself, so that it needs no declaration any more.

    Raises:
        UsageError: Nothing says the names, or what was declared is not what the file says.
    """
    said, declared, rename = known.said, known.declared, known.rename
    if said is None and declared is not None:
        check_rename(declared, rename)
        return SaidNames(signature=declared, is_in_order=False, rename=rename)
    own = known.own
    if declared is not None:
        _check_declared(own, declared, rename)
    served = rename_signature(own, rename)
    if declared is not None:
        served = replace(served, dims=declared.dims)
    if said is not None and said.is_in_order:
        return SaidNames(signature=served)
    before = {} if said is None else {name: source for source, name in said.rename.items()}
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
                msg = f"{side} {spec.name!r} is declared as {spec.dtype}, and the model says {dtypes[name]}"
                raise UsageError(msg, hint="declare the dtypes that the model has")
    unfed = {spec.name for spec in own.inputs} - set(source_names(declared.inputs, rename))
    if unfed:
        msg = f"the model needs the input {min(unfed)!r}, which the signature does not have"
        raise UsageError(msg, hint="declare all the model's inputs")
