"""A folder of models is for one kind of server: the command of another kind writes nothing there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from paritygate.errors import UsageError
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.serving import SERVERS

_OPTIONS = {
    "triton": (),
    "tfserving": (),
    "ovms": (),
    "kserve": ("--storage-uri", "s3://team/models", "--server", "25.10"),
}

_NAMED = re.compile(r"DIR/([\w./-]*[\w/])")


@pytest.fixture
def call(call: Callable[..., Result], make_release: Callable[..., StoredRelease]) -> Callable[..., Result]:
    """Return a function that calls the tool on the repository, which holds a release that all kinds serve."""
    make_release("onnx-fp32", "savedmodel-fp32")
    return call


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("second", SERVERS)
@pytest.mark.parametrize("first", SERVERS)
@pytest.mark.parametrize("name", ["adds", "other"])
def test_a_folder_holds_views_of_one_kind(
    tmp_path: Path, call: Callable[..., Result], first: str, second: str, name: str
) -> None:
    call(first, "adds", "--out", "models", *_OPTIONS[first])
    before = everything_in(tmp_path / "models")

    if first == second:
        assert call(second, "adds", "--out", "models", "--name", name, *_OPTIONS[second]).return_value == 0
        return
    with pytest.raises(UsageError) as caught:
        call(second, "adds", "--out", "models", "--name", name, *_OPTIONS[second])

    said = str(caught.value)
    assert f"models has a view for {SERVERS[first].title} (" in said
    assert f"expected an empty or absent folder, or one with views for {SERVERS[second].title} only" in said
    assert everything_in(tmp_path / "models") == before
    # What it was asked is kept of no view that was not written.
    assert len(list((tmp_path / "repository/views/adds").glob("*.json"))) == 1
    # The command that is named writes it.
    words = shlex.split(caught.value.hint.partition("convert-and-validate ")[2])
    assert words[0] == second
    assert CliRunner().invoke(cli, words, standalone_mode=False).return_value == 0
    assert (tmp_path / f"models-{second}" / name).is_dir()


def test_a_folder_that_somebody_else_made_for_triton_is_one(tmp_path: Path, call: Callable[..., Result]) -> None:
    (tmp_path / "models/theirs").mkdir(parents=True)
    (tmp_path / "models/theirs/config.pbtxt").write_text('backend: "python"\n')

    with pytest.raises(UsageError, match=r"models has a view for Triton \(theirs/config\.pbtxt\)"):
        call("kserve", "adds", "--out", "models", *_OPTIONS["kserve"])

    assert [path.name for path in (tmp_path / "models").iterdir()] == ["theirs"]


@pytest.mark.parametrize("kind", SERVERS)
def test_the_help_says_what_is_written_where(tmp_path: Path, call: Callable[..., Result], kind: str) -> None:
    said = " ".join(CliRunner().invoke(cli, [kind, "--help"], terminal_width=500).output.split())
    named = {path.replace("NAME", "other").replace("VERSION", "1").rstrip("/") for path in _NAMED.findall(said)}
    samples = () if kind in {"tfserving", "ovms"} else ("--samples", "inputs.npz")
    np.savez("inputs.npz", x=np.ones((3, 4), dtype=np.float32))

    call(kind, "adds", "--out", "models", "--name", "other", *_OPTIONS[kind], *samples)

    root = tmp_path / "models"
    written = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert named
    # Everything that is named was written, and nothing else.
    assert {name for name in named if not (root / name).exists()} == set()
    assert {file for file in written if not any(f"{file}/".startswith(f"{name}/") for name in named)} == set()
