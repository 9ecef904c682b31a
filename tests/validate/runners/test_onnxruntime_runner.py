"""What is particular to ONNX Runtime: files, providers, dtypes that NumPy does not have."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from paritygate.errors import BackendError, InputFileError, MissingBackendError, UsageError
from paritygate.machine import gpu_of_machine
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.validate.runners.onnxruntime import OnnxRuntimeRunner, open_model

_FLOAT, _BFLOAT16 = TensorProto.FLOAT, TensorProto.BFLOAT16
_VECTOR = np.array([[1.5, -2.0, 3.25]], dtype=np.float32)


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    *,
    inputs: dict[str, int],
    outputs: dict[str, int],
    initializers: dict[str, np.ndarray] | None = None,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, kind, ["batch", 3]) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, kind, ["batch", 3]) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


def _one_node(path: Path, operator: str, **attributes: object) -> Path:
    nodes = [helper.make_node(operator, ["x"], ["y"], **attributes)]
    return _save(path, nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT})


def _open(path: Path, **options: object) -> OnnxRuntimeRunner:
    rename = options.pop("rename", {})
    source = ModelRef(text=path.name, folder=path.parent, kind=SourceKind.ONNX, rename=rename)  # type: ignore[arg-type]
    return open_model(LoadedModel(ref=source, **options))  # type: ignore[arg-type]  # fields of LoadedModel


def _lowercase(path: Path, **attributes: object) -> Path:
    node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER", **attributes)
    value = [helper.make_tensor_value_info(name, TensorProto.STRING, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([node], "graph", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def test_a_locale_that_this_machine_lacks_is_to_be_installed(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"Failed to construct locale with name:xx_XX\.UTF-8") as caught:
        _open(_lowercase(tmp_path / "m.onnx", locale="xx_XX.UTF-8"))
    assert caught.value.hint == (
        "install the locale xx_XX.UTF-8, wherever the model is to run: on Debian and Ubuntu, install the package "
        "locales, then run `localedef -i xx_XX -f UTF-8 xx_XX.UTF-8`; or export StringNormalizer with a locale that "
        "`locale -a` lists"
    )


def test_what_is_refused_for_something_else_is_to_be_exported_again(tmp_path: Path) -> None:
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], domain="com.microsoft")
    path = _save(tmp_path / "m.onnx", [node], inputs={"x": _FLOAT}, outputs={"y": _FLOAT})
    with pytest.raises(BackendError) as caught:
        _open(path)
    assert caught.value.hint == "export the model again with another opset or exporter"


def test_facts_are_read_back_from_the_session(tmp_path: Path) -> None:
    import onnxruntime

    facts = _open(_one_node(tmp_path / "m.onnx", "Relu")).facts
    assert (facts.runtime, facts.version, facts.device) == ("onnxruntime", onnxruntime.__version__, "cpu")
    assert (facts.precision_found, facts.tf32, facts.optimisation) == (Precision.FP32, None, "all")


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07"], ids=["empty", "text", "cut off"])
def test_a_corrupt_file_is_an_input_file_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(InputFileError, match="is not an ONNX model"):
        _open(path)


def _with_external_data(folder: Path, location: str) -> Path:
    weights = np.arange(48, dtype=np.float32).reshape(16, 3)
    path = _save(
        folder / "m.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        inputs={"x": _FLOAT},
        outputs={"y": _FLOAT},
        initializers={"w": weights[:3]},
    )
    model = onnx.load(str(path))
    tensor = model.graph.initializer[0]
    content = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (folder / location).write_bytes(content)
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_beside_the_model_is_read(tmp_path: Path) -> None:
    runner = _open(_with_external_data(tmp_path, "w.bin"))
    expected = _VECTOR @ np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_allclose(runner.run({"x": _VECTOR})["y"], expected, rtol=1e-6)


def test_external_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    path = _with_external_data(tmp_path / "model", "../w.bin")
    with pytest.raises(InputFileError, match="external data outside its folder"):
        _open(path)


def test_external_data_that_is_missing_or_cut_off_is_refused(tmp_path: Path) -> None:
    path = _with_external_data(tmp_path, "w.bin")
    (tmp_path / "w.bin").write_bytes(b"1234")
    with pytest.raises(InputFileError, match=r"36 bytes of 'w.bin', but that file has only 4"):
        _open(path)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(InputFileError, match="external data that is missing"):
        _open(path)


def test_an_operator_that_onnx_does_not_have_is_a_backend_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"refused .*m\.onnx: .*No Op registered for Erfc") as raised:
        _open(_one_node(tmp_path / "m.onnx", "Erfc"))
    assert "\n" not in str(raised.value)


def test_an_operator_without_implementation_is_a_backend_error(tmp_path: Path) -> None:
    nodes = [helper.make_node("Selu", ["x"], ["y"])]
    path = _save(tmp_path / "m.onnx", nodes, inputs={"x": _BFLOAT16}, outputs={"y": _BFLOAT16})
    with pytest.raises(BackendError, match=r"refused .*m\.onnx"):
        _open(path)


def test_failures_print_nothing_on_their_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BackendError):
        _open(_one_node(tmp_path / "bad.onnx", "Erfc"))
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    path = _save(
        tmp_path / "m.onnx",
        nodes,
        inputs={"x": _FLOAT},
        outputs={"y": _FLOAT},
        initializers={"shape": np.array([2, 3])},
    )
    with pytest.raises(BackendError, match=r"onnxruntime failed on x: float32\[1, 3\]: Non-zero status code"):
        _open(path).run({"x": _VECTOR})
    assert capfd.readouterr() == ("", "")


def test_bfloat16_goes_in_and_comes_out(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=_FLOAT),
        helper.make_node("Neg", ["wide"], ["negative"]),
        helper.make_node("Cast", ["negative"], ["y"], to=_BFLOAT16),
    ]
    runner = _open(_save(tmp_path / "m.onnx", nodes, inputs={"x": _BFLOAT16}, outputs={"y": _BFLOAT16}))
    found = runner.run({"x": _VECTOR.astype(ml_dtypes.bfloat16)})["y"]
    assert runner.signature.outputs[0].dtype == found.dtype.name == "bfloat16"
    assert found.shape == (1, 3)
    np.testing.assert_array_equal(found.astype(np.float32), -_VECTOR)
    found[:] = 0


def test_strings_go_in_and_come_out(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    kind = TensorProto.STRING
    runner = _open(_save(tmp_path / "m.onnx", nodes, inputs={"x": kind}, outputs={"y": kind}))
    for dtype in (np.str_, np.object_):
        words = np.array([["a", "가나", ""]], dtype=dtype)
        np.testing.assert_array_equal(runner.run({"x": words})["y"], words)


def test_an_output_that_is_a_weight_or_an_input_is_a_copy(tmp_path: Path) -> None:
    weights = np.array([[1, 2, 3]], dtype=np.float32)
    path = _save(
        tmp_path / "m.onnx",
        [helper.make_node("Add", ["x", "w"], ["y"]), helper.make_node("Identity", ["x"], ["same"])],
        inputs={"x": _FLOAT},
        outputs={"y": _FLOAT, "w": _FLOAT, "same": _FLOAT},
        initializers={"w": weights},
    )
    runner = _open(path)
    x = _VECTOR.copy()
    first = runner.run({"x": x})
    for array in first.values():
        array[:] = 100
    np.testing.assert_array_equal(x, _VECTOR)
    second = runner.run({"x": x})
    np.testing.assert_array_equal(second["w"], weights)
    np.testing.assert_array_equal(second["y"], _VECTOR + weights)


def test_lower_precision_on_the_cpu_says_so(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((3, 300)).astype(np.float16)
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["half", "w"], ["wide"]),
        helper.make_node("MatMul", ["wide", "back"], ["out"]),
        helper.make_node("Cast", ["out"], ["y"], to=_FLOAT),
    ]
    initializers = {"w": weights, "back": weights.T.copy()}
    path = _save(tmp_path / "m.onnx", nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT}, initializers=initializers)
    facts = _open(path).facts
    assert facts.precision_found is Precision.FP16
    assert any("float32" in note for note in facts.notes)


def test_weights_in_float32_that_were_rounded_are_no_lower_precision_of_the_graph(tmp_path: Path) -> None:
    wide = np.random.default_rng(0).standard_normal((3, 300)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["wide"]), helper.make_node("MatMul", ["wide", "back"], ["y"])]
    rounded = wide.astype(np.float16).astype(np.float32)
    for name, back in (("fp16", rounded), ("mixed", wide)):
        initializers = {"w": rounded, "back": back.T.copy()}
        path = _save(
            tmp_path / f"{name}.onnx", nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT}, initializers=initializers
        )
        facts = _open(path).facts
        assert facts.precision_found is Precision(name)
        assert not facts.notes


def test_a_name_to_be_renamed_must_be_in_the_model(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="'z' cannot be renamed 'logits' because the model has no such input or output"
    ):
        _open(_one_node(tmp_path / "m.onnx", "Relu"), rename={"z": "logits"})


@pytest.mark.skipif(gpu_of_machine() is not None, reason="says what happens where there is no GPU")
def test_cuda_without_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="the CUDA driver shows no GPU"):
        _open(_one_node(tmp_path / "m.onnx", "Relu"), device="cuda")


def test_a_build_without_the_provider_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this build of onnxruntime has CUDA")
    monkeypatch.setattr("paritygate.validate.runners.onnxruntime.device_name", lambda _: "cuda:sm90")
    with pytest.raises(MissingBackendError, match="has no CUDAExecutionProvider"):
        _open(_one_node(tmp_path / "m.onnx", "Relu"), device="cuda")


@pytest.mark.gpu
def test_cuda_runs_on_the_gpu_without_tf32(tmp_path: Path) -> None:
    facts = _open(_one_node(tmp_path / "m.onnx", "Relu"), device="cuda").facts
    assert facts.device.startswith("cuda:sm")
    assert facts.tf32 is False
