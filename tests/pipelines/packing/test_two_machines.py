"""One release made on two machines, by the commands that users call: none has what the other one works with.

The machines are environments of their own. The first has PyTorch and nothing that builds engines; the second builds
engines, and has no PyTorch. Of the first, nothing is left when the second begins. A GPU is on neither: where one is
needed, answers that were recorded stand in for it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import textwrap
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from msgspec import Struct, field
from msgspec.structs import replace

pytestmark = [pytest.mark.rtx, pytest.mark.torch, pytest.mark.thorough]

_ENGINES = ("tensorrt-rtx-fp32", "tensorrt-rtx-fp16")
_ENGINE_PACKAGES = ("tensorrt_rtx", "polygraphy")
_TORCH_PACKAGES = ("torch", "functorch", "onnxscript")
_GPU = "cuda:sm89"
_PACK = "run.tar"
_SOURCE = """
    import torch


    def make() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
"""
_SPEC = {
    "model": {
        "name": "tiny",
        "source": "source:make",
        "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
        "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 3]}},
        "dims": {"batch": {"min": 1, "opt": 8, "max": 64}},
    },
    "samples": {"source": "inputs.npz"},
    "decisions": {"logits": {"argmax": True}},
    "targets": ["onnx-fp32", *_ENGINES],
    # What stands in for a GPU knows the answers to the samples alone.
    "probes": "none",
    "promote": {"accept": {"tensorrt-rtx-fp16": "emulated"}},
}
# Put in where Python looks when it starts. It says that there is a GPU, and answers for the engine what was recorded.
_STAND_IN = """
    import os

    if "STAND_IN_FOR_A_GPU" in os.environ:
        from paritygate import machine
        from paritygate.models.source import SourceKind

        gpu = machine.Gpu(name="NVIDIA L4", capability="89", driver="570.86", cuda="12.8")
        machine.gpu_of_machine = lambda: gpu
        from paritygate.validate.runners import opening

        stood_in_for = {kind: "recorded_answers" for kind in (SourceKind.ONNX, SourceKind.TENSORRT_RTX)}
        opening.RUNNERS = {**opening.RUNNERS, **stood_in_for}
"""
_RECORDED_ANSWERS = """
    import os

    import numpy as np

    from paritygate.engine.record import EngineRecord
    from paritygate.models.onnx.file import read_onnx, signature_of_onnx
    from paritygate.precision import Precision
    from paritygate.models.source import SourceKind
    from paritygate.validate.runners import onnxruntime
    from paritygate.validate.runners.runner import Runner, RuntimeFacts


    class Recorded(Runner):
        def __init__(self, *, signature, precision, runtime, version, tf32):
            with np.load(os.environ["STAND_IN_FOR_A_GPU"]) as file:
                rows, answers = file["x"], file[f"{runtime}-{precision}"]
            self.answers = {row.tobytes(): answer for row, answer in zip(rows, answers, strict=True)}
            facts = RuntimeFacts(
                runtime=runtime, version=version, device="cuda:sm89", precision_found=precision, tf32=tf32
            )
            super().__init__(signature, facts)

        def _call(self, feed):
            return [np.stack([self.answers[row.tobytes()] for row in feed["x"]])]


    def open_model(model):
        path = model.ref.path
        if model.ref.kind is SourceKind.TENSORRT_RTX:
            record = EngineRecord.load(path)
            return Recorded(
                signature=record.signature,
                precision=record.precision,
                runtime=record.library,
                version=record.version,
                tf32=record.tf32,
            )
        if model.device == "cpu":
            return onnxruntime.open_model(model)
        return Recorded(
            signature=signature_of_onnx(read_onnx(path)),
            precision=Precision.FP32,
            runtime="onnxruntime",
            version="0",
            tf32=False,
        )
"""


class Said(Struct, frozen=True, kw_only=True):
    """What a command said."""

    code: int
    out: str
    err: str
    data: dict[str, Any]

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Machine(Struct, frozen=True, kw_only=True):
    """A folder, and a Python environment that lacks some packages; of a run that is in the folder, the stages."""

    folder: Path
    python: Path
    environment: dict[str, str] = field(default_factory=dict)

    def call(self, *args: str) -> Said:
        """Call a command as a process, in the folder."""
        target = self.folder / "said.json"
        target.unlink(missing_ok=True)
        ended = subprocess.run(
            [str(self.python), "-m", "paritygate", *args, "--json", "said.json"],
            cwd=self.folder,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        data = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
        return Said(code=ended.returncode, out=ended.stdout, err=ended.stderr, data=data)

    def done(self, *args: str) -> Said:
        """Call a command that has to succeed."""
        said = self.call(*args)
        assert said.code == 0, f"{args}: {said}"
        return said

    def stage(self, name: str, *options: str) -> Said:
        """Call a stage that has to succeed, of the one run."""
        return self.done(name, "--run", str(self.run), *options)

    @property
    def run(self) -> Path:
        """The one run folder."""
        (found,) = self.folder.glob("artifacts/runs/tiny/*")
        return found

    @property
    def evidence(self) -> dict[str, Any]:
        """The evidence of the run."""
        found: dict[str, Any] = json.loads((self.run / "evidence.json").read_text(encoding="utf-8"))
        return found


def _environment(folder: Path, *without: str) -> Path:
    """Return the Python of an environment that has what this one has, but for packages that begin with these names."""
    venv.EnvBuilder(symlinks=True).create(folder)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith((*without, "__pycache__", "pip", "setuptools")):
            (packages / entry.name).symlink_to(entry)
    return folder / "bin/python"


def _rows() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)


class FirstMachine(Struct, frozen=True, kw_only=True):
    """What is left of the first machine: its pack, and what its commands had said."""

    python: Path
    pack: Path
    said: dict[str, Said]
    evidence: dict[str, Any]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> FirstMachine:
    """Return a pack that was made where no engine can be built; the machine's folder is gone."""
    place = tmp_path_factory.mktemp("first")
    machine = Machine(folder=place / "home", python=_environment(place / "env", *_ENGINE_PACKAGES))
    machine.folder.mkdir()
    (machine.folder / "source.py").write_text(textwrap.dedent(_SOURCE), encoding="utf-8")
    (machine.folder / "spec.yaml").write_text(yaml.safe_dump(_SPEC), encoding="utf-8")
    np.savez(machine.folder / "inputs.npz", x=_rows())
    said = {"export": machine.done("export", "spec.yaml")}
    for stage in ("record", "validate"):
        said[stage] = machine.stage(stage)
    said["pack"] = machine.done("pack", "--run", str(machine.run), "--output", _PACK)
    pack = Path(shutil.move(machine.folder / _PACK, place / _PACK))
    evidence = machine.evidence
    shutil.rmtree(machine.folder)
    return FirstMachine(python=machine.python, pack=pack, said=said, evidence=evidence)


@pytest.fixture(scope="module")
def second(first: FirstMachine, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Return the machine on which the pack was restored and its engines built; not to be changed, but copied."""
    place = tmp_path_factory.mktemp("second")
    python = _environment(place / "env", *_TORCH_PACKAGES)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place / "env"), "platbase": str(place / "env")}))
    (packages / "sitecustomize.py").write_text(textwrap.dedent(_STAND_IN), encoding="utf-8")
    (packages / "recorded_answers.py").write_text(textwrap.dedent(_RECORDED_ANSWERS), encoding="utf-8")
    machine = Machine(folder=place / "home", python=python)
    machine.folder.mkdir()
    machine.done("unpack", str(first.pack))
    built = machine.stage("build")
    assert set(built.data["artifacts"]) == set(_ENGINES)
    return machine


def _copied(machine: Machine, folder: Path) -> Machine:
    """Return the machine with its run in another root, as a pack brings it there."""
    folder.mkdir()
    machine.done("pack", "--run", str(machine.run), "--output", str(folder / _PACK))
    copy = Machine(folder=folder, python=machine.python, environment=machine.environment)
    copy.done("unpack", _PACK)
    return copy


def test_the_first_machine_says_why_it_built_no_engine_and_goes_on(first: FirstMachine) -> None:
    said = first.said["export"]
    assert set(said.data["artifacts"]) == {"onnx-fp32"}
    assert set(said.data["failures"]) == set(_ENGINES)
    for name in _ENGINES:
        message = said.data["failures"][name]["message"]
        assert "tensorrt-rtx is needed to make engines ahead of time, without a GPU" in message
    printed = " ".join(said.out.split())
    assert "tensorrt-rtx is needed to make engines ahead of time, without a GPU" in printed
    assert "convert-and-validate build --run DIR" in printed
    assert [entry["verdict"] for entry in first.evidence["variants"] if entry["variant"] == "onnx-fp32"] == ["pass"]


def test_an_engine_built_on_the_second_machine_is_released_where_it_never_ran_only_as_accepted(
    first: FirstMachine, second: Machine, tmp_path: Path
) -> None:
    machine = _copied(second, tmp_path / "copy")
    machine.stage("validate")

    machine.stage("promote", "--for", _GPU)

    evidence = machine.evidence
    assert evidence["reference"] == first.evidence["reference"]
    assert {entry["variant"]: entry["evidence"] for entry in evidence["variants"]} == {
        "onnx-fp32": "verified",
        **dict.fromkeys(_ENGINES, "built"),
    }
    assert [(entry["variant"], entry["verdict"]) for entry in evidence["emulated"]] == [
        (name, "pass") for name in _ENGINES
    ]
    store = machine.folder / "artifacts/repository/store/tiny/1"
    manifest = json.loads((store / "manifest.json").read_text(encoding="utf-8"))
    assert [variant["name"] for variant in manifest["variants"]] == ["tensorrt-rtx-fp16"]
    assert manifest["variants"][0]["evidence"]["has_run"] is False
    machine.done("verify", "tiny", "--repository", "artifacts/repository")


def _with_a_gpu(machine: Machine) -> Machine:
    """Return the machine as it is with a GPU, for which answers stand in; those of the FP16 engine are off a little."""
    import onnxruntime

    rows = _rows()
    (expected,) = onnxruntime.InferenceSession(machine.run / "onnx-fp32/model.onnx").run(None, {"x": rows})
    names = ("onnxruntime-fp32", *_ENGINES)
    errors = dict.fromkeys(names, np.float32(0)) | {"tensorrt-rtx-fp16": np.float32(1e-3)}
    path = machine.folder / "answers.npz"
    np.savez(path, x=rows, **{name: expected + error for name, error in errors.items()})
    return replace(machine, environment={"STAND_IN_FOR_A_GPU": str(path)})


def _manifest(machine: Machine, version: int) -> dict[str, Any]:
    path = machine.folder / f"artifacts/repository/store/tiny/{version}/manifest.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _pack_of(machine: Machine) -> str:
    """Return the digest of the pack that a machine's run came in."""
    path = machine.run / "unpacked/paritygate-pack.json"
    return str(json.loads(path.read_text(encoding="utf-8"))["digest"])


def _digest(machine: Machine, name: str) -> str:
    return str(json.loads((machine.run / name / "artifact.json").read_text(encoding="utf-8"))["digest"])


@pytest.fixture(scope="module")
def validated(second: Machine, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Return the second machine after it validated on its GPU; its run is not to be changed, but copied."""
    machine = _with_a_gpu(_copied(second, tmp_path_factory.mktemp("validated") / "copy"))
    machine.stage("validate", "--device", "cuda")
    return machine


def test_a_release_for_both_machines_unites_their_evidence(first: FirstMachine, validated: Machine) -> None:
    refused = validated.call("promote", "--verbose", "--run", str(validated.run), "--for", "cpu", "--for", _GPU)
    assert refused.code == 2, str(refused)
    assert "the cpu evidence comes from a pack" in refused.err
    trusted = _pack_of(validated)
    promoted = validated.stage("promote", "--for", "cpu", "--for", _GPU, "--trust", trusted)

    evidence = validated.evidence
    assert evidence["device"] == _GPU
    assert {entry["variant"]: (entry["evidence"], entry["verdict"]) for entry in evidence["variants"]} == (
        dict.fromkeys(("onnx-fp32", *_ENGINES), ("verified", "pass"))
    )
    # That of the first machine, as it was made there.
    assert evidence["others"] == [{**first.evidence, "others": []}]
    assert promoted.data["variants"] == ["onnx-fp32", *_ENGINES], str(promoted)
    manifest = _manifest(validated, 1)
    found = {
        item["name"]: [(part["device"], part["kind"]) for part in (item["evidence"], *item["evidence"]["also"])]
        for item in manifest["variants"]
    }
    assert found == {
        "onnx-fp32": [("cpu", "verified"), (_GPU, "verified")],
        **{name: [(_GPU, "verified")] for name in _ENGINES},
    }
    for item in manifest["variants"][1:]:
        assert item["evidence"]["artifact"] == _digest(validated, item["name"])
    # Neither machine has what the other one works with.
    machines = {device: facts["versions"] for device, facts in manifest["provenance"]["machines"].items()}
    assert ("torch" in machines["cpu"], "tensorrt-rtx" in machines["cpu"]) == (True, False)
    assert ("torch" in machines[_GPU], "tensorrt-rtx" in machines[_GPU]) == (False, True)
    validated.done("verify", "tiny", "--repository", "artifacts/repository")


def test_the_run_comes_back_to_the_first_machine_with_its_engines_and_evidence(
    first: FirstMachine, validated: Machine, tmp_path: Path
) -> None:
    home = Machine(folder=tmp_path, python=first.python)
    validated.done("pack", "--run", str(validated.run), "--output", str(tmp_path / _PACK))
    home.done("unpack", _PACK)
    home.stage("validate")
    promoted = home.stage("promote", "--for", "cpu", "--for", _GPU, "--trust", _pack_of(home))

    for name in _ENGINES:
        assert _digest(home, name) == _digest(validated, name)
    assert home.evidence["device"] == "cpu"
    assert home.evidence["others"] == [{**validated.evidence, "others": []}]
    assert promoted.data["variants"] == ["onnx-fp32", *_ENGINES]


def test_an_engine_rebuilt_after_it_was_validated_is_not_released(validated: Machine, tmp_path: Path) -> None:
    machine = replace(_copied(validated, tmp_path / "copy"), environment={})
    before = _digest(machine, "tensorrt-rtx-fp16")
    # Of the same settings, the same bytes may be built.
    spec = json.loads((machine.run / "spec.json").read_text(encoding="utf-8"))
    spec["spec"]["tensorrt_rtx"]["compute_capabilities"] = ["8.9"]
    (machine.run / "spec.json").write_text(json.dumps(spec), encoding="utf-8")

    machine.stage("build", "--target", "tensorrt-rtx-fp16", "--rebuild")
    refused = machine.call(
        "promote", "--verbose", "--run", str(machine.run), "--for", _GPU, "--trust", _pack_of(machine)
    )

    after = _digest(machine, "tensorrt-rtx-fp16")
    assert before != after
    assert refused.code == 5, str(refused)
    assert f"the evidence of tensorrt-rtx-fp16 is about {before}, not about {after}" in refused.err
    assert not list(machine.folder.glob("artifacts/repository/store/tiny/*"))
