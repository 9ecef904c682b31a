"""Targets that cannot be had: a package is missing, a format lacks the precision, the source or the rows do not fit."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.backends import install_command
from paritygate.pipelines.spec.schema import AVAILABLE_TARGETS
from paritygate.text import nearest_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.pipelines.conftest import Desk

# Imported by every Python that finds it on its path: what it hides is for that process not installed.
_HIDING = """
import importlib.machinery
import os

hidden = set(os.environ["HIDDEN_MODULES"].split(","))
find_spec = importlib.machinery.PathFinder.find_spec


def find_what_is_left(name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else find_spec(name, path, target)


importlib.machinery.PathFinder.find_spec = staticmethod(find_what_is_left)
"""
_TORCH = """
import torch


def model():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3).eval()
"""
_DECLARED: dict[str, Any] = {
    "name": "tiny",
    "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
    "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 3]}},
    "dims": {"batch": {"min": 1, "opt": 8, "max": 64}},
}


def _declared(source: str) -> dict[str, Any]:
    return {**_DECLARED, "source": source}


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a command said where packages were hidden."""

    code: int
    err: str

    def check(self, package: str, *, extra: str, module: str | None = None) -> None:
        """Check that code, message and hint are those of a missing package, `module` where it has another name."""
        missing = module or package
        assert self.code == 5, self.err
        # A long line goes on indented.
        said = self.err.replace("\n  ", " ")
        assert f"{package} is needed to " in said
        assert f"is not available: the module '{missing}' is not installed\nhint: {install_command(extra)}\n" in said
        assert "Traceback" not in self.err


def _call_without(desk: Desk, hidden: str, *args: str) -> Said:
    """Call a command in a process for which the modules are not installed, nor for the processes that it starts."""
    place = desk.folder / "hiding"
    place.mkdir()
    (place / "sitecustomize.py").write_text(_HIDING, encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "paritygate", *args],
        cwd=desk.folder,
        env={**os.environ, "PYTHONPATH": path, "HIDDEN_MODULES": hidden},
        capture_output=True,
        text=True,
        check=False,
    )
    return Said(code=done.returncode, err=done.stderr)


def test_a_required_target_whose_package_is_missing_is_not_measured_and_nothing_is_released(desk: Desk) -> None:
    desk.spec(targets=["openvino-fp32", "onnx-fp32"], required=["openvino-fp32"])

    said = _call_without(desk, "openvino", "run", "spec.yaml", "--quiet")

    said.check("openvino", extra="openvino")
    assert said.err.startswith("error: openvino-fp32: openvino is needed to ")
    assert desk.releases == []
    assert {entry["variant"]: entry["verdict"] for entry in desk.evidence()["variants"]} == {
        "openvino-fp32": "error",
        "onnx-fp32": "pass",
    }


@pytest.mark.thorough
def test_a_target_whose_package_is_missing_is_not_required_of_itself(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", "openvino-fp32"])

    said = _call_without(desk, "openvino", "run", "spec.yaml", "--quiet")

    # Nor does hiding a package change anything for another target.
    assert said.code == 0, said.err
    assert f"hint: {install_command('openvino')}" in said.err


@pytest.mark.openvino
@pytest.mark.thorough
def test_the_tool_that_quantizes_may_be_missing(desk: Desk) -> None:
    desk.spec(targets=["onnx-int8", "openvino-int8"], calibration={"tool": "nncf"})

    said = _call_without(desk, "nncf", "export", "spec.yaml", "--quiet")

    said.check("nncf", extra="nncf")
    for target in ("onnx-int8", "openvino-int8"):
        assert f"error: {target}: nncf is needed to quantize to INT8" in said.err


@pytest.mark.parametrize(
    ("name", "package", "module", "extra"),
    [
        ("candidate.onnx", "onnxruntime", "onnxruntime", "cpu"),
        ("candidate.xml", "openvino", "openvino", "openvino"),
        ("candidate.pt", "torch", "torch", "torch"),
        ("candidate.pt2", "torch", "torch", "torch"),
        ("candidate.tflite", "litert", "ai_edge_litert", "litert"),
        ("candidate", "tensorflow", "tensorflow", "tensorflow"),
    ],
)
def test_a_candidate_whose_runtime_is_missing_is_not_measured(
    desk: Desk, name: str, package: str, module: str, extra: str
) -> None:
    # What is in them is never looked at, but for the kinds that are archives.
    if name == "candidate":
        (desk.folder / name).mkdir()
        (desk.folder / name / "saved_model.pb").touch()
    elif name == "candidate.onnx":
        desk.onnx(name, output="y")
    else:
        with zipfile.ZipFile(desk.folder / name, "w"):
            pass
    np.savez(desk.folder / "expected.npz", y=np.random.default_rng(0).standard_normal((120, 3)).astype(np.float32))

    said = _call_without(desk, module, "compare", "expected.npz", name, "--samples", "inputs.npz", "--quiet")

    said.check(package, module=module, extra=extra)


@pytest.mark.torch
@pytest.mark.thorough
def test_an_exporter_that_is_missing_is_named_beside_the_framework_that_is_there(desk: Desk) -> None:
    desk.module("net", _TORCH)
    desk.spec(model=_declared("net:model"))

    _call_without(desk, "onnxscript", "export", "spec.yaml", "--quiet").check("onnxscript", extra="torch")


@pytest.mark.torch
def test_a_framework_that_the_source_imports_is_named_with_its_extra(desk: Desk) -> None:
    desk.module("net", _TORCH)
    desk.spec(model=_declared("net:model"))

    _call_without(desk, "torch", "run", "spec.yaml", "--quiet").check("torch", extra="torch")


@pytest.mark.parametrize(
    "target",
    [
        *("torchscript-fp16", "pt2-bf16", "torch-int8", "tflite-bf16", "openvino-fp16", "savedmodel-int8"),
        *("onnx-tf32", "tflite-mixed", "coreml-fp32"),
    ],
)
def test_a_precision_that_a_format_does_not_have_is_refused_with_what_there_is(desk: Desk, target: str) -> None:
    called = desk.call("run", "--verbose", desk.spec(targets=["onnx-fp32", target]))

    assert called.code == 2
    start = f"error: spec spec.yaml: target {target!r} is not available (available: "
    assert called.err.startswith(start)
    available = called.err.removeprefix(start).partition(")")[0].split(", ")
    assert sorted(available) == sorted(map(str, AVAILABLE_TARGETS))
    assert available[0] == nearest_first(target, map(str, AVAILABLE_TARGETS))[0]
    assert "\nhint: " in called.err
    assert not (desk.folder / "artifacts").exists()


@pytest.mark.parametrize("target", ["tflite-fp32", "tflite-int8", "savedmodel-fp32", "torch-fp32", "pt2-fp32"])
def test_a_format_that_cannot_be_made_of_an_onnx_model_is_refused(desk: Desk, target: str) -> None:
    called = desk.call("run", "--verbose", desk.spec(targets=[target]))

    assert called.code == 2, str(called)
    assert "a model of kind 'onnx' cannot be converted to '" in called.err
    assert (
        "(allowed: onnx-fp32, onnx-fp16, onnx-bf16, onnx-int8, onnx-mixed, openvino-fp32, openvino-bf16" in called.err
    )
    assert desk.releases == []


@pytest.mark.torch
@pytest.mark.parametrize("target", ["tflite-fp32", "savedmodel-fp32"])
def test_a_tensorflow_format_cannot_be_made_of_a_pytorch_module(desk: Desk, target: str) -> None:
    desk.module("net", _TORCH)

    called = desk.call("run", "--verbose", desk.spec(model=_declared("net:model"), targets=[target]))

    assert called.code == 2, str(called)
    assert "a model of kind 'torch' cannot be converted to '" in called.err
    assert "(allowed: onnx-fp32, torch-fp32, torchscript-fp32, pt2-fp32, " in called.err


def test_what_cannot_be_made_is_said_in_the_words_of_the_spec(desk: Desk) -> None:
    called = desk.call("run", "--verbose", desk.spec(targets=["tflite-fp16"]))

    assert "'tflite-fp16'" in called.err
    assert "openvino-int8" in called.err


def test_a_size_outside_of_the_declared_range_is_refused(desk: Desk) -> None:
    target = {"name": "onnx-fp32", "static": {"batch": 65}}

    called = desk.call("run", "--verbose", desk.spec(model=_declared("model.onnx"), targets=[target]))

    assert called.code == 2
    assert "error: target 'onnx-fp32@batch=65': dim 'batch' is fixed at 65, but model.dims allows 1 to 64" in called.err
    assert not (desk.folder / "artifacts").exists()


@pytest.mark.parametrize(
    ("dims", "static", "words"),
    [
        ({"batch": {"min": 1, "max": 64}}, {"batch": 65}, "model.dims allows 1 to 64"),
        ({"rows": {"min": 1, "max": 64}}, {"batch": 8}, "model.dims names 'rows', which no input or output has"),
    ],
)
def test_ranges_hold_where_the_source_says_its_inputs_itself(
    desk: Desk, dims: dict[str, object], static: dict[str, int], words: str
) -> None:
    model = {"name": "tiny", "source": "model.onnx", "dims": dims}

    called = desk.call(
        "run", "--verbose", desk.spec(model=model, targets=[{"name": "onnx-fp32", "static": static}], decisions={})
    )

    assert called.code == 2
    assert words in called.err


def test_a_dim_that_the_model_does_not_have_cannot_be_fixed(desk: Desk) -> None:
    called = desk.call("run", "--verbose", desk.spec(targets=[{"name": "onnx-fp32", "static": {"sequence": 8}}]))

    assert called.code == 2, str(called)
    assert "dim 'sequence' is not a symbolic dim of the inputs (they have: batch)" in called.err


def test_rows_that_are_too_few_to_calibrate_on_are_refused(desk: Desk) -> None:
    desk.samples(60)

    called = desk.call("run", "--verbose", desk.spec(targets=["onnx-int8"]))

    assert called.code == 2, str(called)
    assert "different rows held out of inputs.npz (expected at least 16)" in called.err
    assert "hint: name more rows in calibration.source, or raise calibration.share" in called.err


def test_calibrating_on_what_is_compared_is_refused(desk: Desk) -> None:
    called = desk.call("run", "--verbose", desk.spec(targets=["onnx-int8"], calibration={"source": "inputs.npz"}))

    assert called.code == 2, str(called)
    assert "of the 120 calibration rows in inputs.npz, 120 are among the compared rows" in called.err
    assert desk.releases == []


def test_calibration_rows_that_are_not_there_are_refused_before_any_work(desk: Desk) -> None:
    called = desk.call("run", "--verbose", desk.spec(targets=["onnx-int8"], calibration={"source": "absent.npz"}))

    assert called.code == 2
    assert "absent.npz do not exist" in called.err
    assert not (desk.folder / "artifacts").exists()


def _text(path: Path) -> None:
    path.write_text("this is not a model", encoding="utf-8")


def _archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"")


def _state_dict(path: Path) -> None:
    import torch

    torch.save(torch.nn.Linear(4, 3).state_dict(), path)


def _pickle(path: Path) -> None:
    import torch

    torch.save(torch.nn.Linear(4, 3), path)


def _script(path: Path) -> None:
    import torch

    module = torch.jit.trace(torch.nn.Linear(4, 3).eval(), torch.zeros(2, 4))  # type: ignore[no-untyped-call]
    torch.jit.save(module, str(path))


def _cut(path: Path) -> None:
    _script(path)
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "write", "words"),
    [
        ("model.pt", _text, "is not a TorchScript file: not a zip archive"),
        ("model.pt2", _text, "is not a torch.export file: not a zip archive"),
        ("model.pt", _archive, "is of no kind that PyTorch writes, not TorchScript"),
        ("model.pt2", _archive, "is of no kind that PyTorch writes, not a program of torch.export"),
        ("model.pt", _state_dict, "is weights without a model (a state dict of torch.save), not TorchScript"),
        ("model.pt", _pickle, "not TorchScript"),
        ("model.pt", _cut, "model.pt"),
        ("model.pt2", _script, "is TorchScript, not a program of torch.export"),
    ],
)
def test_a_pytorch_file_of_another_kind_is_an_input_error(
    desk: Desk, name: str, write: Callable[[Path], None], words: str
) -> None:
    write(desk.folder / name)
    target = "torchscript-fp32" if name == "model.pt" else "pt2-fp32"

    called = desk.call("run", desk.spec(model=_declared(name), targets=[target]), "--quiet")

    assert called.code == 2, str(called)
    assert words in called.err
    assert called.err.startswith("error: ")
    assert "\nhint: " in called.err
    assert "Traceback" not in called.err
    assert desk.releases == []
