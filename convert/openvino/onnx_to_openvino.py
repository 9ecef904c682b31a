"""Convert ONNX in FP32 to an OpenVINO model that computes in FP32 or BF16.

It has the inputs and outputs of the ONNX model, each with one name.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx.operators import OperatorRow, node_name, unsupported_operators
from paritygate.errors import ConversionError, NotAvailableError
from paritygate.models.onnx.file import opset_of, read_onnx, signature_of_onnx
from paritygate.models.onnx.graph import all_nodes
from paritygate.models.openvino.model import (
    element_type,
    import_openvino,
    openvino_reason,
    openvino_version,
    partial_shape,
    signature_of_openvino,
)
from paritygate.models.openvino.settings import write_settings
from paritygate.signature import TensorSpec

if TYPE_CHECKING:
    import onnx

_MAIN = "model.xml"
_HINT = "replace the operator by others of ONNX, or serve the model in ONNX"
# OpenVINO names unknown or failed operators, with reasons, only in these messages.
_NO_RULE = re.compile(r"No conversion rule found for operations: (.+)")
_FAILED_RULE = re.compile(
    r"^-- (?P<operator>\S+) with a message:\n(?P<message>.*?(?:<Node\(.*?\): (?P<node>.+?)>.*?)?)(?=^-- |^Summary:)",
    re.MULTILINE | re.DOTALL,
)


def convert(job: ConversionJob) -> Conversion:
    """Write the model as `model.xml` and `model.bin`, its weights in FP32, and the settings to compile it with.

    Open dims stay open without bounds, because an OpenVINO model with bounds refuses sizes that the original takes. The
    job's precision, `fp32` or `bf16`, becomes the precision hint.
    """
    openvino = import_openvino()
    source = job.source.path
    onnx_model = read_onnx(source)
    model = _converted(source, onnx_model)
    _refuse_text(onnx_model)
    _restore_ports(model, onnx_model)
    path = job.folder / _MAIN
    openvino.save_model(model, str(path), compress_to_fp16=False)
    write_settings(path, job.precision)
    return Conversion(
        main=_MAIN,
        signature=signature_of_openvino(model),
        facts={"openvino": openvino_version(), "opset": opset_of(onnx_model)},
    )


def _converted(source: Path, onnx_model: onnx.ModelProto) -> Any:  # noqa: ANN401 - an openvino.Model
    from openvino.frontend import FrontEndManager

    try:
        reader = FrontEndManager().load_by_framework("onnx")
        return reader.convert(reader.load(str(source)))
    except Exception as err:
        name = f"OpenVINO {openvino_version()}"
        rows = list(_rows(str(err), onnx_model, f"{name} does not implement it"))
        if rows:
            raise unsupported_operators(rows, target=name) from err
        failed = _FAILED_RULE.search(str(err))
        what = f"the operator {_operator(failed['operator'])}" if failed else "the model"
        reason = openvino_reason(failed["message"] if failed else err)
        node = f" (node {failed['node']})" if failed and failed["node"] else ""
        msg = f"{name} does not convert {what}{node}: {reason}"
        raise ConversionError(msg, hint=_HINT if failed else "serve the model in ONNX") from err


def _refuse_text(model: onnx.ModelProto) -> None:
    signature = signature_of_onnx(model)
    texts = [spec.name for spec in (*signature.inputs, *signature.outputs) if spec.dtype == "string"]
    if texts:
        msg = f"OpenVINO {openvino_version()} accepts no text here, but {texts[0]!r} of the model is text"
        raise NotAvailableError(msg, hint="serve the model in ONNX, or remove the text from the model")


def _operator(named: str) -> str:
    # Such as Det-17, com.foo.Twist or util::SequenceInsert: with the opset, the domain, or a mark of OpenVINO.
    return re.sub(r"-\d+$", "", named.strip().removeprefix("util::"))


def _rows(text: str, model: onnx.ModelProto, reason: str) -> Iterator[OperatorRow]:
    nodes = list(all_nodes(model))
    match = _NO_RULE.search(text)
    for operator in map(_operator, match[1].split(",")) if match else ():
        those = [node for node in nodes if operator in {node.op_type, f"{node.domain}.{node.op_type}"}]
        for node in those:
            yield (f"{node.domain}::{node.op_type}" if node.domain else node.op_type, node_name(node), reason, _HINT)
        if not those:
            yield (operator, "(unnamed)", reason, _HINT)


def _restore_ports(model: Any, onnx_model: onnx.ModelProto) -> None:  # noqa: ANN401 - an openvino.Model
    """Give the OpenVINO model, in place, the inputs and outputs of its ONNX model, under their names.

    Raises:
        ConversionError: OpenVINO made another number of outputs.
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
    """Put an operator between an output and the input that it equals, because they would share all names."""
    from openvino import opset13

    for spec, result in zip(outputs, model.get_results(), strict=True):
        source = result.input_value(0)
        # An output with the name of its input is the same tensor in ONNX too.
        if source.get_node().get_type_name() == "Parameter" and source.get_node().get_friendly_name() != spec.name:
            result.output(0).get_tensor().set_names(set())
            # Not an Identity, which older OpenVINO versions lack; a conversion to the same type does
            # nothing either.
            same = opset13.convert(source, source.get_element_type())
            result.input(0).replace_source_output(same.output(0))
    model.validate_nodes_and_infer_types()


def _input_of(tensor: str, made_by: Mapping[str, onnx.NodeProto], inputs: Container[str]) -> str | None:
    """Return the input that a tensor of the ONNX model equals, through operators that do nothing."""
    while tensor not in inputs:
        node = made_by.get(tensor)
        if node is None or not node.input:
            return None
        tensor = node.input[0]
    return tensor


def _parameter(spec: TensorSpec) -> Any:  # noqa: ANN401 - an openvino.op.Parameter
    import openvino

    parameter = openvino.op.Parameter(element_type(spec.dtype), partial_shape(spec.shape))
    parameter.set_friendly_name(spec.name)
    parameter.output(0).get_tensor().set_names({spec.name})
    return parameter
