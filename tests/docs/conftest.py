"""The pages of the documentation, their code blocks and tables, and a folder in which their commands run."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
import pytest

from paritygate.pipelines.cli.app import cli

_ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARKERS = ("litert", "nncf", "openvino", "rtx", "slow", "tensorflow", "thorough", "torch")
_TOOL = "convert-and-validate"
_OPSET = 17
_IR_VERSION = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A code block; the words after its language say how it is tested (see CONTRIBUTING.md)."""

    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def options(self) -> dict[str, str]:
        """The words of the form NAME=VALUE."""
        return dict(word.split("=", 1) for word in self.words if "=" in word)

    @property
    def is_run(self) -> bool:
        """Whether its commands are run as they stand."""
        return self.language in {"shell", "python"} and "run" in self.words and "recipe" not in self.words

    @property
    def markers(self) -> tuple[str, ...]:
        """The markers of the test that runs it."""
        return tuple(word for word in self.words if word in _MARKERS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One page of the documentation."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        """Its path from the root."""
        return self.path.relative_to(_ROOT).as_posix()

    @property
    def blocks(self) -> list[Block]:
        """Its code blocks."""
        found = []
        for match in _FENCE.finditer(self.text):
            language, *words = match["info"].split() or [""]
            line = self.text.count("\n", 0, match.start()) + 1
            found.append(Block(line=line, language=language, words=tuple(words), text=match["text"]))
        return found

    @property
    def prose(self) -> str:
        """The page without its code blocks."""
        return _FENCE.sub("", self.text)

    def section(self, heading: str) -> str:
        """Return the text below a heading, up to the next one of the same or a higher level."""
        found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,6}} |\Z)", self.prose, re.MULTILINE | re.DOTALL)
        assert found, f"{self.name} has no heading {heading!r}"
        return found[2]

    def rows(self, heading: str | None = None) -> list[list[str]]:
        """Return the rows of the tables, without their heads, of the page or of one section."""
        text = self.prose if heading is None else self.section(heading)
        rows = []
        for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
            lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
            rows += lines[2:]
        return rows

    def files(self) -> dict[str, str]:
        """Return the files that the page says to write, by name."""
        return {block.options["file"]: block.text for block in self.blocks if "file" in block.options}

    def toctree(self) -> list[str]:
        """Return the pages that its toctrees name, by their path from the root."""
        lines = [
            line.strip() for block in self.blocks if block.language == "{toctree}" for line in block.text.splitlines()
        ]
        folder = Path(self.name).parent
        return [os.path.normpath(folder / f"{line}.md") for line in lines if line and not line.startswith(":")]

    def commands(self) -> Iterator[list[str]]:
        """Yield the arguments of every call of the tool, in code blocks and within the text."""
        for block in self.blocks:
            if block.language == "shell":
                yield from _calls(block.text)
        for call in re.findall(rf"`({_TOOL} [^`]*)`", self.prose):
            yield from _calls(call)


def _calls(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        words: list[str] = []
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        # Operators of the shell are words of their own, nothing else that needs no space is.
        lexer.whitespace_split = True
        for word in [*lexer, ";"]:
            if word and set(word) <= set("|&;()<>"):
                if words[:1] == [_TOOL]:
                    yield words[1:]
                words = []
            else:
                words.append(word)


def _page(path: Path) -> Page:
    return Page(path=path, text=path.read_text(encoding="utf-8"))


def _pages() -> list[Page]:
    return [_page(path) for path in (*sorted(_ROOT.glob("*.md")), *sorted((_ROOT / "docs").rglob("*.md")))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for every page, or once for every set of markers that a page's commands have."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", [pytest.param(page, id=page.name) for page in _pages()])
    if "run_page" in metafunc.fixturenames:
        found = []
        for page in _pages():
            groups = sorted({block.markers for block in page.blocks if block.is_run})
            for group in groups:
                marks = [getattr(pytest.mark, marker) for marker in group]
                found.append(pytest.param(page, group, id="-".join((page.name, *group)), marks=marks))
        metafunc.parametrize(("run_page", "run_markers"), found)


@pytest.fixture(scope="session")
def pages() -> dict[str, Page]:
    """Return every page by its path from the root."""
    return {page.name: page for page in _pages()}


@pytest.fixture(scope="session")
def readme(pages: dict[str, Page]) -> Page:
    """Return the README."""
    return pages["README.md"]


@pytest.fixture(scope="session")
def parse_call() -> Callable[[list[str]], click.Context]:
    """Return a function that parses a call of the tool as Click does, without doing what it says."""

    def parse(args: list[str]) -> click.Context:
        context = click.Context(cli, info_name=_TOOL)
        name, command, rest = cli.resolve_command(context, list(args))
        assert name is not None
        assert command is not None
        # The newest run is looked for while options are parsed, and here there is none.
        there = [arg if arg.partition(":")[0] != "latest" else "DIR" for arg in rest]
        return command.make_context(name, there, parent=context)

    return parse


def _write_model(path: Path, weight: np.ndarray[tuple[int, ...], np.dtype[np.float32]], error: float) -> None:
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "weight"], ["product"]),
            onnx.helper.make_node("Add", ["product", "error"], ["logits"]),
        ],
        path.stem,
        [onnx.helper.make_tensor_value_info("x", float32, ["batch", len(weight)])],
        [onnx.helper.make_tensor_value_info("logits", float32, ["batch", 1])],
        [
            onnx.numpy_helper.from_array(weight, "weight"),
            onnx.numpy_helper.from_array(np.full(1, error, dtype=np.float32), "error"),
        ],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", _OPSET)])
    model.ir_version = _IR_VERSION
    onnx.save(model, str(path))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the files that the pages' commands take for granted."""
    folder = tmp_path_factory.mktemp("models")
    random = np.random.default_rng(0)
    weight = random.standard_normal((16, 1)).astype(np.float32)
    _write_model(folder / "model.onnx", weight, 0.0)
    _write_model(folder / "model-fp16.onnx", weight.astype(np.float16).astype(np.float32), 0.0)
    _write_model(folder / "model-wrong.onnx", weight, 0.5)
    np.savez(folder / "inputs.npz", x=random.standard_normal((200, 16)).astype(np.float32))
    return folder


@pytest.fixture(scope="session")
def run_shell_in() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs commands in a folder.

    Its arguments: the folder, the commands, and the exit code that is expected.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARITYGATE_")}
    # Where the tool was installed beside the Python that runs the tests, that one is meant.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"

    # No test may fetch a model.
    environment["HF_HUB_OFFLINE"] = "1"

    def run(folder: Path, text: str, *, code: int = 0) -> subprocess.CompletedProcess[str]:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=folder,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == code, f"exit code {ran.returncode}, expected {code}, of:\n{text}\n{ran.stderr}"
        return ran

    return run


@pytest.fixture
def run_shell(
    run_shell_in: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, models: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs commands in a fresh folder that holds the models.

    Its arguments: the commands, and the exit code that is expected.
    """
    for path in models.iterdir():
        shutil.copy2(path, tmp_path)
    return functools.partial(run_shell_in, tmp_path)
