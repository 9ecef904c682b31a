"""Runs whose targets are files of PyTorch's and the source itself: what is judged is what is released."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.artifact import Artifact
from paritygate.errors import ArtifactIntegrityError
from paritygate.models.loading import load_model
from paritygate.pipelines.compare.models import artifact_model

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Bench, Called, Desk

pytestmark = pytest.mark.torch

_NET = """
import pathlib

import numpy as np
import torch

import torch_targets_layers as layers

_HERE = pathlib.Path(__file__).parent


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = layers.linear(int.from_bytes((_HERE / "weights.bin").read_bytes(), "big"))

    def forward(self, x):
        scores = self.linear(x)
        return {"hidden": scores * 2, "scores": scores}


def model():
    return Net()


def rows():
    # Beside this file, but not among what the model is said to read: the copy of the model does not have it.
    from paritygate.batch import Batch

    values = np.load(_HERE / "inputs.npz")["x"]
    yield Batch(inputs={"x": values}, ids=tuple(str(index) for index in range(len(values))))
"""
_LAYERS = """
import torch


def linear(width):
    return torch.nn.Linear(4, width)
"""
_TARGETS = ["torchscript-fp32", "torch-fp32"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, finished: Desk) -> tuple[Desk, Called]:
    """Return the desk and the run of a module whose samples come from the same Python file."""
    folder = tmp_path_factory.mktemp("torch-targets")
    shutil.copy(finished.folder / "inputs.npz", folder)
    desk = type(finished)(folder=folder)
    desk.module("torch_targets_net", _NET)
    desk.module("torch_targets_layers", _LAYERS)
    (folder / "weights.bin").write_bytes(b"\x03")
    model = {
        "name": "tiny",
        "source": "torch_targets_net:model",
        "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
        "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 3]}},
        "rename": {"scores": "logits"},
        "dims": {"batch": {"min": 1, "opt": 8, "max": 128}},
        "files": ["weights.bin"],
    }
    desk.spec(model=model, samples={"source": "torch_targets_net:rows"}, targets=_TARGETS)
    return desk, desk.json("run", "--verbose", "spec.yaml")


def test_all_of_them_pass_and_are_released(run: tuple[Desk, Called]) -> None:
    desk, called = run
    assert called.code == 0, str(called)
    assert {name: result["verdict"] for name, result in called.data["runs"][0]["variants"].items()} == dict.fromkeys(
        _TARGETS, "pass"
    )
    assert desk.releases == ["tiny/1"]
    assert called.data["runs"][0]["release"]["variants"] == _TARGETS
    assert desk.call("verify", "tiny", "prod").code == 0


def test_that_the_source_is_compared_with_itself_is_said(run: tuple[Desk, Called]) -> None:
    _, called = run
    results = called.data["runs"][0]["variants"]
    (distinct,) = [check for check in results["torch-fp32"]["checks"] if check["name"] == "distinct"]
    assert distinct["status"] == "warning"
    assert distinct["words"][0]["key"] == "distinct.source"
    assert results["torch-fp32"]["outputs"]["logits"]["max_abs_diff"] == 0
    (distinct,) = [check for check in results["torchscript-fp32"]["checks"] if check["name"] == "distinct"]
    assert distinct["status"] == "pass"


def test_the_source_s_artifact_holds_the_code_and_the_declared_files_and_no_others(run: tuple[Desk, Called]) -> None:
    desk, _ = run
    for folder in (desk.run_folder / "torch-fp32", desk.folder / "artifacts/repository/store/tiny/1/torch-fp32"):
        code = folder / "code"
        names = ["torch_targets_layers.py", "torch_targets_net.py", "weights.bin"]
        assert sorted(path.relative_to(code).as_posix() for path in code.rglob("*")) == names
        for name in names:
            assert (code / name).read_bytes() == (desk.folder / name).read_bytes()
        said = json.loads((folder / "source.json").read_text(encoding="utf-8"))
        assert (said["text"], said["rename"]) == ("torch_targets_net:model", {"scores": "logits"})
        assert str(desk.folder) not in json.dumps(said)


def test_that_loading_them_executes_code_is_said(run: tuple[Desk, Called]) -> None:
    _, called = run
    for name in _TARGETS:
        assert f"{name}: note: loading {name} executes code of its author" in called.out


def test_a_note_that_holds_for_several_variants_is_said_once_and_names_them_all(run: tuple[Desk, Called]) -> None:
    _, called = run
    results = called.data["runs"][0]["variants"]
    holders: dict[str, list[str]] = {}
    for name, result in results.items():
        for note in result["notes"]:
            holders.setdefault(note, []).append(name)
    assert any(len(names) > 1 for names in holders.values())
    for note, names in holders.items():
        assert called.out.count(f": note: {note}\n") == 1
        assert f"\n{'; '.join(names)}: note: {note}\n" in called.out


def test_the_copy_is_what_is_loaded_even_where_the_source_is_imported_already(run: tuple[Desk, Called]) -> None:
    desk, _ = run
    artifact = Artifact.load(desk.run_folder / "torch-fp32")
    ref = artifact_model(artifact)
    assert [spec.name for spec in (ref.signature.outputs if ref.signature else ())] == ["logits"]
    loaded = load_model(ref)
    place = loaded.model.forward.__func__.__code__.co_filename
    assert place == str(artifact.folder / "code/torch_targets_net.py")
    artifact.verify()


@pytest.fixture
def tampered(run: tuple[Desk, Called], tmp_path: Path) -> Artifact:
    """Return a copy of the source's artifact that may be changed."""
    folder = tmp_path / "torch-fp32"
    shutil.copytree(run[0].run_folder / "torch-fp32", folder)
    return Artifact.read_record(folder)


def test_a_copy_that_makes_other_parameters_is_not_what_was_recorded(tampered: Artifact) -> None:
    path = tampered.folder / "code/torch_targets_net.py"
    path.write_text(path.read_text(encoding="utf-8").replace("manual_seed(0)", "manual_seed(1)"), encoding="utf-8")
    ref = artifact_model(tampered)
    with pytest.raises(ArtifactIntegrityError, match="that differ from those recorded"):
        load_model(ref)


@pytest.mark.thorough
def test_a_copy_without_one_of_its_modules_does_not_take_another_of_that_name(
    run: tuple[Desk, Called], tampered: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tampered.folder / "code/torch_targets_layers.py").unlink()
    monkeypatch.syspath_prepend(str(run[0].folder))
    ref = artifact_model(tampered)
    with pytest.raises(
        ArtifactIntegrityError, match=r"'torch_targets_layers' .* was imported from .*, not from the copy"
    ):
        load_model(ref)


@pytest.mark.thorough
def test_a_module_that_is_another_each_time_is_no_target(run: tuple[Desk, Called], tmp_path: Path) -> None:
    desk = type(run[0])(folder=tmp_path)
    np.savez(tmp_path / "inputs.npz", input=np.ones((120, 4), np.float32))
    desk.module("random_net", "import torch\n\n\ndef model():\n    return torch.nn.Linear(4, 3)\n")
    desk.module_spec("random_net:model", targets=["torch-fp32"])
    spec = (tmp_path / "spec.yaml").read_text(encoding="utf-8").replace("x:", "input:", 1)
    (tmp_path / "spec.yaml").write_text(spec, encoding="utf-8")
    called = desk.json("export", "--verbose", "spec.yaml")
    assert called.code == 4, str(called)
    assert "that differ from those recorded" in called.data["failures"]["torch-fp32"]["message"]


def test_files_of_both_kinds_are_compared_without_a_spec(run: tuple[Desk, Called], bench: Bench) -> None:
    import torch

    folder = run[0].run_folder / "torchscript-fp32"
    script = torch.jit.load(str(folder / "model.pt"))  # type: ignore[no-untyped-call]  # torch has no type for it

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)
            self.linear.load_state_dict(script.module.linear.state_dict())

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.linear(x)}

    candidate = bench.folder / "model.pt2"
    size = {0: torch.export.Dim("batch")}
    torch.export.save(torch.export.export(Scores(), (torch.zeros(3, 4),), dynamic_shapes=(size,)), candidate)
    outcome = bench.compare(str(folder / "model.pt"), str(candidate), "--samples", bench.samples())
    assert outcome.code == 0, outcome.message
    assert outcome.result["outputs"]["logits"]["max_abs_diff"] == pytest.approx(0, abs=1e-6)


def test_a_file_is_the_source_of_another_run(run: tuple[Desk, Called], tmp_path: Path) -> None:
    desk = type(run[0])(folder=tmp_path)
    shutil.copy(run[0].folder / "inputs.npz", tmp_path)
    shutil.copy(run[0].run_folder / "torchscript-fp32/model.pt", tmp_path)
    desk.spec(model={"name": "tiny", "source": "model.pt"}, targets=["onnx-fp32"])
    called = desk.json("run", "--verbose", "spec.yaml")
    assert called.code == 0, str(called)
    assert [entry["verdict"] for entry in desk.evidence()["variants"]] == ["pass"]
    assert desk.evidence()["reference"]["model"]["executes_code"] is True


_READING = """
import pathlib

import numpy as np
import torch

PATH = pathlib.Path(__file__).parent / "scale.npy"
SCALE = {at_import}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x) * (SCALE or float(np.load(PATH)))


def model():
    torch.manual_seed(0)
    return Net().eval()
"""


@pytest.mark.parametrize(
    "at_import",
    [
        pytest.param("float(np.load(PATH))", id="at import", marks=pytest.mark.thorough),
        pytest.param("None", id="in forward"),
    ],
)
def test_a_file_that_the_code_reads_and_the_spec_does_not_name_ends_the_copy_alone(desk: Desk, at_import: str) -> None:
    import numpy as np

    np.save(desk.folder / "scale.npy", np.float32(2.0))
    desk.module("torch_reading", _READING.format(at_import=at_import))
    called = desk.json(
        "export", "--verbose", desk.module_spec("torch_reading:model", targets=["torch-fp32", "torchscript-fp32"])
    )
    assert called.code == 4, str(called)
    assert list(called.data["failures"]) == ["torch-fp32"]
    assert "the code of torch_reading:model reads scale.npy, which was not copied with it" in called.err
    assert "hint: name it in the spec: model.files: [scale.npy]" in called.err
