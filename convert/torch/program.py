"""Make examples for PyTorch's exporters, and check that their programs work for every promised size."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paritygate.convert.conversion import ConversionJob
from paritygate.convert.error_origin import causes, one_line, users_line
from paritygate.convert.torch.export_errors import branch_on_values
from paritygate.convert.torch.inputs import full_shape, torch_dtype
from paritygate.convert.torch.sizes import example_sizes, summands
from paritygate.errors import ConversionError, ParitygateError, UsageError
from paritygate.models.torch.module import device_of
from paritygate.signature import Dim, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

_UNTOLD = 2


def declared_signature(job: ConversionJob) -> Signature:
    """Return the job's signature; raise UsageError if there is none."""
    if job.signature is None:
        msg = "the inputs and outputs of a PyTorch module are unknown"
        raise UsageError(msg, hint="declare model.inputs and model.outputs in the spec")
    return job.signature


def refuse_script_module(module: torch.nn.Module) -> None:
    """Raise ConversionError for TorchScript, which torch.export does not accept."""
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        msg = f"{type(module).__name__} is TorchScript, which torch.export does not accept"
        raise ConversionError(msg, hint="return the module itself, before torch.jit.script or torch.jit.trace")


def example(
    named: torch.nn.Module, signature: Signature, ties: Mapping[str, str]
) -> tuple[tuple[torch.Tensor, ...], tuple[Any, ...]]:
    """Return one tensor per input for torch.export, and its dynamic shapes.

    torch.export keeps the tensors in its program but only uses shapes and dtypes, so they hold no real rows. `ties` are
    sums that a dim equals in all samples.
    """
    import torch

    sizes = example_sizes(signature, ties)
    dims = {
        symbol: _torch_dim(symbol, index, signature.dims.get(symbol)) for index, symbol in enumerate(signature.symbols)
    }
    arrays, shapes = [], []
    for spec in signature.inputs:
        arrays.append(torch.zeros(full_shape(spec, sizes), dtype=torch_dtype(spec), device=device_of(named)))
        shape = spec.shape or ()
        shapes.append({axis: dims[dim] for axis, dim in enumerate(shape) if isinstance(dim, str) and dims[dim]})
    return tuple(arrays), tuple(shapes)


def _torch_dim(symbol: str, index: int, sizes: Dim | None) -> Any:  # noqa: ANN401 - torch.export.Dim has no public type
    import torch

    # Other names are written back into the file afterwards.
    name = symbol if symbol.isidentifier() and not keyword.iskeyword(symbol) else f"dim{index}"
    if sizes is None:
        return torch.export.Dim(name)
    if sizes.min == sizes.max:
        return None
    return torch.export.Dim(name, min=sizes.min, max=sizes.max)


def check_ranges(
    program: torch.export.ExportedProgram,
    inputs: Sequence[TensorSpec],
    dims: Mapping[str, Dim],
    *,
    is_given: bool = False,
    ties: Mapping[str, str] | None = None,
) -> None:
    """Check that the exported graph works for every size of the symbolic dims.

    Where the module branches on a shape, the exporter follows the example's branch. Only its range constraints show the
    sizes that take this branch. `inputs` are in the program's order. `is_given` means that the user exported it.
    Without a given minimum, torch.export notes 2 for a dim but accepts 1, so 2 does not exclude 1. `ties` are sums that
    a dim equals in all samples.

    Raises:
        ConversionError: It works for fewer sizes; the message names the dim.
    """
    tied = {name for whole, tie in (ties or {}).items() for name in (whole, *summands(tie)[0])}
    for spec, axis, symbol, size in _named_sizes(program, inputs):
        promised = dims.get(symbol)
        if isinstance(size, int) and not is_given and (promised is None or promised.min != promised.max):
            raise _fixed(spec, axis, symbol, size)
        allowed = program.range_constraints.get(size.node.expr) if hasattr(size, "node") else None
        # A sum and its parts are each noted as at least 2, so runs have to show their sizes.
        if allowed is not None and symbol not in tied:
            _check_range(symbol, allowed, promised, least_noted=_UNTOLD if is_given else 1)


def tied_dims(program: torch.export.ExportedProgram, inputs: Sequence[TensorSpec]) -> dict[str, str]:
    """Return expressions that dims of the program's inputs always equal, such as `past + 1` or `4*s56`, by dim."""
    places = [(symbol, size) for _, _, symbol, size in _named_sizes(program, inputs) if hasattr(size, "node")]
    named = {str(size): symbol for symbol, size in places if size.node.expr.is_symbol}
    return {
        symbol: re.sub(r"\w+", lambda match: named.get(match[0], match[0]), str(size))
        for symbol, size in places
        if not size.node.expr.is_symbol
    }


def _named_sizes(
    program: torch.export.ExportedProgram, inputs: Sequence[TensorSpec]
) -> Iterator[tuple[TensorSpec, int, str, Any]]:
    """Yield each promised symbolic dim of the inputs, and its size in the program: an int or a SymInt."""
    nodes = {node.name: node for node in program.graph.nodes}
    for spec, name in zip(inputs, program.graph_signature.user_inputs, strict=False):
        value = nodes[name].meta.get("val") if name in nodes else None
        for axis, (symbol, size) in enumerate(zip(spec.shape or (), getattr(value, "shape", ()), strict=False)):
            if isinstance(symbol, str):
                yield spec, axis, symbol, size


def _fixed(spec: TensorSpec, axis: int, symbol: str, size: int) -> ConversionError:
    msg = (
        "the converted model does not match its signature: "
        f"dim {axis} of input {spec.name!r} is fixed at {size}, expected {symbol}"
    )
    hint = (
        "torch.export fixed this size, because of the module, a loop over it, or an operator such as nn.LSTM. "
        f"Declare model.dims.{symbol} with this size alone, change the module, or remove this format from "
        "targets"
    )
    return ConversionError(msg, hint=hint)


def _check_range(symbol: str, allowed: Any, promised: Dim | None, *, least_noted: int) -> None:  # noqa: ANN401 - ValueRanges of torch's
    upper = int(allowed.upper) if str(allowed.upper).isdigit() else None
    is_wide_enough = allowed.lower <= max(promised.min if promised else 1, least_noted) and (
        upper is None or (promised is not None and upper >= promised.max)
    )
    if is_wide_enough:
        return
    there = f"from {allowed.lower} " + ("on" if upper is None else f"to {upper}")
    wanted = f"from {promised.min} to {promised.max}" if promised else "of any size"
    msg = f"the exported model accepts {symbol!r} only {there}, but the signature allows {wanted}"
    hint = (
        f"the module computes something else at other sizes, or fails. Declare model.dims.{symbol} within "
        "these sizes, or remove the branch on the shape from the module"
    )
    raise ConversionError(msg, hint=hint)


def untraceable(err: Exception, tracer: str) -> ParitygateError:
    """Return the user's error for one that the tracer, such as `torch.export`, raised."""
    chain = causes(err)
    for cause in chain:
        if isinstance(cause, ParitygateError):
            return cause
    if (branch := branch_on_values(chain)) is not None:
        msg, hint = branch
        return ConversionError(msg, hint=hint)
    place = next((line for line in map(users_line, chain) if line), "")
    msg = f"{tracer} cannot trace the module: {type(err).__name__}: {one_line(err)}{place}"
    return ConversionError(msg, hint="read the whole trace in the log, and the limits in PyTorch's documentation")
