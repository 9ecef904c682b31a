"""`inspect` shows what a model is, within 80 columns, and says what cannot be known."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.engine.record import ENGINE_FILE, EngineRecord
from paritygate.engine.settings import EngineSettings, ProfileShapes
from paritygate.pipelines.inspecting.inspection import Inspection, Tensor
from paritygate.pipelines.report.terminal.inspection import inspection_lines
from paritygate.precision import Precision
from paritygate.signature import Dim, Signature, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Called, Desk

_NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return {"logits": self.linear(x).relu()}

def load():
    return Net()
"""


def _inspected(desk: Desk, *args: str) -> Called:
    called = desk.json("inspect", *args, "--quiet")
    assert called.code == 0, called
    assert max(map(len, called.out.splitlines())) <= 80
    return called


def _shapes(called: Called, side: str) -> dict[str, tuple[str, list[int | str]]]:
    return {item["name"]: (item["dtype"], item["shape"]) for item in called.data[side]}


def test_an_onnx_model_is_shown_with_its_tensors_operators_and_versions(desk: Desk) -> None:
    called = _inspected(desk, "model.onnx")

    assert called.out.startswith("model.onnx: ONNX\n  size        ")
    assert "  precision   fp32\n  opset       17\n  IR version  9\n" in called.out
    assert "    x  float32  [batch, 4]\n" in called.out
    assert "    output_0  float32  [batch, 3]\n" in called.out
    assert "  operators   1 of 1 kind: MatMul 1\n" in called.out
    assert "  not known   written by: the file does not say it\n" in called.out
    size = (desk.folder / "model.onnx").stat().st_size
    assert (called.data["kind"], called.data["size_bytes"], called.data["files"]) == ("onnx", size, 1)
    assert called.data["schema_version"] == 1


def test_json_on_standard_output_stands_alone(desk: Desk) -> None:
    called = desk.call("inspect", "model.onnx", "--quiet", "--json", "-")

    assert called.out.startswith("{")
    assert called.out.rstrip().endswith("}")


def test_a_model_that_is_not_there_is_said(desk: Desk) -> None:
    called = desk.call("inspect", "nothing.onnx", "--quiet")

    assert called.code == 2
    assert "nothing.onnx does not exist" in called.err


def _engine(folder: Path) -> None:
    shape = TensorSpec(name="x", dtype="float32", shape=("batch", 4))
    record = EngineRecord(
        library="tensorrt",
        version="10.9.0",
        precision=Precision.FP16,
        signature=Signature(inputs=(shape,), outputs=(shape,), dims={"batch": Dim(min=1, opt=8, max=64)}),
        profile={"x": ProfileShapes(min=(1, 4), opt=(8, 4), max=(64, 4))},
        tf32=False,
        settings=EngineSettings(),
        dtype_counts={"HALF": {"CONVOLUTION": 53}, "FLOAT": {"CONVOLUTION": 1, "CAST": 2}},
        built_on=None,
        targets="compute capability 8.9",
    )
    (folder / ENGINE_FILE).write_bytes(b"engine")
    record.save(folder / ENGINE_FILE)


def test_an_engine_is_shown_by_its_record(desk: Desk) -> None:
    _engine(desk.folder)

    called = _inspected(desk, ENGINE_FILE)

    assert called.out.startswith("model.plan: TensorRT engine\n")
    assert "  precision   fp16\n  tensorrt    10.9.0\n  runs on     compute capability 8.9\n" in called.out
    assert "  dim batch   1 to 64, usually 8\n" in called.out
    assert "  layers      56 of 2 kinds: CONVOLUTION 54, CAST 2\n" in called.out


@pytest.mark.torch
def test_a_module_says_names_alone_until_rows_are_given(desk: Desk) -> None:
    desk.module("net", _NET)

    alone = _inspected(desk, "net:load")
    seen = _inspected(desk, "net:load", "--samples", "inputs.npz")

    assert "    x  dtype not known, shape not known\n  outputs: not known\n" in alone.out
    assert "  not known   inputs and outputs: a PyTorch module does not declare them\n" in alone.out
    assert "hint: give rows that it answers, which show them: --samples FILE" in alone.err
    assert "  layers      1 of 1 kind: Linear 1\n" in alone.out
    assert alone.data["size_bytes"] == 4 * (4 * 3 + 3)
    assert "  inputs, as 120 rows of the samples show\n    x  float32  [batch, 4]\n" in seen.out
    assert _shapes(seen, "outputs") == {"logits": ("float32", ["batch", 3])}
    assert "hint" not in seen.err


@pytest.mark.torch
def test_lists_of_several_lengths_are_filled_up_to_look_at_a_module(desk: Desk) -> None:
    desk.module("net", "import torch\n\ndef load():\n    return torch.nn.Embedding(9, 4)\n")
    lines = ['{"input": [1, 2, 3]}', '{"input": [4]}', '{"input": [5, 6]}']
    (desk.folder / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")

    seen = _inspected(desk, "net:load", "--samples", "texts.jsonl")

    ((_, shape),) = _shapes(seen, "outputs").values()
    assert shape[-1] == 4


@pytest.mark.torch
def test_rows_that_a_module_does_not_answer_are_said(desk: Desk) -> None:
    desk.module("net", _NET)
    np.savez(desk.folder / "other.npz", x=np.zeros((8, 5), np.float32))

    called = desk.call("inspect", "net:load", "--samples", "other.npz", "--quiet")

    assert called.code == 5
    assert "the PyTorch module failed on x: float32[8, 5]" in called.err


@pytest.mark.torch
def test_files_of_pytorch_are_shown(desk: Desk) -> None:
    import torch

    module: dict[str, type[torch.nn.Module]] = {}
    exec(_NET, module)  # noqa: S102 - the text above
    net, rows = module["Net"]().eval(), (torch.ones(4, 4),)
    torch.jit.save(torch.jit.trace(net, rows, strict=False), str(desk.folder / "net.pt"))  # type: ignore[no-untyped-call]  # torch has no types
    program = torch.export.export(net, rows, dynamic_shapes={"x": {0: torch.export.Dim("n", min=1, max=64)}})
    torch.export.save(program, desk.folder / "net.pt2")

    script, exported = _inspected(desk, "net.pt"), _inspected(desk, "net.pt2")
    seen = _inspected(desk, "net.pt", "--samples", "inputs.npz")

    assert "    x  dtype not known, shape not known\n" in script.out
    assert "  operators   2 of 2 kinds: aten::linear 1, aten::relu 1\n" in script.out
    assert "a TorchScript file does not declare them" in script.out
    assert _shapes(seen, "outputs") == {"logits": ("float32", ["batch", 3])}
    assert _shapes(exported, "inputs") == {"x": ("float32", ["batch", 4])}
    assert "  dim batch   1 to 64, usually 64\n" in exported.out
    assert exported.data["counts"] == {"aten.linear.default": 1, "aten.relu.default": 1}


@pytest.mark.tensorflow
def test_models_of_tensorflow_are_shown(desk: Desk) -> None:
    import keras

    keras.utils.set_random_seed(0)
    x = keras.Input((4,), name="x")
    model = keras.Model(x, keras.layers.Dense(3, name="logits")(x))
    model.save(desk.folder / "net.keras")
    model.export(desk.folder / "saved", verbose=False)

    file, saved = _inspected(desk, "net.keras"), _inspected(desk, "saved")

    assert f"  written by  keras {keras.__version__}\n" in file.out
    assert "  layers      2 of 2 kinds: InputLayer 1, Dense 1\n" in file.out
    assert _shapes(file, "outputs") == {"logits": ("float32", ["batch", 3])}
    assert saved.data["signatures"] == ["serve", "serving_default"]
    assert _shapes(saved, "inputs") == {"x": ("float32", ["batch", 4])}
    assert saved.data["counts"]["MatMul"] == 1
    assert saved.data["precision"] == "fp32"
    assert saved.data["files"] > 1


@pytest.mark.tensorflow
def test_a_subclassed_keras_model_is_asked_with_rows(desk: Desk) -> None:
    desk.module(
        "net",
        """
        import keras

        class Net(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(3)

            def call(self, x):
                return {"logits": self.dense(x)}

        def load():
            keras.utils.set_random_seed(0)
            return Net()
        """,
    )

    seen = _inspected(desk, "net:load", "--samples", "inputs.npz")
    written = desk.call("init", "net:load", "--samples", "inputs.npz", "--out", "new.yaml", "--quiet")

    assert _shapes(seen, "inputs") == {"x": ("float32", ["batch", 4])}
    assert _shapes(seen, "outputs") == {"logits": ("float32", ["batch", 3])}
    assert written.code == 0, written
    assert "    logits: {dtype: float32, shape: [batch, 3]}\n" in (desk.folder / "new.yaml").read_text(encoding="utf-8")


@pytest.mark.openvino
def test_an_openvino_model_is_shown(desk: Desk) -> None:
    from paritygate.models.openvino.model import import_openvino

    openvino = import_openvino()
    openvino.save_model(openvino.convert_model(str(desk.folder / "model.onnx")), str(desk.folder / "net.xml"))

    called = _inspected(desk, "net.xml")

    assert _shapes(called, "inputs") == {"x": ("float32", ["batch", 4])}
    assert called.data["counts"]["MatMul"] == 1
    assert called.data["files"] == 2


@pytest.mark.tensorflow
@pytest.mark.litert
def test_a_tflite_model_is_shown(desk: Desk) -> None:
    import keras
    import tensorflow as tf

    x = keras.Input((4,), name="x")
    keras.Model(x, keras.layers.Dense(3, name="logits")(x)).export(desk.folder / "saved", verbose=False)
    content = tf.lite.TFLiteConverter.from_saved_model(str(desk.folder / "saved")).convert()
    (desk.folder / "net.tflite").write_bytes(content)

    called = _inspected(desk, "net.tflite")

    assert _shapes(called, "inputs") == {"x": ("float32", ["batch", 4])}
    assert called.data["counts"]["FULLY_CONNECTED"] == 1
    assert "  TFLite schema 3\n" in called.out


def test_long_names_and_many_operators_stay_within_the_screen() -> None:
    found = Inspection(
        model="model.onnx",
        kind="onnx",
        inputs=tuple(Tensor(name=f"an_input_of_some_length_{at}\n", dtype="int64", shape=(None, 4)) for at in range(3)),
        counts={f"Operator{at}": 100 - at for at in range(40)},
    )

    lines = list(inspection_lines(found))

    assert max(map(len, lines)) <= 80
    assert r"    an_input_of_some_length_0\n  int64    [?, 4]" in lines
    assert "  outputs: not known" in lines
    assert "  size        not known" in lines
    assert any("and 30 other kinds" in line for line in lines)


@pytest.mark.children
@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("import json\nimport absent_framework\n", 2, "net.py:2 needs the module 'absent_framework'"),
        ("def load():\n    import absent_framework\n", 2, "net.py:2 needs the module 'absent_framework'"),
        ("\ndef load(:\n", 2, "net.py:2 is wrong"),
        ("1 / 0\n", 5, "(net.py:1)"),
    ],
)
def test_code_that_cannot_be_loaded_is_named_and_leaves_no_folder(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, text: str, code: int, place: str
) -> None:
    temporary = desk.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    desk.module("net", text)

    called = desk.call("inspect", "net:load", "--samples", "inputs.npz")

    assert called.code == code, called
    assert place in " ".join(called.err.split())
    assert str(temporary) not in called.err
    assert list(temporary.iterdir()) == []
