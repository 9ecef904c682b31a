"""ONNX to OpenVINO: what is written, that it answers like ONNX Runtime, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tests.convert.conftest import Bench, Converted, sign

from paritygate.backends import install_command
from paritygate.convert.conversion import Conversion
from paritygate.convert.openvino.check_openvino import check
from paritygate.convert.openvino.onnx_to_openvino import convert
from paritygate.errors import ConversionError, MissingBackendError, NotAvailableError, UnsupportedOperatorsError
from paritygate.models.openvino.model import precision_of_openvino, read_openvino
from paritygate.models.openvino.settings import compile_openvino, is_capable, read_settings
from paritygate.precision import Precision
from paritygate.signature import TensorSpec

pytestmark = pytest.mark.openvino

_RANDOM = np.random.default_rng(5)
_BOTH = [Precision.FP32, Precision.BF16]
_LINEAR = """
< ir_version: 8, opset_import: ["" : 17] >
linear (float[batch, 4] x) => (float[batch, 4] y)
<float[4, 4] w = {0.1, 1.2, 2.3, 3.4, 4.5, 5.6, 6.7, 7.8, 8.9, 9.1, 1.3, 2.7, 3.9, 5.3, 6.1, 7.7}> { y = MatMul (x, w) }
"""


def _to_openvino(bench: Bench, path: Path, precision: Precision = Precision.FP32, **fields: Any) -> Converted:  # noqa: ANN401
    if not is_capable("bf16") and precision is Precision.BF16:
        pytest.skip("this CPU does not compute in bf16")
    return bench.convert("onnx", path, to="openvino", precision=precision, **fields)


def _answers(converted: Converted, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the outputs by name of the files written, compiled as their settings ask."""
    model = read_openvino(converted.main)
    compiled = compile_openvino(model, read_settings(converted.main)).model
    found = compiled(dict(inputs))
    return {spec.name: found[spec.name] for spec in converted.conversion.signature.outputs}


def _expected(path: Path, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _normal(*shape: int) -> NDArray[np.float32]:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def _assert_as_in_onnx(
    converted: Converted, path: Path, inputs: Mapping[str, NDArray[Any]], *, limit: float = 1e-5
) -> None:
    """Assert same names, dtypes and shapes, and a largest difference within `limit` times the largest value."""
    __tracebackhide__ = True
    found, expected = _answers(converted, inputs), _expected(path, inputs)
    assert list(found) == list(expected)
    for name, wanted in expected.items():
        assert (found[name].dtype, found[name].shape) == (wanted.dtype, wanted.shape), name
        if wanted.dtype.kind == "f":
            assert np.isfinite(found[name]).all(), name
            worst = np.abs(found[name].astype(np.float64) - wanted).max(initial=0.0)
            assert worst <= limit * max(1.0, np.abs(wanted).max(initial=0.0)), f"{name}: {worst}"
        else:
            np.testing.assert_array_equal(found[name], wanted, err_msg=name)


@pytest.mark.parametrize(("precision", "hint"), [(Precision.FP32, "f32"), (Precision.BF16, "bf16")])
def test_the_model_its_weights_and_its_settings_are_written(bench: Bench, precision: Precision, hint: str) -> None:
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 2, 8))
    converted = _to_openvino(bench, bench.onnx_file(_LINEAR), precision, signature=signature)
    assert set(converted.files) == {"model.xml", "model.bin", "model.config.json"}
    assert json.loads(converted.files["model.config.json"]) == {"CPU": {"INFERENCE_PRECISION_HINT": hint}}
    assert converted.conversion.signature == signature
    facts = converted.conversion.facts
    assert facts["precision_hint"] == hint
    assert facts["operators_by_precision"] == {hint: 1}
    assert facts["loaded_in"] == f"openvino {facts['openvino']}"
    # The weights stay as they are; what lowers the precision is the hint alone.
    assert len(converted.files["model.bin"]) == 16 * 4
    assert precision_of_openvino(read_openvino(converted.main)) is Precision.FP32


def test_bf16_is_really_computed_in(bench: Bench) -> None:
    path, x = bench.onnx_file(_LINEAR), _normal(3, 4)
    expected = _expected(path, {"x": x})["y"]
    difference = np.abs(_answers(_to_openvino(bench, path, Precision.BF16), {"x": x})["y"] - expected).max()
    assert 1e-4 < difference / np.abs(expected).max() < 1e-2


_NO_FLOATS = """
< ir_version: 8, opset_import: ["" : 17] >
ids (int64[batch, 4] x) => (int64[batch, 4] y) { y = Add (x, x) }
"""
_ONLY_MOVES = """
< ir_version: 8, opset_import: ["" : 17] >
rows (int64[batch] x) => (float[batch, 2] y) <float[3, 2] w = {0.1, 1.2, 2.3, 3.4, 4.5, 5.6}> { y = Gather (w, x) }
"""


@pytest.mark.parametrize("text", [_NO_FLOATS, _ONLY_MOVES], ids=["integers", "a gather"])
def test_bf16_in_which_nothing_is_computed_is_refused(bench: Bench, text: str) -> None:
    with pytest.raises(ConversionError, match="no operator computes in bf16 ") as caught:
        _to_openvino(bench, bench.onnx_file(text), Precision.BF16)
    assert caught.value.hint == "remove the bf16 target"


def test_every_output_keeps_its_own_name_even_where_two_are_one_tensor(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    names (float[N, 3] x, float[N, 3] unused) => (float[N, 3] z, float[N, 3] y, float[3] w, float[N, 3] same)
    <float[3] w = {1, 2, 3}> { y = Relu (x)  z = Identity (y)  same = Identity (x) }
    """
    path = bench.onnx_file(text)
    converted = _to_openvino(bench, path)
    assert [spec.name for spec in converted.conversion.signature.inputs] == ["x", "unused"]
    _assert_as_in_onnx(converted, path, {"x": _normal(2, 3), "unused": _normal(2, 3)})


def test_dtypes_and_open_dims_stay(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    types (int64[N, S] ids, bool[N, S] mask, int32[N] i, uint8[2, M] u, float16[N] h)
      => (int64[N, S] id, bool[N, S] no, int32[N] j, uint8[2, M] v, float16[N] k) {
        id = Identity (ids)  no = Not (mask)  j = Add (i, i)  v = Identity (u)  k = Identity (h)
    }
    """
    path = bench.onnx_file(text)
    converted = _to_openvino(bench, path)
    shapes = {spec.name: (spec.dtype, spec.shape) for spec in converted.conversion.signature.inputs}
    assert {name: dtype for name, (dtype, _) in shapes.items()} == {
        "ids": "int64", "mask": "bool", "i": "int32", "u": "uint8", "h": "float16",
    }  # fmt: skip
    assert [isinstance(dim, int) for dim in (*shapes["ids"][1], *shapes["u"][1])] == [False, False, True, False]
    for rows, length in ((1, 1), (3, 7)):
        inputs = {
            "ids": _RANDOM.integers(0, 9, (rows, length)),
            "mask": _RANDOM.integers(0, 2, (rows, length)).astype(bool),
            "i": np.arange(rows, dtype=np.int32),
            "u": _RANDOM.integers(0, 255, (2, length)).astype(np.uint8),
            "h": _normal(rows).astype(np.float16),
        }
        _assert_as_in_onnx(converted, path, inputs)


@pytest.mark.parametrize("precision", _BOTH)
def test_ids_above_2_to_the_24_stay_exact(bench: Bench, precision: Precision) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    ids (int64[N] ids) => (float[N, 8] y, int64[N] next) <int64 base = {16777216}, int64 one = {1}> {
        at = Sub (ids, base)  row = Gather (table, at)  y = MatMul (row, matrix)  next = Add (ids, one)
    }
    """
    model = onnx.parser.parse_model(text)
    for name in ("table", "matrix"):
        model.graph.initializer.append(numpy_helper.from_array(_normal(8, 8), name))
    path = bench.folder / "ids.onnx"
    onnx.save(model, str(path))
    inputs = {"ids": np.array([16777217, 16777219, 16777223, 16777216])}
    limit = 1e-5 if precision is Precision.FP32 else 2e-2
    _assert_as_in_onnx(_to_openvino(bench, path, precision), path, inputs, limit=limit)


@pytest.mark.parametrize("precision", _BOTH)
def test_if_and_loop_answer_as_in_onnx(bench: Bench, precision: Precision) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    flow (float[N, 4] x, bool c, int64 n) => (float[N, 4] y, float[N, 4] z) <bool go = {1}> {
        y = If (c) <
            then_branch = yes () => (float[N, 4] a) { a = MatMul (x, w) },
            else_branch = no () => (float[N, 4] b) { b = Neg (x) }
        >
        z = Loop (n, go, x) <body = step (int64 i, bool k, float[N, 4] v) => (bool again, float[N, 4] next) {
            again = Identity (k)  product = MatMul (v, w)  next = Tanh (product)
        }>
    }
    """
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(_normal(4, 4), "w"))
    path = bench.folder / "flow.onnx"
    onnx.save(model, str(path))
    converted = _to_openvino(bench, path, precision)
    limit = 1e-5 if precision is Precision.FP32 else 5e-2
    for condition, steps in ((True, 0), (False, 3)):
        inputs = {"x": _normal(2, 4), "c": np.array(condition), "n": np.array(steps)}
        _assert_as_in_onnx(converted, path, inputs, limit=limit)


def _save(path: Path, nodes: list[onnx.NodeProto], shape: list[Any], weights: Mapping[str, NDArray[Any]]) -> Path:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(onnx.shape_inference.infer_shapes(model), str(path))
    return path


@pytest.mark.parametrize("precision", _BOTH)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_convolutions_of_either_layout_answer_as_in_onnx(bench: Bench, layout: str, precision: Precision) -> None:
    is_last = layout == "NHWC"
    nodes = [
        *([helper.make_node("Transpose", ["x"], ["image"], perm=[0, 3, 1, 2])] if is_last else []),
        helper.make_node("Conv", ["image" if is_last else "x", "w"], ["wide"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["wide"], ["positive"]),
        helper.make_node("GlobalAveragePool", ["positive"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["y"]),
    ]
    image = (8, 8, 3) if is_last else (3, 8, 8)
    path = _save(bench.folder / "net.onnx", nodes, ["batch", *image], {"w": _normal(16, 3, 3, 3)})
    converted = _to_openvino(bench, path, precision)
    limit = 1e-5 if precision is Precision.FP32 else 2e-2
    for rows in (1, 5):
        _assert_as_in_onnx(converted, path, {"x": _normal(rows, *image)}, limit=limit)


@pytest.mark.parametrize("precision", _BOTH)
def test_a_mask_of_minus_1e9_and_activations_beyond_float16_are_no_trouble(bench: Bench, precision: Precision) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Add", ["scores", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "large"], ["activations"]),
        helper.make_node("Mul", ["activations", "activations"], ["squares"]),
        helper.make_node("ReduceMean", ["squares"], ["mean"], axes=[-1], keepdims=1),
        helper.make_node("Sqrt", ["mean"], ["norm"]),
        helper.make_node("Div", ["activations", "norm"], ["normal"]),
        # OpenVINO keeps all of the above in float32, whatever it is asked for.
        helper.make_node("MatMul", ["normal", "w"], ["y"]),
    ]
    mask = np.array([0, 0, 0, 0, 0, -1e9, -1e9, -1e9], dtype=np.float32)
    weights = {"w": _normal(8, 8) / 4, "mask": mask, "large": _normal(8, 8) * 1e5}
    path = _save(bench.folder / "net.onnx", nodes, ["batch", 8], weights)
    limit = 1e-5 if precision is Precision.FP32 else 3e-2
    _assert_as_in_onnx(_to_openvino(bench, path, precision), path, {"x": _normal(6, 8)}, limit=limit)


def test_weights_in_another_file_are_read(bench: Bench) -> None:
    path = bench.folder / "net.onnx"
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = onnx.load(str(_save(path, nodes, ["N", 32], {"w": _normal(32, 8)})))
    onnx.save_model(model, str(path), save_as_external_data=True, location="net.data", size_threshold=0)
    assert (bench.folder / "net.data").stat().st_size == 32 * 8 * 4
    converted = _to_openvino(bench, path)
    (bench.folder / "net.data").rename(bench.folder / "net.away")
    found = _answers(converted, {"x": np.eye(32, dtype=np.float32)})["y"]
    (bench.folder / "net.away").rename(bench.folder / "net.data")
    np.testing.assert_allclose(found, _expected(path, {"x": np.eye(32, dtype=np.float32)})["y"], rtol=1e-6)


def test_operators_that_openvino_lacks_come_as_one_table(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17, "my.operators" : 1] >
    strange (float[N, N] x) => (float y, float[N, N] z) {
        [first] y = Det (x)
        [second] z = my.operators.Twist (x)
    }
    """
    with pytest.raises(UnsupportedOperatorsError, match=r"OpenVINO .* does not have these operators .*Det") as caught:
        _to_openvino(bench, bench.onnx_file(text))
    assert {row[:2] for row in caught.value.rows} == {("Det", "first"), ("my.operators::Twist", "second")}
    assert all("OpenVINO" in row[2] and row[3] for row in caught.value.rows)


def test_an_operator_that_openvino_has_in_part_only_is_named_with_node_and_reason(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    strange (float[1, 1, N, N] x) => (float[1, 1, M, M] y) <float[4] scales = {1, 1, 2, 2}> {
        y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"> (x, , scales)
    }
    """
    message = r"OpenVINO \S+ does not convert the operator Resize \(node y\): tf_crop_and_resize - .* not supp"
    with pytest.raises(ConversionError, match=message):
        _to_openvino(bench, bench.onnx_file(text))


@pytest.mark.parametrize("operator", ["Identity", "Dropout", "Sum"])
def test_an_input_that_is_an_output_keeps_its_own_name(bench: Bench, operator: str) -> None:
    text = f"""
    < ir_version: 8, opset_import: ["" : 17] >
    names (float[N, 3] b, float[N, 3] c) => (float[N, 3] a, float[N, 3] d, float[N, 3] c) {{
        inner = {operator} (b)  a = {operator} (inner)  d = Sub (b, c)
    }}
    """
    path = bench.onnx_file(text)
    converted = _to_openvino(bench, path)
    assert [spec.name for spec in converted.conversion.signature.inputs] == ["b", "c"]
    _assert_as_in_onnx(converted, path, {"b": _normal(2, 3), "c": _normal(2, 3)})


def test_an_input_that_openvino_drops_is_there_all_the_same(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    like (float[0] other, int64[N] x) => (float[N] y) { y = CastLike (x, other) }
    """
    path = bench.onnx_file(text)
    signature = sign({"other": "float32[0]", "x": "int64[N]"}, {"y": "float32[N]"})
    converted = _to_openvino(bench, path, signature=signature)
    assert converted.conversion.signature == signature
    names = [next(iter(port.get_names())) for port in read_openvino(converted.main).inputs]
    assert sorted(names) == ["other", "x"]
    found = _answers(converted, {"other": np.zeros(0, np.float32), "x": np.array([1, 2])})
    np.testing.assert_array_equal(found["y"], [1.0, 2.0])


def test_strings_are_refused(bench: Bench) -> None:
    text = '< ir_version: 8, opset_import: ["" : 17] > same (string[N] x) => (string[N] y) { y = Identity (x) }'
    with pytest.raises(NotAvailableError, match="accepts no text here, but 'x' of the model is text"):
        _to_openvino(bench, bench.onnx_file(text))


def test_without_openvino_nothing_is_converted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.onnx_file(_LINEAR)
    monkeypatch.setattr("paritygate.backends.importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingBackendError, match="openvino is needed to make and run OpenVINO models") as caught:
        bench.convert("onnx", path, to="openvino")
    assert caught.value.hint == install_command("openvino")


def test_a_model_for_another_cpu_is_written_and_says_so(bench: Bench) -> None:
    if is_capable("f16"):
        pytest.skip("this CPU computes in f16")
    job = replace(bench.job("onnx", bench.onnx_file(_LINEAR)), precision=Precision.FP16)
    job.folder.mkdir()
    conversion = check(job, convert(job))
    assert conversion.notes == ("this CPU does not compute in f16: the model was compiled here for f32 only",)
    assert conversion.facts["not_compiled_for"] == "f16: this CPU does not compute in it"
    assert read_settings(job.folder / conversion.main) == {"INFERENCE_PRECISION_HINT": "f16"}


def _written(bench: Bench) -> tuple[Any, Conversion]:
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"})
    job = replace(bench.job("onnx", bench.onnx_file(_LINEAR)), signature=signature)
    job.folder.mkdir()
    return job, convert(job)


def test_weights_that_are_cut_off_are_caught(bench: Bench) -> None:
    job, conversion = _written(bench)
    (job.folder / "model.bin").write_bytes(b"1234")
    with pytest.raises(ConversionError, match=r"unsound: .*Incorrect weights in bin file.*model\.bin, 4 bytes"):
        check(job, conversion)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"name": "other"}, "its inputs are 'x', expected 'other'"),
        ({"dtype": "float64"}, "input 'x' is float32, expected float64"),
        ({"shape": ("batch", "width")}, "dim 1 of input 'x' is fixed at 4, expected width"),
        ({"shape": ("batch",)}, "input 'x' has rank 2, expected rank 1"),
    ],
)
def test_a_signature_that_the_files_do_not_keep_is_caught(bench: Bench, fault: dict[str, Any], message: str) -> None:
    job, conversion = _written(bench)
    promised = TensorSpec(**{"name": "x", "dtype": "float32", "shape": ("batch", 4), **fault})
    with pytest.raises(ConversionError, match=message):
        check(replace(job, signature=replace(job.signature, inputs=(promised,))), conversion)
