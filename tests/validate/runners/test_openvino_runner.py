"""What is particular to OpenVINO: the precision that it is compiled for, settings beside the files, names, copies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.backends import install_command
from paritygate.errors import BackendError, InputFileError, MissingBackendError, NotRunHereError, UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.openvino.model import import_openvino, openvino_version
from paritygate.models.openvino.settings import is_capable
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.validate.runners.openvino import OpenvinoRunner, open_model

pytestmark = pytest.mark.openvino

_RANDOM = np.random.default_rng(3)
_WEIGHTS = _RANDOM.standard_normal((32, 32)).astype(np.float32)
_X = _RANDOM.standard_normal((4, 32)).astype(np.float32)
_BF16_SPREAD = 2.0**-8


@pytest.fixture
def bf16() -> None:
    """Skip where the CPU does not compute in bf16."""
    if not is_capable("bf16"):
        pytest.skip("this CPU does not compute in bf16")


def _ops() -> Any:  # noqa: ANN401 - a module without types
    import_openvino()
    from openvino import opset13

    return opset13


def _save(path: Path, output: Any, *inputs: Any, names: dict[int, set[str]] | None = None) -> Path:  # noqa: ANN401
    """Save the model of one output or a list of them, with the names of each output."""
    openvino = import_openvino()
    outputs = output if isinstance(output, list) else [output]
    model = openvino.Model(outputs, list(inputs), "net")
    for index, wanted in (names or {0: {"y"}}).items():
        model.outputs[index].get_tensor().set_names(wanted)
    openvino.save_model(model, str(path), compress_to_fp16=False)
    return path


def _input(name: str, *shape: Any, kind: str = "f32") -> Any:  # noqa: ANN401
    openvino = import_openvino()
    return _ops().parameter(openvino.PartialShape(list(shape)), getattr(openvino.Type, kind), name=name)


def _linear(path: Path, weights: NDArray[Any] = _WEIGHTS) -> Path:
    x = _input("x", -1, 32)
    ops = _ops()
    matrix = ops.constant(weights)
    if weights.dtype != np.float32:
        matrix = ops.multiply(ops.convert(matrix, "f32"), ops.constant(np.float32(1 / 64)))
    return _save(path, ops.matmul(x, matrix, False, False), x)  # noqa: FBT003 - transpose neither


def _set(path: Path, **properties: Any) -> Path:  # noqa: ANN401 - texts and numbers
    path.with_suffix(".config.json").write_text(json.dumps({"CPU": properties}))
    return path


def _open(path: Path, **options: Any) -> OpenvinoRunner:  # noqa: ANN401 - fields of LoadedModel
    rename = options.pop("rename", {})
    source = ModelRef(text=path.name, folder=path.parent, kind=SourceKind.OPENVINO, rename=rename)
    return open_model(LoadedModel(ref=source, **options))


def test_without_settings_it_is_compiled_for_f32_and_says_so(tmp_path: Path) -> None:
    runner = _open(_linear(tmp_path / "m.xml"))
    facts = runner.facts
    assert (facts.runtime, facts.version, facts.device) == ("openvino", openvino_version(), "cpu")
    assert (facts.precision_found, facts.tf32, facts.optimisation) == (Precision.FP32, None, "performance, f32")
    assert "it has no settings file (m.config.json) and was compiled for f32" in facts.notes[0]
    np.testing.assert_allclose(runner.run({"x": _X})["y"], _X @ _WEIGHTS, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("bf16")
def test_with_bf16_in_its_settings_it_is_computed_in_bf16_and_says_so(tmp_path: Path) -> None:
    runner = _open(_set(_linear(tmp_path / "m.xml"), INFERENCE_PRECISION_HINT="bf16"))
    assert (runner.facts.precision_found, runner.facts.optimisation) == (Precision.BF16, "performance, bf16")
    assert runner.facts.notes == ("OpenVINO runs its operators in these precisions: 1 in bf16",)
    found = runner.run({"x": _X})["y"]
    low = _X.astype(ml_dtypes.bfloat16).astype(np.float64) @ _WEIGHTS.astype(ml_dtypes.bfloat16).astype(np.float64)
    # Inputs and weights are rounded, sums are not, and the answer is rounded once.
    assert np.abs(found - low).max() <= _BF16_SPREAD * np.abs(low).max()
    assert np.abs(found - _X @ _WEIGHTS).max() > 1e-3


@pytest.mark.usefixtures("bf16")
def test_a_hint_that_no_operator_follows_is_not_the_precision_found(tmp_path: Path) -> None:
    x = _input("x", -1, kind="i32")
    path = _save(tmp_path / "m.xml", _ops().add(x, x), x)
    facts = _open(_set(path, INFERENCE_PRECISION_HINT="bf16")).facts
    assert facts.precision_found is Precision.FP32
    assert facts.notes == ("OpenVINO runs its operators in these precisions: none",)


@pytest.mark.parametrize("hint", ["f16", "f64"])
def test_a_precision_that_this_cpu_does_not_compute_in_is_refused(tmp_path: Path, hint: str) -> None:
    if is_capable(hint):
        pytest.skip(f"this CPU computes in {hint}")
    path = _set(_linear(tmp_path / "m.xml"), INFERENCE_PRECISION_HINT=hint)
    message = "request f16, in which this CPU .* cannot compute" if hint == "f16" else "Wrong value f64"
    with pytest.raises(NotRunHereError if hint == "f16" else BackendError, match=message) as raised:
        _open(path)
    assert raised.value.hint


def test_a_hint_by_which_openvino_is_to_choose_itself_is_refused(tmp_path: Path) -> None:
    path = _set(_linear(tmp_path / "m.xml"), INFERENCE_PRECISION_HINT="undefined")
    with pytest.raises(BackendError, match="compiled for undefined, but OpenVINO runs it in"):
        _open(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "does not hold properties of the device CPU"),
        ('{"GPU": {}}', "does not hold properties of the device CPU"),
        ('{"CPU": {"INFERENCE_PRECISION_HINT": ["bf16"]}}', "does not hold properties of the device CPU"),
        ('{"CPU": {"CACHE_DIR": "/tmp"}}', r"sets the property 'CACHE_DIR' \(allowed: INFERENCE_PRECISION_HINT, "),
    ],
)
def test_settings_of_another_form_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = _linear(tmp_path / "m.xml")
    path.with_suffix(".config.json").write_text(content)
    with pytest.raises(InputFileError, match=message) as raised:
        _open(path)
    assert raised.value.hint


def test_settings_that_openvino_refuses_are_a_backend_error(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="does not compile the model: Could not read number of streams"):
        _open(_set(_linear(tmp_path / "m.xml"), NUM_STREAMS="many"))


def test_the_execution_mode_is_read_back(tmp_path: Path) -> None:
    facts = _open(_set(_linear(tmp_path / "m.xml"), EXECUTION_MODE_HINT="ACCURACY", NUM_STREAMS=1)).facts
    assert (facts.optimisation, facts.notes) == ("accuracy, f32", ())


def test_quantized_models_and_weights_of_integers_are_found_to_be_int8(tmp_path: Path) -> None:
    ops = _ops()
    x = _input("x", -1, 32)
    ends = [ops.constant(np.float32(value)) for value in (-3, 3, -3, 3)]
    inner, matrix = ops.fake_quantize(x, *ends, 256), ops.fake_quantize(ops.constant(_WEIGHTS), *ends, 255)
    integers = ops.matmul(inner, matrix, False, False)  # noqa: FBT003
    floats = ops.matmul(ops.exp(integers), ops.constant(_WEIGHTS), False, False)  # noqa: FBT003
    quantized = _save(tmp_path / "q.xml", floats, x)
    facts = _open(quantized).facts
    assert facts.precision_found is Precision.INT8
    assert any("in u8" in note or "in i8" in note for note in facts.notes)
    if is_capable("bf16"):
        assert _open(_set(quantized, INFERENCE_PRECISION_HINT="bf16")).facts.precision_found is Precision.INT8
    compressed = _linear(tmp_path / "c.xml", _RANDOM.integers(-99, 99, (32, 32)).astype(np.int8))
    assert _open(compressed).facts.precision_found is Precision.INT8


def test_a_table_of_small_integers_is_no_quantized_model(tmp_path: Path) -> None:
    ops = _ops()
    x = _input("x", -1, kind="i64")
    table = ops.constant(np.arange(200, dtype=np.uint8))
    runner = _open(_save(tmp_path / "m.xml", ops.gather(table, x, ops.constant(0)), x))
    assert runner.facts.precision_found is Precision.FP32
    assert runner.run({"x": np.array([199, 3])})["y"].tolist() == [199, 3]


def test_weights_that_were_saved_in_float16_are_found(tmp_path: Path) -> None:
    openvino = import_openvino()
    model = openvino.Core().read_model(str(_linear(tmp_path / "m.xml")))
    openvino.save_model(model, str(tmp_path / "half.xml"), compress_to_fp16=True)
    facts = _open(tmp_path / "half.xml").facts
    assert (facts.precision_found, facts.optimisation) == (Precision.FP16, "performance, f32")
    assert "its weights are of precision fp16" in facts.notes


@pytest.mark.parametrize("content", ["", "a text", "<net", "<html><body/></html>"])
def test_a_file_that_is_no_openvino_model_is_an_input_file_error(
    tmp_path: Path, content: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.xml").write_text(content)
    with pytest.raises(InputFileError, match=r"m\.xml is not an OpenVINO model: ") as raised:
        _open(tmp_path / "m.xml")
    assert raised.value.hint
    assert capfd.readouterr() == ("", "")


def test_weights_that_are_missing_or_cut_off_are_refused(tmp_path: Path) -> None:
    path = _linear(tmp_path / "m.xml")
    (tmp_path / "m.bin").write_bytes(b"1234")
    with pytest.raises(InputFileError, match=r"Incorrect weights in bin file! \(the weights beside it are m\.bin, 4 b"):
        _open(path)
    (tmp_path / "m.bin").unlink()
    with pytest.raises(InputFileError, match=r"m\.bin, which is missing"):
        _open(path)
    with pytest.raises(InputFileError, match=r"n\.xml does not exist"):
        _open(tmp_path / "n.xml")


def test_another_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="OpenVINO models are run on the cpu, not on 'cuda'"):
        _open(_linear(tmp_path / "m.xml"), device="cuda")


def test_without_openvino_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paritygate.backends.importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingBackendError, match="openvino is needed") as raised:
        _open(tmp_path / "m.xml")
    assert raised.value.hint == install_command("openvino")


def test_a_tensor_of_several_names_is_renamed_by_any_of_them(tmp_path: Path) -> None:
    x = _input("x", -1, 3)
    path = _save(tmp_path / "m.xml", _ops().negative(x), x, names={0: {"b", "a", "c"}})
    assert [spec.name for spec in _open(path).signature.outputs] == ["a"]
    ones = np.ones((1, 3), np.float32)
    assert set(_open(path, rename={"c": "logits"}).run({"x": ones})) == {"logits"}
    with pytest.raises(
        UsageError, match="'z' cannot be renamed 'logits' because the model has no such input or output"
    ):
        _open(path, rename={"z": "logits"})


def test_outputs_without_names_are_called_by_their_nodes(tmp_path: Path) -> None:
    ops = _ops()
    x = _input("x", -1, 4)
    parts = ops.split(x, ops.constant(1), 2, name="halves")
    total = ops.reduce_sum(x, ops.constant([1]), name="total")
    path = _save(tmp_path / "m.xml", [*parts.outputs(), total.output(0)], x, names={0: set(), 1: set(), 2: set()})
    found = _open(path).run({"x": np.array([[1, 2, 3, 4]], np.float32)})
    assert {name: array.tolist() for name, array in found.items()} == {
        "halves.0": [[1, 2]],
        "halves.1": [[3, 4]],
        "total": [10],
    }


def test_bounds_of_dims_are_kept_to_with_a_clear_error(tmp_path: Path) -> None:
    openvino = import_openvino()
    x = _input("x", openvino.Dimension(1, 2), 3)
    runner = _open(_save(tmp_path / "m.xml", _ops().relu(x), x))
    assert runner.signature.inputs[0].shape == ("batch", 3)
    with pytest.raises(BackendError, match=r"OpenVINO failed on x: float32\[5, 3\]: ") as raised:
        runner.run({"x": np.ones((5, 3), np.float32)})
    assert "\n" not in str(raised.value)
    assert runner.run({"x": np.ones((2, 3), np.float32)})["y"].shape == (2, 3)


def test_models_opened_together_do_not_disturb_each_other(tmp_path: Path) -> None:
    first, other = _linear(tmp_path / "a.xml"), _linear(tmp_path / "b.xml", _WEIGHTS[::-1].copy())
    runners = [_open(first), _open(other), _open(first)]
    for rows in (4, 1, 3):
        answers = [runner.run({"x": _X[:rows]})["y"] for runner in runners]
        np.testing.assert_array_equal(answers[0], answers[2])
        np.testing.assert_allclose(answers[1], _X[:rows] @ _WEIGHTS[::-1], rtol=1e-4, atol=1e-5)


def test_an_output_that_is_an_input_or_a_weight_is_a_copy(tmp_path: Path) -> None:
    ops = _ops()
    x = _input("x", -1, 3)
    weight = ops.constant(np.array([[1, 2, 3]], np.float32))
    path = _save(tmp_path / "m.xml", [x, weight, ops.add(x, weight)], x, names={0: {"x"}, 1: {"w"}, 2: {"y"}})
    runner = _open(path)
    given = np.array([[1.5, -2.0, 3.25]], np.float32)
    for array in runner.run({"x": given}).values():
        array[:] = 100
    np.testing.assert_array_equal(given, [[1.5, -2.0, 3.25]])
    again = runner.run({"x": given})
    np.testing.assert_array_equal(again["x"], given)
    np.testing.assert_array_equal(again["w"], [[1, 2, 3]])
    np.testing.assert_array_equal(again["y"], [[2.5, 0.0, 6.25]])


def test_answers_stay_as_they_are_when_the_next_batch_is_run(tmp_path: Path) -> None:
    runner = _open(_linear(tmp_path / "m.xml"))
    first = runner.run({"x": _X})["y"]
    before = first.copy()
    runner.run({"x": -_X})
    np.testing.assert_array_equal(first, before)


@pytest.mark.parametrize(
    "inputs",
    [{}, {"x": _X, "z": _X}, {"z": _X}, {"x": _X.astype(np.float64)}, {"x": _X[0]}, {"x": _X[:, :31]}],
    ids=["none", "one too many", "another name", "dtype", "rank", "size"],
)
def test_inputs_that_the_model_does_not_take_are_refused(tmp_path: Path, inputs: dict[str, NDArray[Any]]) -> None:
    runner = _open(_linear(tmp_path / "m.xml"))
    with pytest.raises(BackendError, match=r"^the model expects .* \(got .*\)$") as raised:
        runner.run(inputs)
    assert raised.value.hint


def test_bfloat16_goes_in_and_comes_out(tmp_path: Path) -> None:
    x = _input("x", -1, 3, kind="bf16")
    runner = _open(_save(tmp_path / "m.xml", _ops().negative(x), x))
    given = np.array([[1.5, -2.0, 3.25]]).astype(ml_dtypes.bfloat16)
    found = runner.run({"x": given})["y"]
    assert runner.signature.outputs[0].dtype == found.dtype.name == "bfloat16"
    np.testing.assert_array_equal(found.astype(np.float32), [[-1.5, 2.0, -3.25]])
    found[:] = 0


def test_an_empty_batch_is_answered(tmp_path: Path) -> None:
    assert _open(_linear(tmp_path / "m.xml")).run({"x": _X[:0]})["y"].shape == (0, 32)


def test_strings_are_refused_before_they_crash_the_process(tmp_path: Path) -> None:
    x = _input("x", -1, kind="string")
    path = _save(tmp_path / "m.xml", x, x)
    with pytest.raises(BackendError, match="has OpenVINO's type string, which is not supported"):
        _open(path)


def test_opening_and_running_leaves_nothing_behind_and_reports_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "model").mkdir()
    _linear(tmp_path / "model" / "m.xml")
    before = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
    code = (
        "import sys; import numpy as np; from pathlib import Path\n"
        "from paritygate.models.source import ModelRef, SourceKind\n"
        "from paritygate.models.loading import LoadedModel\n"
        "from paritygate.validate.runners.opening import open_runner\n"
        "source = ModelRef(text='m.xml', folder=Path('model'), kind=SourceKind.OPENVINO)\n"
        "open_runner(LoadedModel(ref=source)).run({'x': np.ones((2, 32), np.float32)})\n"
        "assert not [name for name in sys.modules if name.startswith('openvino_telemetry.')]\n"
    )
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    # The telemetry of OpenVINO keeps still by itself where a variable says that this is a build machine.
    for name in ("CI", "TF_BUILD", "JENKINS_URL"):
        environment.pop(name, None)
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*")} == before
