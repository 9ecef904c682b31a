"""Runs from trained PyTorch and Keras models: what passes, what does not, what is released then."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from paritygate.models.source import SourceKind
from paritygate.models.source_copy import read_source_copy
from paritygate.pipelines.report.terminal.made import print_failures
from paritygate.pipelines.run.workspace import FailedVariant, new_run, open_run
from paritygate.pipelines.run_spec import exit_code_of_run
from paritygate.pipelines.spec.loading import load_spec_to_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Called, Desk

_NET = """
import pathlib

import torch

import layers

_WEIGHTS = pathlib.Path(__file__).with_name("weights.bin")


class Net(torch.nn.Module):
    def __init__(self, before=lambda x: x, after=lambda x: x):
        super().__init__()
        torch.manual_seed(0)
        self.dropout = torch.nn.Dropout(0.5)
        self.linear = layers.linear(int.from_bytes(_WEIGHTS.read_bytes(), "big"))
        self.before, self.after = before, after

    def forward(self, x):
        scores = self.after(self.linear(self.dropout(self.before(x))))
        return {"hidden": scores * 2, "scores": scores}


def in_train_mode():
    return Net().train()


def with_dropout_at_inference():
    return Net(before=lambda x: torch.nn.functional.dropout(x, 0.5, training=True))


def other_when_exported():
    return Net(after=lambda x: x + 0.01 if torch.compiler.is_exporting() or torch.jit.is_tracing() else x)


def aborting_when_exported():
    import os

    return Net(after=lambda x: os.abort() if torch.compiler.is_exporting() else x)


def with_an_operator_that_onnx_lacks():
    return Net(after=lambda x: x + torch.linalg.svdvals(x.unsqueeze(-1) * torch.ones(3)).sum(-1, keepdim=True))
"""
_LAYERS = """
import torch


def linear(width):
    return torch.nn.Linear(4, width)
"""


def _torch_desk(desk: Desk, factory: str, **parts: object) -> Desk:
    desk.module("net", _NET)
    desk.module("layers", _LAYERS)
    (desk.folder / "weights.bin").write_bytes(b"\x03")
    model = {
        "name": "tiny",
        "source": f"net:{factory}",
        "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
        "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 3]}},
        "rename": {"scores": "logits"},
        "dims": {"batch": {"min": 1, "opt": 8, "max": 64}},
        "files": ["weights.bin"],
    }
    desk.spec(**{"model": model, **parts})
    return desk


def _tool_desk(folder: Path, finished: Desk) -> Desk:
    """Return a desk with the samples of another, and no run."""
    (folder / "inputs.npz").write_bytes((finished.folder / "inputs.npz").read_bytes())
    return type(finished)(folder=folder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, finished: Desk) -> tuple[Desk, Called]:
    """Return the desk and the run of a module in train mode that returns a dict."""
    desk = _torch_desk(_tool_desk(tmp_path_factory.mktemp("trained"), finished), "in_train_mode")
    return desk, desk.json("run", "--verbose", "spec.yaml")


@pytest.mark.torch
def test_a_module_in_train_mode_passes_and_the_run_says_so(trained: tuple[Desk, Called]) -> None:
    desk, called = trained

    assert called.code == 0, str(called)
    assert desk.releases == ["tiny/1"]
    (entry,) = desk.evidence()["variants"]
    said = "was in train mode"
    assert any(said in note and "was put into eval mode" in note for note in entry["result"]["notes"]), entry["result"][
        "notes"
    ]
    assert said in called.out
    assert said in (desk.run_folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.torch
def test_outputs_of_a_dict_are_renamed_and_those_not_declared_left_out(trained: tuple[Desk, Called]) -> None:
    desk, called = trained

    result = called.data["runs"][0]["variants"]["onnx-fp32"]
    assert list(result["outputs"]) == ["logits"]
    record = json.loads((desk.run_folder / "onnx-fp32/artifact.json").read_text(encoding="utf-8"))
    assert [item["name"] for item in record["signature"]["outputs"]] == ["logits"]
    assert any("hidden" in note for note in record["made_by"]["notes"])


@pytest.mark.torch
def test_the_code_and_the_files_of_a_module_are_recorded(trained: tuple[Desk, Called]) -> None:
    desk, called = trained

    model = desk.evidence()["reference"]["model"]
    assert set(model["files"]) == {"layers.py", "net.py", "weights.bin"}
    assert model["executes_code"] is True
    assert model["digest"].startswith("sha256:")
    assert "executes code of its author" in called.out


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, finished: Desk) -> tuple[Desk, Called]:
    """Return the desk and the run of a module that answers otherwise whatever exports it; without fallback."""
    folder = tmp_path_factory.mktemp("failed")
    desk = _torch_desk(_tool_desk(folder, finished), "other_when_exported", promote={"fallback": "none"})
    return desk, desk.json("run", "--verbose", "spec.yaml")


@pytest.mark.torch
def test_a_candidate_that_answers_otherwise_fails_and_is_not_released(failed: tuple[Desk, Called]) -> None:
    desk, called = failed

    assert called.code == called.data["exit_code"] == 1, str(called)
    result = called.data["runs"][0]["variants"]["onnx-fp32"]
    assert result["verdict"] == "fail"
    assert result["outputs"]["logits"]["max_abs_diff"] == pytest.approx(0.01, rel=1e-3)
    assert "onnx-fp32: fail: max_abs_diff[logits]: " in called.out
    assert called.data["runs"][0]["not_released"] == (
        "required and not passed: onnx-fp32 (fail); so nothing is released, and alias prod is neither set nor moved"
    )
    assert desk.releases == []


@pytest.mark.torch
def test_where_every_candidate_fails_the_source_is_released_with_the_reason(
    failed: tuple[Desk, Called], tmp_path: Path
) -> None:
    desk = failed[0].copy(tmp_path)
    path = desk.run_folder / "spec.json"
    text = path.read_text(encoding="utf-8")
    assert text.count('"fallback": "none"') == 1
    text = text.replace('"fallback": "none"', '"fallback": "source"').replace('"required": null', '"required": []')
    path.write_text(text, encoding="utf-8")

    called = desk.json("promote", "--verbose", "--run", str(desk.run_folder))

    assert called.code == 0, str(called)
    assert called.data["variants"] == ["source"]
    assert called.data["reason"] == "fallback: source, because no converted variant passed for cpu (onnx-fp32: fail)"
    source = desk.folder / "artifacts/repository/store/tiny/1/source"
    for name in ("net.py", "layers.py", "weights.bin"):
        assert (source / "code" / name).read_bytes() == (desk.folder / name).read_bytes()
    said = read_source_copy(source)
    assert (said.text, said.kind) == ("net:other_when_exported", SourceKind.TORCH)
    assert set(said.files) == {"net.py", "layers.py", "weights.bin"}
    assert desk.call("verify", "tiny", "prod").code == 0


@pytest.mark.torch
def test_a_model_that_keeps_dropout_active_at_inference_is_refused(desk: Desk) -> None:
    _torch_desk(desk, "with_dropout_at_inference")
    # Not by `run`, which would export it first: what is refused is the reference.
    run = new_run(load_spec_to_run(str(desk.folder / "spec.yaml")), root=desk.folder / "artifacts")

    called = desk.call("record", "--run", str(run.folder))

    assert called.code == 5, str(called)
    assert called.err.splitlines()[-2].startswith("error: the reference is refused: ")
    assert "dropout" in called.err
    assert not run.reference.exists()
    assert desk.call("validate", "--verbose", "--run", str(run.folder)).code == 2
    assert desk.call("promote", "--verbose", "--run", str(run.folder)).code == 2
    assert desk.releases == []


@pytest.mark.thorough
@pytest.mark.children
@pytest.mark.torch
def test_a_converter_that_crashes_is_no_reason_to_release_anything(desk: Desk) -> None:
    called = _torch_desk(desk, "aborting_when_exported").json("run", "--verbose", "spec.yaml")

    assert called.code == 4, str(called)
    (run,) = called.data["runs"]
    assert "was killed by SIGABRT while converting torch to onnx" in run["failures"]["onnx-fp32"]["message"]
    assert run["variants"] == {"onnx-fp32": None}
    (row,) = [line for line in called.out.splitlines() if line.startswith("onnx-fp32  ")]
    assert row.split()[-1] == "error"
    assert run["release"] is None
    assert "required and not passed: onnx-fp32 (error)" in run["not_released"]
    (entry,) = desk.evidence()["variants"]
    assert (entry["exit_code"], entry["evidence"], entry["artifact"]) == (4, "none", None)


@pytest.mark.torch
def test_a_hint_that_stands_beside_its_operator_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    rows = (("FlexX", "a node", "is none of TFLite's own", "replace it"),)
    failed = FailedVariant(
        variant="tflite-fp32", message="it is refused", hint="replace it", exit_code=5, operators=rows
    )

    print_failures(
        {"tflite-fp32": failed, "onnx-fp32": replace(failed, operators=(), hint="name another")}, is_verbose=False
    )

    assert capsys.readouterr().err == (
        "error: tflite-fp32: it is refused\n  FlexX  at a node: is none of TFLite's own  (replace it)\n"
        "error: onnx-fp32: it is refused\nhint: name another\n"
    )


@pytest.mark.thorough
def test_unsupported_operators_come_as_a_table(desk: Desk) -> None:
    called = _torch_desk(desk, "with_an_operator_that_onnx_lacks").json("export", "--verbose", "spec.yaml")

    assert called.code == 4, str(called)
    ((operator, node, reason, _),) = called.data["failures"]["onnx-fp32"]["operators"]
    assert "svd" in operator
    assert f"  {operator}  at {node}: {reason}" in called.err
    assert "Traceback" not in called.err


_KERAS = """
import json
import os
import pathlib
import sys


def model():
    job = json.loads(pathlib.Path(sys.argv[1]).read_text())
    if job["args"].get("format") == "savedmodel":
        os.abort()
    import keras

    keras.utils.set_random_seed(0)
    x = keras.Input((4,), name="x")
    return keras.Model(x, keras.layers.Dense(3, name="logits")(x))
"""


@pytest.mark.children
@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.thorough
def test_an_optional_variant_that_crashes_is_reported_and_the_other_released(desk: Desk) -> None:
    desk.module("net", _KERAS)
    desk.module_spec("net:model", targets=["savedmodel-fp32", "onnx-fp32"], required=["onnx-fp32"])

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == 0, str(called)
    (run,) = called.data["runs"]
    assert "error: savedmodel-fp32: the conversion of tiny to savedmodel-fp32 was killed by SIGABRT" in called.err
    assert run["required"] == ["onnx-fp32"]
    assert run["variants"]["onnx-fp32"]["verdict"] == "pass"
    assert run["release"]["variants"] == ["onnx-fp32"]
    assert [entry["verdict"] for entry in desk.evidence()["variants"]] == ["error", "pass"]
    # Were it required, its code would be that of the run.
    folder = desk.run_folder
    (folder / "spec.json").write_text(
        (folder / "spec.json")
        .read_text(encoding="utf-8")
        .replace('"required": [\n      "onnx-fp32"\n    ]', '"required": null')
    )
    again = open_run(folder)
    evidence = again.evidence()
    assert evidence is not None
    entry = evidence.entry("onnx-fp32")
    assert entry is not None
    result = entry.result
    assert result is not None
    assert exit_code_of_run(again, {"onnx-fp32": result}, again.failures()) == 4
