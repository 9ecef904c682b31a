"""ONNX to FP16 and BF16, through the checks that every conversion ends with: what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.errors import ConversionError, NotAvailableError
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
    with pytest.raises(ConversionError, match=f"no node that computes can be converted to {precision} ") as caught:
        bench.convert("onnx", bench.onnx_file(_INTEGERS), precision=precision)
    assert caught.value.hint == f"remove the {precision} target"


def test_to_move_values_is_no_computing_in_a_precision(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3] >
    trees (float[N, 4] x) => (float[N, 4] y) {
        two = Concat <axis = 0> (x, x)
        y = ai.onnx.ml.Normalizer (two)
    }
    """
    with pytest.raises(NotAvailableError) as caught:
        bench.convert("onnx", bench.onnx_file(text), precision=Precision.FP16)
    assert str(caught.value) == "no node that computes can be converted to fp16 (kept in fp32: ai.onnx.ml::Normalizer)"


def test_operators_of_trees_stay_in_fp32_beside_others(bench: Bench) -> None:
    # This version of it can have FP16 by its schema, which ONNX Runtime does not run.
    text = """
    < ir_version: 10, opset_import: ["" : 17, "ai.onnx.ml" : 5] >
    trees (float[N, 4] x) => (float[N, 1] y) {
        r = Relu (x)
        y = ai.onnx.ml.TreeEnsemble <
            n_targets = 1, tree_roots = [0], nodes_featureids = [0], nodes_modes = uint8[1] {0},
            nodes_splits = float[1] {0.5}, nodes_truenodeids = [0], nodes_trueleafs = [1],
            nodes_falsenodeids = [1], nodes_falseleafs = [1],
            leaf_targetids = [0, 0], leaf_weights = float[2] {1.0, 2.0}
        > (r)
    }
    """
    converted = bench.convert("onnx", bench.onnx_file(text), precision=Precision.FP16)

    assert [node["operator"] for node in converted.conversion.facts["nodes_kept"]] == ["ai.onnx.ml::TreeEnsemble"]
    found = converted.run({"x": np.array([[0.4, 0, 0, 0], [0.6, 0, 0, 0]], np.float32)})
    assert found["y"].tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("precision", _BOTH)
def test_one_node_that_is_converted_is_enough(bench: Bench, precision: Precision) -> None:
    converted = bench.convert("onnx", bench.onnx_file(_RELU), precision=precision)
    assert converted.conversion.facts["nodes_converted"] == 1
