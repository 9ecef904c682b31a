"""PyTorch to ONNX, by torch.onnx's exporter on top of torch.export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend
from paritygate.convert.contract import as_promised
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx.rewrite import EXTERNAL_DATA_BYTES
from paritygate.convert.torch.answers import check_answers, module_call, onnx_call
from paritygate.convert.torch.branches import branching_sizes
from paritygate.convert.torch.export_errors import explained
from paritygate.convert.torch.inputs import Rows
from paritygate.convert.torch.onnx_file import finished, neutral_names
from paritygate.convert.torch.program import (
    check_ranges,
    declared_signature,
    example,
    example_sizes,
    refuse_script_module,
    tied_dims,
)
from paritygate.models.torch.module import as_named_module, put_in_eval_mode, unused_outputs
from paritygate.signature import Signature

if TYPE_CHECKING:
    import torch

__all__ = ["convert"]

_MAIN = "model.onnx"
# What the exporter writes itself; every other opset goes through a conversion that may fail in silence.
_OPSET = 18
# No runtime here computes in it, either.
_NOT_IN_NUMPY = "bfloat16"


def convert(job: ConversionJob) -> Conversion:
    """Write the module as `model.onnx`, its weights beside it only where one file cannot hold them.

    Args:
        job: Its `model` is a `torch.nn.Module`; it is put into eval mode, and a note says so if it was not.

    Raises:
        UsageError: The signature is missing, or does not fit the module.
        ConversionError: The module cannot be exported with this signature, or answers otherwise at some of its
            sizes afterwards; UnsupportedOperatorsError where it is for its operators.
        MissingBackendError: PyTorch, onnxscript or ONNX Runtime is not installed.
    """
    for backend in ("torch", "onnxscript", "onnxruntime"):
        require_backend(backend)
    signature = declared_signature(job)
    refuse_script_module(job.model)
    eval_note = put_in_eval_mode(job.model)
    named = as_named_module(job.model, signature, job.rename)
    program = _export(named, signature, job.opset or _OPSET)
    check_ranges(program.exported_program, signature.inputs, signature.dims)
    path = job.folder / _MAIN
    program.save(str(path), external_data=_weight_bytes(job.model) >= EXTERNAL_DATA_BYTES)
    unused = unused_outputs(named)
    unused_note = f"outputs not in the signature were left out: {', '.join(unused)}" if unused else None
    sizes = branching_sizes(program.exported_program, signature.inputs, signature.dims, usual=example_sizes(signature))
    ties = tied_dims(program.exported_program, signature.inputs)
    # It holds a copy of the weights.
    del program
    conversion = finished(path, signature, job.opset, (eval_note, unused_note), ties)
    # First what the file says of its dims, because that names what is wrong; then what it answers.
    as_promised(job, conversion, conversion.signature, {}, keeps_names=True)
    note = _check_sizes(path, named, signature, sizes, job.rows)
    return replace(conversion, notes=(*conversion.notes, *([note] if note else [])))


def _check_sizes(
    path: Path, named: torch.nn.Module, signature: Signature, sizes: Mapping[str, Sequence[int]], rows: Rows
) -> str | None:
    """Check that no branch on a size was baked in: the exporter takes 1 for a size like any other, and traces one."""
    if not signature.symbols or _NOT_IN_NUMPY in {spec.dtype for spec in (*signature.inputs, *signature.outputs)}:
        return None
    return check_answers(
        onnx_call(path, signature),
        signature,
        expected=module_call(named),
        is_other_runtime=True,
        is_module=True,
        other_sizes=sizes,
        rows=rows,
    )


def _weight_bytes(module: torch.nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in (*module.parameters(), *module.buffers()))


def _export(named: torch.nn.Module, signature: Signature, opset: int) -> Any:  # noqa: ANN401 - an ONNXProgram, which is not public
    import torch

    arrays, shapes = example(named, signature)
    inputs, outputs = neutral_names(signature)
    export = partial(
        torch.onnx.export,
        named,
        arrays,
        dynamo=True,
        input_names=inputs,
        output_names=outputs,
        dynamic_shapes=(shapes,),
        opset_version=opset,
        verbose=False,
    )
    try:
        return export()
    except Exception as err:
        raise explained(err, lambda folder: export(report=True, artifacts_dir=folder)) from err
