"""ONNX to FP16 and BF16, through the checks that every conversion ends with: what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paritygate.errors import ConversionError
from paritygate.precision import Precision

if TYPE_CHECKING:
    from tests.convert.conftest import Bench

_INTEGERS = """
< ir_version: 8, opset_import: ["" : 17] >
ids (int64[N, 4] x) => (int64[N, 4] y) { y = Add (x, x) }
"""
_RELU = """
< ir_version: 8, opset_import: ["" : 17] >
relu (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }
"""
_BOTH = [Precision.FP16, Precision.BF16]


@pytest.mark.parametrize("precision", _BOTH)
def test_a_model_of_which_nothing_is_converted_is_refused(bench: Bench, precision: Precision) -> None:
    with pytest.raises(ConversionError, match=f"nothing to compute in {precision}: no node") as caught:
        bench.convert("onnx", bench.onnx_file(_INTEGERS), precision=precision)
    assert caught.value.hint == f"remove the {precision} target"


@pytest.mark.parametrize("precision", _BOTH)
def test_one_node_that_is_converted_is_enough(bench: Bench, precision: Precision) -> None:
    converted = bench.convert("onnx", bench.onnx_file(_RELU), precision=precision)
    assert converted.conversion.facts["nodes_converted"] == 1
