"""Nothing in the current directory runs because it is called like a module of Python's or of a framework."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paritygate.errors import ConversionError
from paritygate.pipelines.process import child
from paritygate.pipelines.process.child import ChildJob, run_child

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

pytestmark = pytest.mark.children

# Our own dependencies, and frameworks that are looked for and may be missing.
_FOREIGN = ("click", "numpy", "onnx", "onnxruntime", "pydantic", "tensorrt", "yaml")
_OF_THE_ISSUE = ("ctypes", "json", "signal", "traceback")
# As an installer writes it: the folder of the program is first on the path, not the current directory.
_PROGRAM = "from paritygate.__main__ import main\n\nmain()\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trap:
    """A folder in which a file is called like every module that may be imported; each leaves its name when it runs."""

    folder: Path
    ran: Path
    program: Path

    def lay(self, names: Sequence[str]) -> None:
        self.ran.mkdir()
        for name in names:
            (self.folder / f"{name}.py").write_text(f"open({str(self.ran / name)!r}, 'w').close()\n", encoding="utf-8")

    def call(self, *args: str, start: Sequence[str] = (), path: str = "") -> subprocess.CompletedProcess[str]:
        """Call a command in the folder, in a process of its own."""
        return subprocess.run(
            [sys.executable, *(start or [str(self.program)]), *args],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (path, os.environ.get("PYTHONPATH"))))},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def sprung(self) -> list[str]:
        """The names of what ran."""
        return sorted(path.name for path in self.ran.iterdir())


@pytest.fixture
def trap(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Trap:
    """Return a desk full of files called like modules of Python's and of frameworks."""
    place = tmp_path_factory.mktemp("program")
    (place / "convert-and-validate").write_text(_PROGRAM, encoding="utf-8")
    found = Trap(folder=desk.folder, ran=place / "ran", program=place / "convert-and-validate")
    found.lay([*sys.stdlib_module_names, *_FOREIGN])
    return found


def test_a_run_imports_nothing_from_the_current_directory(trap: Trap) -> None:
    done = trap.call("run", "spec.yaml", "--quiet")

    assert (done.returncode, trap.sprung) == (0, []), done.stderr


def test_a_comparison_imports_nothing_from_the_current_directory(trap: Trap, desk: Desk) -> None:
    desk.onnx("other.onnx", output="logits")

    samples = ("--samples", "inputs.npz", "--probes", "none")
    done = trap.call("compare", "model.onnx", "other.onnx", "--map", "logits=output_0", *samples)

    assert (done.returncode, trap.sprung) == (0, []), done.stderr


@pytest.mark.thorough
def test_samples_of_ours_need_nothing_from_the_current_directory(trap: Trap, desk: Desk) -> None:
    _double(desk.folder / "model.onnx")
    desk.spec(
        model={"name": "tiny", "source": "model.onnx", "rename": {"double": "logits"}},
        samples={"source": "paritygate.fixtures.linear_model:rows"},
        decisions={"logits": {"threshold": 3.0}},
    )

    done = trap.call("run", "spec.yaml", "--quiet")

    assert (done.returncode, trap.sprung) == (0, []), done.stderr


@pytest.mark.thorough
def test_a_metric_beside_the_spec_is_found_though_the_samples_are_ours(desk: Desk) -> None:
    _mean(desk.folder / "model.onnx")
    desk.module("mine", "def score(predicted, gold):\n    return 1.0\n")
    desk.spec(
        model={"name": "tiny", "source": "model.onnx", "rename": {"mean": "logits"}},
        samples={"source": "paritygate.fixtures.sts:evaluation_pairs"},
        decisions={"logits": {"threshold": 3.0}},
        gold={"metric": "mine:score", "output": "logits"},
    )

    called = desk.json("run", "spec.yaml")

    assert called.code == 0, str(called)
    (entry,) = desk.evidence()["variants"]
    assert "metric mine:score is code of yours" in entry["result"]["notes"]


def _mean(path: Path) -> None:
    """Write `mean`, that of the ids and of the mask added, one value a row."""
    import onnx

    names = ("input_ids", "attention_mask")
    nodes = [
        onnx.helper.make_node("Add", list(names), ["sum"]),
        onnx.helper.make_node("Cast", ["sum"], ["values"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("ReduceMean", ["values"], ["mean"], axes=[1], keepdims=1),
    ]
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["batch", "length"]) for name in names]
    outputs = [onnx.helper.make_tensor_value_info("mean", onnx.TensorProto.FLOAT, ["batch", 1])]
    graph = onnx.helper.make_graph(nodes, "mean", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))


def _double(path: Path) -> None:
    """Write `double = INPUT + INPUT`, one value a row."""
    import onnx

    shape = {name: onnx.helper.make_tensor_value_info(name, 1, ["batch", 1]) for name in ("INPUT", "double")}
    node = onnx.helper.make_node("Add", ["INPUT", "INPUT"], ["double"])
    graph = onnx.helper.make_graph([node], "double", [shape["INPUT"]], [shape["double"]])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))


@pytest.mark.thorough
def test_python_m_imports_nothing_of_what_it_can_leave_out(
    desk: Desk, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trap = Trap(folder=desk.folder, ran=tmp_path_factory.mktemp("program") / "ran", program=Path())
    trap.lay([*_OF_THE_ISSUE, *_FOREIGN])

    done = trap.call("run", "spec.yaml", "--quiet", start=["-m", "paritygate"])

    assert (done.returncode, trap.sprung) == (0, []), done.stderr


def test_pythonpath_is_looked_up_in_children(trap: Trap, desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("library")
    (place / "rows_elsewhere.py").write_text(
        "import numpy as np\n\nfrom paritygate.batch import Batch\n\n\ndef rows():\n"
        "    x = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)\n"
        "    yield Batch(inputs={'x': x}, ids=[str(row) for row in range(120)])\n",
        encoding="utf-8",
    )
    for path in trap.folder.glob("*.py"):
        path.unlink()
    desk.spec(samples={"source": "rows_elsewhere:rows"})

    done = trap.call("run", "spec.yaml", "--quiet", path=str(place))

    assert done.returncode == 0, done.stderr


def _python_3_10() -> str | None:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(folder) / "python3.10"
        # A shim may stand for a version that is not there.
        if path.is_file() and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(path)
    return None


@pytest.mark.parametrize("which", ["without -P", "3.10"])
def test_without_the_safe_path_a_child_imports_nothing_from_the_current_directory(
    trap: Trap, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, which: str
) -> None:
    python = sys.executable if which == "without -P" else _python_3_10()
    if python is None:
        pytest.skip("needs Python 3.10, and there is no python3.10 on the path")
    monkeypatch.setattr(child, "_python", lambda: [python])
    monkeypatch.chdir(trap.folder)
    job = ChildJob(
        name="no-such-job",
        args={},
        folder=tmp_path_factory.mktemp("job"),
        what="the job",
        time_limit_s=600,
        crash_error=ConversionError,
    )

    # That it looked for the job shows that the child began.
    with pytest.raises(ConversionError, match="the job failed: KeyError: 'no-such-job'"):
        run_child(job)

    assert trap.sprung == []


def test_a_package_in_the_current_directory_is_found_by_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project_root: Path
) -> None:
    # As one who has installed the dependencies alone stands in `src` and calls `python -m paritygate`.
    monkeypatch.chdir(project_root / "src")
    monkeypatch.setenv("PYTHONPATH", sysconfig.get_path("platlib"))
    monkeypatch.setattr(child, "_python", lambda: [sys.executable, "-S"])
    job = ChildJob(
        name="no-such-job", args={}, folder=tmp_path, what="the job", time_limit_s=600, crash_error=ConversionError
    )

    with pytest.raises(ConversionError, match="the job failed: KeyError: 'no-such-job'"):
        run_child(job)
