"""Quantize an OpenVINO model in FP32 to INT8 with NNCF; the rest computes in FP32."""

from __future__ import annotations

from collections import Counter
from typing import Any

from paritygate.backends import version_of
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.int8.nncf_tool import quantize_with_nncf
from paritygate.convert.int8.settings import settings_of
from paritygate.errors import NotAvailableError
from paritygate.models.openvino.model import import_openvino, openvino_version, read_openvino, signature_of_openvino
from paritygate.models.openvino.settings import write_settings

_MAIN = "model.xml"
_PRODUCTS = frozenset(
    {"Convolution", "ConvolutionBackpropData", "GroupConvolution", "GroupConvolutionBackpropData", "MatMul"}
)
_ATTENTION = "ScaledDotProductAttention"
# Operators between weights stored as integers and their product.
_ON_THE_WAY = frozenset({"Convert", "Multiply", "Reshape", "Subtract", "Transpose"})
_INTEGERS = frozenset({"i8", "u8"})


def convert(job: ConversionJob) -> Conversion:
    """Write the model as `model.xml` and `model.bin`, weights in int8, and the settings to compile it with.

    The job's calibration provides the rows; its tool, method and activations are about ONNX.

    Raises:
        NotAvailableError: There is nothing to quantize.
    """
    _, calibration = settings_of(job)
    openvino = import_openvino()
    model = quantize_with_nncf(
        read_openvino(job.source.path), calibration, is_transformer=_has_attention(read_openvino(job.source.path))
    )
    nodes = _quantized_products(model)
    if not nodes:
        msg = "NNCF quantized no product with constant weights, so the model would compute in fp32"
        raise NotAvailableError(msg, hint="remove the int8 target")
    path = job.folder / _MAIN
    openvino.save_model(model, str(path), compress_to_fp16=False)
    write_settings(path, job.precision)
    listed = ", ".join(f"{count} {kind}" for kind, count in nodes.items())
    return Conversion(
        main=_MAIN,
        signature=signature_of_openvino(model),
        notes=(f"quantized to int8 by nncf {version_of('nncf')}: {listed}",),
        facts={
            "openvino": openvino_version(),
            "nncf": version_of("nncf"),
            "quantized": {"nodes": nodes},
            # NNCF ignores ONNX Runtime's method for ranges.
            "calibration": {**calibration.facts, "tool": "nncf"},
        },
    )


def _has_attention(model: Any) -> bool:  # noqa: ANN401 - an openvino.Model
    nodes = model.get_ordered_ops()
    kinds = {node.get_type_name() for node in nodes}
    is_product_of_two = (
        node.get_type_name() == "MatMul"
        and "Constant" not in {value.get_node().get_type_name() for value in node.input_values()}
        for node in nodes
    )
    return _ATTENTION in kinds or ("Softmax" in kinds and any(is_product_of_two))


def _quantized_products(model: Any) -> dict[str, int]:  # noqa: ANN401 - an openvino.Model
    """Return the number of products and convolutions whose weights are integers, by operator."""
    counts = Counter(
        node.get_type_name()
        for node in model.get_ordered_ops()
        if node.get_type_name() in _PRODUCTS and any(_is_integer(value) for value in node.input_values())
    )
    return dict(sorted(counts.items()))


def _is_integer(value: Any) -> bool:  # noqa: ANN401 - an openvino.Output
    """Return whether the value is made of a constant of integers, scaled."""
    node = value.get_node()
    if node.get_type_name() == "Constant":
        return str(value.get_element_type().get_type_name()) in _INTEGERS
    inputs = node.input_values()
    return node.get_type_name() in _ON_THE_WAY and bool(inputs) and _is_integer(inputs[0])
