"""A place that cannot be written is wrong usage, found before any work; every option of such a place is checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from paritygate.pipelines.cli.app import COMMANDS, cli
from paritygate.pipelines.cli.options import WrittenPath

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

# What is read there, or is changed only where it is already.
_READ = {
    "--captured",
    "--endpoint-json",
    "--folder",
    "--forget",
    "--releases",
    "--repository",
    "--key",
    "--root",
    "--run",
    "--against",
    "--samples",
    "--sign",
}
_MAKING_RUNS = {"run", "export", "unpack"}


def _paths() -> Iterator[tuple[str, click.Option]]:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        for item in command.params:
            if isinstance(item, click.Option) and isinstance(item.type, click.Path):
                yield name, item


def test_every_option_of_a_place_that_is_written_is_checked() -> None:
    unchecked = {
        (command, option.opts[0])
        for command, option in _paths()
        if not isinstance(option.type, WrittenPath)
        and (option.opts[0] not in _READ or (option.opts[0] == "--root" and command in _MAKING_RUNS))
    }

    assert unchecked == set()


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "model.onnx", "other.onnx", "--samples", "inputs.npz", "--json", "nowhere/x.json"),
        ("compare", "model.onnx", "other.onnx", "--samples", "inputs.npz", "--json", "."),
        ("compare", "model.onnx", "other.onnx", "--samples", "inputs.npz", "--report", "nowhere/x.html"),
        ("compare", "model.onnx", "other.onnx", "--samples", "inputs.npz", "--failures", "model.onnx/x"),
        ("init", "model.onnx", "--out", "nowhere/spec.yaml"),
        ("record", "model.onnx", "--samples", "inputs.npz", "--out", "model.onnx/x"),
        ("run", "spec.yaml", "--root", "model.onnx/x"),
        ("run", "spec.yaml", "--repository", "model.onnx/x"),
        ("triton", "tiny", "--out", "model.onnx/x"),
        ("unpack", "none.tar", "--root", "model.onnx/x"),
    ],
)
def test_what_cannot_be_written_is_wrong_usage_before_any_work(desk: Desk, words: tuple[str, ...]) -> None:
    before = sorted(desk.folder.rglob("*"))

    called = desk.call(*words)

    assert called.code == 2, called
    assert words[-2] in called.err
    assert called.out == ""
    assert sorted(desk.folder.rglob("*")) == before


@pytest.mark.parametrize("option", ["--report", "--failures"])
def test_a_page_or_folder_of_your_own_stays(desk: Desk, option: str) -> None:
    own = desk.folder / ("README.md" if option == "--report" else "mine/values-0.npz")
    own.parent.mkdir(exist_ok=True)
    own.write_text("# Our models, compared by paritygate\n")
    target = own if own.parent == desk.folder else own.parent

    called = desk.call("compare", "model.onnx", "other.onnx", "--samples", "inputs.npz", option, str(target))

    assert called.code == 2, called
    assert option in called.err
    assert own.read_text().startswith("# Our models")


def test_a_folder_that_can_be_made_is_no_error(tmp_path: Path) -> None:
    kind = WrittenPath(file_okay=False, path_type=Path)
    option = click.Option(["--out"], type=kind)

    assert kind.convert(str(tmp_path / "a/b"), option, click.Context(cli)) == tmp_path / "a/b"
    assert not (tmp_path / "a").exists()
