"""Count the dtypes of a network's layers, and check that the requested precision is among them.

A library without precision flags builds the model as it is, so that a request for FP16 silently gives FP32. So layers
are counted before the build, and must have the requested precision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from paritygate.engine.library import DTYPE_OF_PRECISION, MOVING, QUANTIZE
from paritygate.errors import ConversionError
from paritygate.precision import Precision

DtypeCounts = Mapping[str, Mapping[str, int]]

_FLOATS = ("FLOAT", "HALF", "BF16", "FP8", "FP4")
# Our quantizers dequantize to it, and a product of quantized values has it as its result.
_DEQUANTIZED = "FLOAT"
_LOW = frozenset(_FLOATS) - {"FLOAT"}
_PRODUCTS = frozenset({"CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY"})
# Layers between dequantized weights and their product.
_PASSING = frozenset({"SHUFFLE", "IDENTITY", "SQUEEZE", "UNSQUEEZE"})
_INT8_HINT = "check which nodes calibration quantizes, or remove the int8 target"


def count_dtypes(network: Any) -> DtypeCounts:  # noqa: ANN401 - an INetworkDefinition
    """Return the number of layers' outputs, by dtype and type of layer, under the library's names."""
    counted: dict[str, Counter[str]] = {}
    for layer in _layers(network):
        for index in range(layer.num_outputs):
            output = layer.get_output(index)
            if output is not None:
                counted.setdefault(output.dtype.name, Counter())[layer.type.name] += 1
    return {dtype: dict(sorted(counted[dtype].items())) for dtype in sorted(counted)}


def quantized_products(network: Any) -> Mapping[str, int]:  # noqa: ANN401 - an INetworkDefinition
    """Return the number of convolutions and matrix products of only dequantized values, which int8 consists of."""
    dequantized: set[str] = set()
    counts: Counter[str] = Counter()
    # A network's order is one in which its layers can be computed.
    for layer in _layers(network):
        kind = layer.type.name
        inputs = [layer.get_input(index) for index in range(layer.num_inputs)]
        names = [tensor.name for tensor in inputs if tensor is not None]
        if kind == "DEQUANTIZE" or (kind in _PASSING and names and names[0] in dequantized):
            dequantized.update(layer.get_output(index).name for index in range(layer.num_outputs))
        elif kind in _PRODUCTS and len(names) > 1 and dequantized.issuperset(names[:2]):
            counts[kind] += 1
    return dict(sorted(counts.items()))


def _layers(network: Any) -> Iterator[Any]:  # noqa: ANN401 - an INetworkDefinition
    for index in range(network.num_layers):
        yield network.get_layer(index)


def _computing(counts: DtypeCounts, products: Mapping[str, int]) -> DtypeCounts:
    """Return the layers that compute in floating point, without products of quantized values."""
    computing = {}
    for dtype in _FLOATS:
        layers = {kind: count for kind, count in counts.get(dtype, {}).items() if kind not in MOVING}
        if dtype == _DEQUANTIZED:
            layers = {kind: count - products.get(kind, 0) for kind, count in layers.items()}
            layers = {kind: count for kind, count in layers.items() if count}
        if layers:
            computing[dtype] = layers
    return computing


def check_dtypes(
    counts: DtypeCounts, precision: Precision, *, products: Mapping[str, int], given: frozenset[str], title: str
) -> str:
    """Return a sentence on the network's dtypes, once they are the requested ones.

    An engine for FP32 may compute in less only where its ONNX model does, because a model trained in mixed precision
    stays so. `given` are the float dtypes anywhere in that model, and `products` those on quantized values, under the
    library's names.

    Raises:
        ConversionError: The dtypes are others.
    """
    computing = _computing(counts, products)
    described = _described(computing)
    wanted = _DEQUANTIZED if precision is Precision.INT8 else DTYPE_OF_PRECISION[precision]
    if precision in {Precision.FP16, Precision.BF16, Precision.MIXED} and wanted not in computing:
        msg = f"{precision} was requested, but no layer of the network computes in it: {title} reads {described}"
        hint = f"remove the {precision} target, or give an ONNX model that was rewritten to {precision}"
        raise ConversionError(msg, hint=hint)
    if precision is Precision.INT8 and not (counts.get("INT8", {}).get(QUANTIZE) and products):
        msg = f"int8 was requested, but no product of the network has quantized values: {title} reads {described}"
        raise ConversionError(msg, hint=_INT8_HINT)
    unasked = sorted(set(computing) & _LOW - {wanted} - given)
    if unasked:
        msg = (
            f"{precision} was requested, but layers compute in {', '.join(unasked)}, which the ONNX model "
            f"lacks: {title} reads {described}"
        )
        raise ConversionError(msg, hint="build with another version of the library, or serve the model in ONNX")
    in_int8 = f"on int8 {_counted(products)}, and " if products else ""
    return f"the network computes {in_int8}{described}"


def _described(found: DtypeCounts) -> str:
    return ", and ".join(f"in {dtype} {_counted(layers)}" for dtype, layers in found.items()) or "no floating point"


def _counted(layers: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in layers.items())
