"""Inputs and outputs of a model that OpenVINO read: those of the ONNX model, each with its one name.

OpenVINO names tensors, not inputs and outputs. Where an operator that does nothing (Dropout, or a Sum of one tensor)
stands between the two, the input takes on the name of the output, and an input that no operator needs is dropped.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paritygate.errors import ConversionError
from paritygate.models.onnx.file import signature_of_onnx
from paritygate.models.openvino.model import element_type, openvino_version
from paritygate.signature import TensorSpec

if TYPE_CHECKING:
    import onnx

__all__ = ["restore_ports"]


def restore_ports(model: Any, onnx_model: onnx.ModelProto) -> None:  # noqa: ANN401 - an openvino.Model
    """Give the model the inputs and outputs of the ONNX model, under their names.

    Args:
        model: The `openvino.Model`, read from the ONNX model; it is changed.
        onnx_model: The ONNX model; its weights are not needed.

    Raises:
        ConversionError: OpenVINO did not make an output of each of the ONNX model's.
    """
    signature = signature_of_onnx(onnx_model)
    if len(model.outputs) != len(signature.outputs):
        names = ", ".join(repr(spec.name) for spec in signature.outputs)
        msg = f"OpenVINO {openvino_version()} made {len(model.outputs)} outputs of the model's {names}"
        raise ConversionError(msg, hint="install a newer openvino, or leave out outputs that are the same tensor")
    inputs = {spec.name: spec for spec in signature.inputs}
    made_by = {name: node for node in onnx_model.graph.node for name in node.output}
    for parameter in model.get_parameters():
        name = _input_of(parameter.get_friendly_name(), made_by, inputs)
        if name is not None:
            parameter.set_friendly_name(name)
            del inputs[name]
    _part_outputs_from_inputs(model, signature.outputs)
    for parameter in model.get_parameters():
        parameter.output(0).get_tensor().set_names({parameter.get_friendly_name()})
    if inputs:
        model.add_parameters([_parameter(spec) for spec in inputs.values()])
    for spec, port in zip(signature.outputs, model.outputs, strict=True):
        port.get_tensor().set_names({spec.name})


def _part_outputs_from_inputs(model: Any, outputs: Sequence[TensorSpec]) -> None:  # noqa: ANN401 - an openvino.Model
    """Put an operator between each output and the input that it is, which else have all their names in common."""
    from openvino import opset13

    for spec, result in zip(outputs, model.get_results(), strict=True):
        source = result.input_value(0)
        # An output that is called like the input it is, is the same tensor in ONNX too.
        if source.get_node().get_type_name() == "Parameter" and source.get_node().get_friendly_name() != spec.name:
            result.output(0).get_tensor().set_names(set())
            # Not an Identity, which OpenVINO has not always run; from a type to itself this is none the less.
            same = opset13.convert(source, source.get_element_type())
            result.input(0).replace_source_output(same.output(0))
    model.validate_nodes_and_infer_types()


def _input_of(tensor: str, made_by: Mapping[str, onnx.NodeProto], inputs: Container[str]) -> str | None:
    """Return the input that a tensor of the ONNX model is, however many operators that do nothing lie between."""
    while tensor not in inputs:
        node = made_by.get(tensor)
        if node is None or not node.input:
            return None
        tensor = node.input[0]
    return tensor


def _parameter(spec: TensorSpec) -> Any:  # noqa: ANN401 - an openvino.op.Parameter
    import openvino

    shape = openvino.PartialShape.dynamic()
    if spec.shape is not None:
        shape = openvino.PartialShape([dim if isinstance(dim, int) else -1 for dim in spec.shape])
    parameter = openvino.op.Parameter(element_type(spec.dtype), shape)
    parameter.set_friendly_name(spec.name)
    parameter.output(0).get_tensor().set_names({spec.name})
    return parameter
