"""PyTorch to ONNX, by torch.onnx's exporter on top of torch.export."""

from __future__ import annotations

import keyword
from functools import partial
from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend, version_of
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx_rewrite import EXTERNAL_DATA_BYTES, apply_signature, lower_ir_version
from paritygate.convert.torch_export_errors import explained
from paritygate.errors import ConversionError, UsageError
from paritygate.onnx_file import opset_of, read_onnx, signature_of_onnx
from paritygate.onnx_graph import graphs_in
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.torch_module import as_named_module, device_of, put_in_eval_mode, unused_outputs

if TYPE_CHECKING:
    import onnx
    import torch

__all__ = ["convert"]

_MAIN = "model.onnx"
# What the exporter writes itself; every other opset goes through a conversion that may fail in silence.
_OPSET = 18
# What a symbolic dim is traced with where its range is not given. Not 0 or 1, which torch.export takes for fixed.
_EXAMPLE_SIZE = 8
_SMALLEST_EXAMPLE = 2
_STACK_TRACE = "pkg.torch.onnx.stack_trace"


def convert(job: ConversionJob) -> Conversion:
    """Write the module as `model.onnx`, its weights beside it only where one file cannot hold them.

    Args:
        job: Its `model` is a `torch.nn.Module`; it is put into eval mode, and a note says so if it was not.

    Raises:
        UsageError: The signature is missing, or does not fit the module.
        ConversionError: The module cannot be exported with this signature; UnsupportedOperatorsError
            where it is for its operators.
        MissingBackendError: PyTorch or onnxscript is not installed.
    """
    require_backend("torch")
    require_backend("onnxscript")
    if job.signature is None:
        msg = "a PyTorch module does not say what its inputs and outputs are"
        raise UsageError(msg, hint="declare model.inputs and model.outputs in the spec")
    _refuse_script_module(job.model)
    eval_note = put_in_eval_mode(job.model)
    named = as_named_module(job.model, job.signature, job.rename)
    program = _export(named, job.signature, job.opset or _OPSET)
    _check_ranges(program, job.signature)
    path = job.folder / _MAIN
    program.save(str(path), external_data=_weight_bytes(job.model) >= EXTERNAL_DATA_BYTES)
    model = read_onnx(path)
    ir_note = _finish(model, job)
    path.write_bytes(model.SerializeToString())
    unused = unused_outputs(named)
    unused_note = f"outputs not in the signature were left out: {', '.join(unused)}" if unused else None
    return Conversion(
        main=_MAIN,
        signature=signature_of_onnx(model),
        notes=tuple(note for note in (eval_note, unused_note, ir_note) if note),
        facts={
            "opset": opset_of(model),
            "ir_version": model.ir_version,
            "torch": version_of("torch"),
            "onnxscript": version_of("onnxscript"),
        },
    )


def _refuse_script_module(module: torch.nn.Module) -> None:
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        msg = f"{type(module).__name__} is TorchScript, which torch.export does not take"
        raise ConversionError(msg, hint="return the module itself, before torch.jit.script or torch.jit.trace")


def _weight_bytes(module: torch.nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in (*module.parameters(), *module.buffers()))


def _finish(model: onnx.ModelProto, job: ConversionJob) -> str | None:
    opset = opset_of(model)
    if job.opset is not None and opset != job.opset:
        msg = f"opset {job.opset} was asked for, and the exporter could not convert the model from opset {opset} to it"
        raise ConversionError(msg, hint=f"ask for opset {opset}, or leave it out")
    note = lower_ir_version(model)
    apply_signature(model, job.signature, {})
    # The traces hold the paths of this machine: the same model would differ from one checkout to another.
    for graph in graphs_in(model.graph):
        for node in graph.node:
            kept = [entry for entry in node.metadata_props if entry.key != _STACK_TRACE]
            del node.metadata_props[:]
            node.metadata_props.extend(kept)
    return note


def _export(named: torch.nn.Module, signature: Signature, opset: int) -> Any:  # noqa: ANN401 - an ONNXProgram, which is not public
    import torch

    arrays, shapes = _example(named, signature)
    export = partial(
        torch.onnx.export,
        named,
        arrays,
        dynamo=True,
        input_names=[spec.name for spec in signature.inputs],
        output_names=[spec.name for spec in signature.outputs],
        dynamic_shapes=(shapes,),
        opset_version=opset,
        verbose=False,
    )
    try:
        return export()
    except Exception as err:
        raise explained(err, lambda folder: export(report=True, artifacts_dir=folder)) from err


def _example(named: torch.nn.Module, signature: Signature) -> tuple[tuple[torch.Tensor, ...], tuple[Any, ...]]:
    """Return one tensor per input to trace with, and what torch.export shall take for dynamic."""
    import torch

    sizes = _example_sizes(signature)
    dims = {
        symbol: _torch_dim(symbol, index, signature.dims.get(symbol)) for index, symbol in enumerate(signature.symbols)
    }
    arrays, shapes = [], []
    for spec in signature.inputs:
        if spec.shape is None or None in spec.shape:
            msg = f"input {spec} has no full shape"
            raise UsageError(msg, hint="give every dim a size or a name, for example [batch, 3, 224, 224]")
        size = [sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape if dim is not None]
        # Only shapes and dtypes are traced; zero is a valid id in every vocabulary.
        arrays.append(torch.zeros(size, dtype=_torch_dtype(spec), device=device_of(named)))
        shapes.append({axis: dims[dim] for axis, dim in enumerate(spec.shape) if isinstance(dim, str) and dims[dim]})
    return tuple(arrays), tuple(shapes)


def _torch_dtype(spec: TensorSpec) -> torch.dtype:
    import torch

    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype):
        msg = f"input {spec}: PyTorch has no dtype {spec.dtype!r}"
        raise UsageError(msg, hint="feed the model numbers, for example token ids as int64")
    return dtype


def _torch_dim(symbol: str, index: int, sizes: Dim | None) -> Any:  # noqa: ANN401 - torch.export.Dim has no public type
    import torch

    # A name that is none in Python is written back into the file afterwards.
    name = symbol if symbol.isidentifier() and not keyword.iskeyword(symbol) else f"dim{index}"
    if sizes is None:
        return torch.export.Dim(name)
    if sizes.min == sizes.max:
        return None
    return torch.export.Dim(name, min=sizes.min, max=sizes.max)


def _example_sizes(signature: Signature) -> dict[str, int]:
    sizes = {}
    for symbol in signature.symbols:
        dim = signature.dims.get(symbol)
        sizes[symbol] = _EXAMPLE_SIZE if dim is None else min(max(dim.opt, _SMALLEST_EXAMPLE), dim.max)
    return sizes


def _check_ranges(program: Any, signature: Signature) -> None:  # noqa: ANN401 - as _export returns
    """Check that the exported graph stands for every size of the symbolic dims.

    Where the module branches on a shape, the exporter follows the branch of the example, and only
    its range constraints tell for which sizes that is the right one.
    """
    exported = program.exported_program
    nodes = {node.name: node for node in exported.graph.nodes}
    for spec, name in zip(signature.inputs, exported.graph_signature.user_inputs, strict=False):
        value = nodes[name].meta.get("val") if name in nodes else None
        for symbol, size in zip(spec.shape or (), getattr(value, "shape", ()), strict=False):
            allowed = exported.range_constraints.get(size.node.expr) if hasattr(size, "node") else None
            if isinstance(symbol, str) and allowed is not None:
                _check_range(symbol, allowed, signature.dims.get(symbol))


def _check_range(symbol: str, allowed: Any, promised: Dim | None) -> None:  # noqa: ANN401 - ValueRanges of torch's
    upper = int(allowed.upper) if str(allowed.upper).isdigit() else None
    is_wide_enough = allowed.lower <= (promised.min if promised else 1) and (
        upper is None or (promised is not None and upper >= promised.max)
    )
    if is_wide_enough:
        return
    there = f"from {allowed.lower} " + ("on" if upper is None else f"to {upper}")
    wanted = f"from {promised.min} to {promised.max}" if promised else "of any size"
    msg = f"the exported model stands for {symbol!r} {there} only, the signature promises it {wanted}"
    hint = (
        f"for other sizes the module computes something else or fails: declare model.dims.{symbol} within these sizes, "
        "or take the branch on the shape out of the module"
    )
    raise ConversionError(msg, hint=hint)
