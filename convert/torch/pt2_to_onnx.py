"""Convert a program of torch.export to ONNX with torch.onnx's exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx.rewrite import EXTERNAL_DATA_BYTES
from paritygate.convert.torch.export_errors import export_by_dynamo
from paritygate.convert.torch.onnx_file import finished, neutral_names
from paritygate.convert.torch.program import check_ranges
from paritygate.convert.torch.shape_check import check_all_sizes, module_call, onnx_call
from paritygate.models.torch.names import named_file
from paritygate.models.torch.pt2_file import Interface, interface_of, known_names, load_pt2, notes_of, taking_its_names

if TYPE_CHECKING:
    import torch


_MAIN = "model.onnx"
_OPSET = 18


def convert(job: ConversionJob) -> Conversion:
    """Write the program as `model.onnx`, its weights beside it only where one file cannot hold them.

    The exporter names inputs and outputs only by order. The calls that run the program show which tensor has which
    name, and the written file is compared with it.
    """
    for backend in ("torch", "onnxscript", "onnxruntime"):
        require_backend(backend)
    source = job.source.path
    program = load_pt2(source)
    file_names = known_names(source, program, job.signature, job.rename)
    interface = interface_of(program, file_names)
    signature = interface.signature
    inputs = [signature.inputs[index] for index in interface.inputs]
    check_ranges(program, inputs, signature.dims, is_given=True, ties=job.ties)
    notes = tuple(notes_of(program))
    # Before the exporter changes its argument.
    module = program.module()
    named, _ = named_file(taking_its_names(program, module, module), file_names)
    path = job.folder / _MAIN
    exported = _export(program, interface, job.opset or _OPSET)
    exported.save(str(path), external_data=_weight_bytes(program) >= EXTERNAL_DATA_BYTES)
    conversion = finished(path, signature, job.opset, notes, job.ties)
    check_all_sizes(onnx_call(path, signature), signature, expected=module_call(named), rows=job.rows, ties=job.ties)
    return conversion


def _export(program: torch.export.ExportedProgram, interface: Interface, opset: int) -> Any:  # noqa: ANN401 - an ONNXProgram, which is not public
    count = len(program.graph_signature.user_outputs)
    names = [f"left_out_{index}" for index in range(count)]
    inputs, outputs = neutral_names(interface.signature)
    for name, index in zip(outputs, interface.outputs, strict=True):
        names[index] = name
    in_order = [inputs[index] for index in interface.inputs]
    return export_by_dynamo(program, input_names=in_order, output_names=names, opset_version=opset)


def _weight_bytes(program: torch.export.ExportedProgram) -> int:
    import torch

    tensors = (*program.state_dict.values(), *program.constants.values())
    return sum(item.numel() * item.element_size() for item in tensors if isinstance(item, torch.Tensor))
