"""Rewriting what is more than a flat graph: subgraphs, functions, external data, other opsets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from paritygate.convert.onnx.onnx_to_low_precision import RewriteResult, rewrite_precision
from paritygate.errors import ConversionError, InputFileError
from paritygate.models.onnx.file import opset_of, read_onnx
from paritygate.models.onnx.graph import graphs_in, nodes_in
from paritygate.precision import Precision

_X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)

_IF = """
< ir_version: 8, opset_import: ["" : 17] >
g (bool flag, float[N,4] x) => (float[N,4] y)
<float[4] w = {1, 2, 3, 4}>
{
    z = Mul (x, w)
    r = If (flag) <
        then_branch = yes () => (float[N,4] t) { a = Exp (z) t = Add (a, w) },
        else_branch = no () => (float[N,4] e) { a = Neg (z) b = Mul (a, z) e = Identity (b) }
    >
    y = Softmax (r)
}
"""

_LOOP = """
< ir_version: 8, opset_import: ["" : 17] >
g (float[4] x) => (float[4] last, float[3,4] all)
<int64 trips = {3}, bool go = {1}, float[4] step = {0.5, 0.25, 0.125, 1}>
{
    start = Neg (x)
    last, all = Loop (trips, go, start) <
        body = turn (int64 i, bool goes, float[4] state) => (bool on, float[4] next, float[4] scanned) {
            on = Identity (goes)
            grown = Mul (state, x)
            next = Add (grown, step)
            scanned = Exp (next)
        }
    >
}
"""

_SCAN = """
< ir_version: 8, opset_import: ["" : 17] >
g (float[4] zero, float[3,4] x) => (float[4] total, float[3,4] sums)
{
    total, sums = Scan <num_scan_inputs = 1, body = turn (float[4] sum, float[4] row) => (float[4] out, float[4] seen) {
        out = Add (sum, row)
        seen = Sqrt (out)
    }> (zero, x)
}
"""

_CALLS = """
< ir_version: 10, opset_import: ["" : 17, "own" : 1] >
g (float[N,4] x) => (float[N,4] y)
<float[4] w = {1, 2, 3, 4}>
{ a = own.block (x, w) b = own.block (a, w) y = Neg (b) }
< domain: "own", opset_import: ["" : 17] >
block (v, u) => (r) { p = Mul (v, u) q = Tanh (p) r = Add (q, v) }
"""

needs_opset_22 = pytest.mark.skipif(onnx.defs.onnx_opset_version() < 22, reason="this onnx has no opset 22")


def _parsed(text: str) -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.parser.parse_model(text)
    return model


def _fp16(model: onnx.ModelProto, **options: Any) -> RewriteResult:  # noqa: ANN401 - any option of the rewriter
    return rewrite_precision(model, precision=Precision.FP16, **options)


def _run(model: onnx.ModelProto, **inputs: Any) -> Sequence[NDArray[Any]]:  # noqa: ANN401 - anything numpy takes
    import onnxruntime

    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: Sequence[NDArray[Any]] = session.run(None, {name: np.asarray(value) for name, value in inputs.items()})
    return found


def _largest_difference(actual: onnx.ModelProto, expected: onnx.ModelProto, **inputs: Any) -> float:  # noqa: ANN401
    pairs = zip(_run(actual, **inputs), _run(expected, **inputs), strict=True)
    return max(float(np.abs(one - other).max()) for one, other in pairs)


def _casts(graph: onnx.GraphProto) -> list[str]:
    return sorted(node.input[0] for node in graph.node if node.op_type == "Cast")


@pytest.mark.parametrize("flag", [True, False])
def test_branches_are_converted_and_share_casts_of_outer_values(flag: bool) -> None:  # noqa: FBT001 - an input's value
    model = _parsed(_IF)
    result = _fp16(model)
    assert result.nodes_converted == ("Mul", "Exp", "Add", "Neg", "Mul_1", "Identity", "Softmax")
    assert [node.name for node in result.nodes_kept] == ["If"]
    outer, yes, no = graphs_in(result.model.graph)
    assert (_casts(outer), _casts(yes), _casts(no)) == (["r", "x", "y_fp16"], ["t"], ["e"])
    assert [tensor.data_type for tensor in outer.initializer] == [TensorProto.FLOAT16]
    assert _largest_difference(result.model, model, flag=flag, x=_X) < 4e-2


def test_a_node_in_a_branch_stays_fp32_and_its_outer_values_are_cast_once() -> None:
    result = _fp16(_parsed(_IF), kept=dict.fromkeys(["Exp", "Neg"], "kept as asked"))
    assert {node.name for node in result.nodes_kept} == {"If", "Exp", "Neg"}
    outer, _, _ = graphs_in(result.model.graph)
    assert _casts(outer) == ["r", "x", "y_fp16", "z"]
    _run(result.model, flag=True, x=_X)


def test_what_a_loop_carries_stays_fp32_and_its_body_is_converted() -> None:
    model = _parsed(_LOOP)
    result = _fp16(model)
    assert result.nodes_converted == ("Neg", "Mul", "Add", "Exp")
    body = list(graphs_in(result.model.graph))[1]
    assert {value.type.tensor_type.elem_type for value in (body.input[2], body.output[1])} == {TensorProto.FLOAT}
    assert _largest_difference(result.model, model, x=np.array([0.5, -0.25, 1, 0.1], np.float32)) < 5e-3


def test_a_sum_that_is_kept_in_a_loop_loses_nothing_between_turns() -> None:
    model = _parsed(_SCAN)
    x = np.array([[2048] * 4, [1] * 4, [1] * 4], np.float32)
    result = _fp16(model, kept=dict.fromkeys(["Add"], "kept as asked"))
    assert result.nodes_converted == ("Sqrt",)
    assert _run(result.model, zero=np.zeros(4, np.float32), x=x)[0].tolist() == [2050] * 4


def test_branches_may_use_the_same_names() -> None:
    model = _parsed(_IF)
    assert [graph.node[0].output[0] for graph in graphs_in(model.graph)] == ["z", "a", "a"]
    result = _fp16(model, kept=dict.fromkeys(["Neg"], "kept as asked"))
    for flag in (True, False):
        assert _largest_difference(result.model, model, flag=flag, x=_X) < 4e-2


def test_bf16_is_valid_in_subgraphs_too() -> None:
    for text in (_IF, _LOOP, _SCAN, _CALLS):
        result = rewrite_precision(_parsed(text), precision=Precision.BF16)
        onnx.checker.check_model(result.model, full_check=True)
        assert result.nodes_converted


def test_functions_are_inlined_and_converted() -> None:
    model = _parsed(_CALLS)
    result = _fp16(model)
    assert not result.model.functions
    assert "block/Mul" in result.nodes_converted
    assert result.nodes_kept == ()
    assert _largest_difference(result.model, model, x=_X) < 5e-2


def _saved_apart(folder: Path) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return a model whose tensors are in another file, not loaded, and the same with its tensors inside."""
    model = _parsed(
        '< ir_version: 8, opset_import: ["" : 17] > g (float[N,4] x) => (M) { a = MatMul (x, w) y = Reshape (a, s) }'
    )
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M"]))
    weights = np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "s"))
    inside = onnx.ModelProto()
    inside.CopyFrom(model)
    path = folder / "model.onnx"
    onnx.save_model(model, str(path), save_as_external_data=True, size_threshold=0, location="weights.bin")
    return read_onnx(path), inside


def test_external_data_is_read_and_the_result_holds_it(tmp_path: Path) -> None:
    apart, inside = _saved_apart(tmp_path)
    result = _fp16(apart, folder=tmp_path)
    assert not any(tensor.external_data for tensor in result.model.graph.initializer)
    assert result.model.graph.initializer[0].data_type == TensorProto.FLOAT16
    assert all(tensor.external_data for tensor in apart.graph.initializer)
    assert _largest_difference(result.model, inside, x=_X) < 5e-3


def test_external_data_of_a_node_that_is_kept_is_read_too(tmp_path: Path) -> None:
    apart, inside = _saved_apart(tmp_path)
    result = _fp16(apart, folder=tmp_path, kept=dict.fromkeys(["MatMul"], "kept as asked"))
    assert _largest_difference(result.model, inside, x=_X) < 5e-3
    assert result.model.graph.initializer[0].data_type == TensorProto.FLOAT


def test_external_data_without_a_folder_or_file_is_an_error(tmp_path: Path) -> None:
    apart, _ = _saved_apart(tmp_path)
    with pytest.raises(InputFileError, match="the data of tensor 'w' is in another file, and its folder is not known"):
        _fp16(apart)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(InputFileError, match="the data of tensor 'w' cannot be read"):
        _fp16(apart, folder=tmp_path)


def _convolution(opset: int) -> onnx.ModelProto:
    axes = "<axes = [2, 3], keepdims = 0> (b)" if opset < 18 else "<keepdims = 0> (b, axes)"
    model = _parsed(
        f'< ir_version: 8, opset_import: ["" : {opset}] > g (float[N,2,6,6] x) => (float[N,3] y)'
        f"<int64[2] axes = {{2, 3}}> {{ a = Conv (x, w) b = Relu (a) y = ReduceMean {axes} }}"
    )
    weights = np.random.default_rng(0).standard_normal((3, 2, 3, 3), dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    if opset < 18:
        del model.graph.initializer[0]
    return model


@needs_opset_22
@pytest.mark.parametrize("opset", [13, 17, 18, 21, 22, 23])
def test_the_opset_is_raised_for_bf16_where_a_convolution_needs_it(opset: int) -> None:
    result = rewrite_precision(_convolution(opset), precision=Precision.BF16)
    onnx.checker.check_model(result.model, full_check=True)
    assert opset_of(result.model) == max(opset, 22)
    assert result.notes == ((f"the opset was raised from {opset} to 22",) if opset < 22 else ())
    assert result.nodes_converted == ("Conv", "Relu", "ReduceMean")


def test_a_model_whose_opset_was_raised_computes_the_same() -> None:
    model = _convolution(13)
    kept = {node.op_type: "kept as asked" for node in model.graph.node[1:]}
    result = rewrite_precision(model, precision=Precision.BF16, kept=kept)
    # Without its one node in bfloat16, which ONNX Runtime's CPU provider does not run, the rest is an FP32 model.
    for node in result.model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast":
                attribute.i = TensorProto.FLOAT
    for tensor in result.model.graph.initializer:
        if tensor.data_type == TensorProto.BFLOAT16:
            rounded = np.frombuffer(tensor.raw_data, np.uint16).astype(np.uint32) << 16
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(rounded.view(np.float32).reshape(tuple(tensor.dims)), tensor.name)
            )
    image = np.random.default_rng(1).random((2, 2, 6, 6), np.float32)
    assert _largest_difference(result.model, model, x=image) < 2e-2


def test_the_opset_is_not_raised_for_fp16() -> None:
    assert opset_of(_fp16(_convolution(17)).model) == 17


@needs_opset_22
def test_a_node_that_cannot_be_raised_is_named_and_the_rest_is_converted() -> None:
    model = _parsed(
        '< ir_version: 8, opset_import: ["" : 16] > g (float[N,4] x) => (bool has, float[N,4] y)'
        "{ some = Optional (x) has = OptionalHasElement (some) b = Softsign (x) y = Neg (b) }"
    )
    result = rewrite_precision(model, precision=Precision.BF16)
    assert opset_of(result.model) == 16
    assert result.nodes_converted == ("Neg",)
    name = "OptionalHasElement"
    assert result.notes == (f"more nodes would take bf16 in opset 22, but {name} node {name!r} cannot be raised to it",)


@needs_opset_22
def test_a_group_normalization_whose_scale_is_one_a_group_is_not_raised_into_another_meaning() -> None:
    body = "a = Conv (x, w) y = GroupNormalization <num_groups = 2> (a, s, s)"
    model = _parsed(
        '< ir_version: 8, opset_import: ["" : 18] > g (float[N,2,6,6] x) => (float[N,4,6,6] y)'
        f"<float[2] s = {{1, 2}}> {{ {body} }}"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 2, 1, 1), np.float32), "w"))
    # Opset 18 has it as a mistake that was taken back; raised to 22 it would be valid and wrong.
    with pytest.raises(ConversionError, match="the given model is not valid ONNX"):
        rewrite_precision(model, precision=Precision.BF16)


def test_no_name_is_used_twice() -> None:
    model = _parsed(_IF)
    # A value and a node that have the very names that casts would get.
    model.graph.node.append(onnx.helper.make_node("Neg", ["x"], ["x_fp16"], name="x_to_fp16"))
    result = _fp16(model)
    names = [node.name for node in nodes_in(result.model.graph)]
    assert len(set(names)) == len(names)
    _run(result.model, flag=True, x=_X)
