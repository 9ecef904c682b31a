"""What is there of a view is not lost without a word: what was changed by hand, and what was asked for before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

from paritygate.errors import ChangedViewError, ExitCode
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.serving.triton.messages import parse_text
from paritygate.pipelines.serving.written import Head, check_as_written, is_ours, with_body

KINDS = {
    "triton": ((), "models/adds/config.pbtxt"),
    "tfserving": ((), "models/models.config"),
    "kserve": (
        ("--storage-uri", "s3://team/models", "--server", "25.10"),
        "models/adds/inferenceservice.yaml",
    ),
}

KEEPS = {
    "triton": "put lasting changes into the spec, in serve: {triton: {...}}, and release it",
    "tfserving": "put a copy elsewhere, and start the server with that",
    "kserve": "make the change in the cluster, with kubectl patch or kustomize",
}


@pytest.fixture
def call(call: Callable[..., Result], make_release: Callable[..., StoredRelease]) -> Callable[..., Result]:
    """Return a function that calls the tool on the repository, which holds a release that all kinds serve."""
    make_release("onnx-fp32", "savedmodel-fp32")
    np.savez("inputs.npz", x=np.ones((3, 4), dtype=np.float32))
    np.savez("others.npz", x=np.zeros((3, 4), dtype=np.float32))
    return call


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_was_changed_by_hand_is_kept_until_it_is_given_up(
    tmp_path: Path, call: Callable[..., Result], kind: str
) -> None:
    options, name = KINDS[kind]
    words = (kind, "adds", "--out", "models", *options)
    call(*words)
    path = tmp_path / name
    written = path.read_bytes()
    path.write_bytes(written + b"\n# more memory\n")

    with pytest.raises(ChangedViewError, match=f"{path.name} was changed since it was written") as caught:
        call(*words)

    assert str(caught.value).startswith(f"{name} was changed")
    keep, _, over = caught.value.hint.partition("; or overwrite it: convert-and-validate ")
    assert keep == KEEPS[kind]
    assert path.read_bytes() == written + b"\n# more memory\n"
    # The command of the hint writes over it.
    CliRunner().invoke(cli, over.split(), standalone_mode=False)
    assert path.read_bytes() == written


def test_a_view_that_was_changed_by_hand_is_behind_and_the_alias_moves(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    call("triton", "adds", "--out", "models")
    path = tmp_path / "models/adds/config.pbtxt"
    path.write_text(path.read_text() + "# by hand\n")
    before = path.read_bytes()
    make_release(added=2.0)

    moved = call("alias", "adds", "prod", "2")

    assert moved.return_value == ExitCode.USAGE
    said = " ".join(moved.output.replace("\\\n", "").split())
    assert "models/adds is behind, its server keeps what it has: models/adds/config.pbtxt was changed" in said
    assert said.endswith("next: convert-and-validate triton adds prod --out models --overwrite --repository repository")
    assert path.read_bytes() == before
    listed = " ".join(call("views").output.replace("\\\n", "").split())
    assert "behind: shows 1, prod is 2, and was changed by hand next: convert-and-validate triton adds prod" in listed
    assert listed.endswith(" --overwrite --repository repository")
    call("triton", "adds", "prod", "--out", "models", "--overwrite")
    assert b"versions: 2" in path.read_bytes()


@pytest.mark.parametrize("which", ["prod", "1"])
@pytest.mark.parametrize("kind", ["triton", "kserve"])
def test_what_was_asked_for_is_not_left_out_without_a_word(
    tmp_path: Path, call: Callable[..., Result], kind: str, which: str
) -> None:
    options, name = KINDS[kind]
    words = (kind, "adds", which, "--out", "models", *options)
    more = ("--samples", "inputs.npz", *(("--server", "25.10") if kind == "triton" else ()))
    call(*words, *more)
    before = (tmp_path / name).read_bytes()
    # The same again leaves nothing out.
    assert "nothing was written" in " ".join(call(*words, *more).output.split())

    with pytest.raises(ChangedViewError) as caught:
        call(*words)

    left_out = " ".join(more)
    assert f"{name} was written with {left_out}, which this call leaves out" in str(caught.value)
    assert caught.value.hint.startswith(f"give {left_out} again; or overwrite it: convert-and-validate {kind} adds ")
    assert caught.value.hint.endswith(" --overwrite --repository repository")
    assert (tmp_path / name).read_bytes() == before
    call(*words, "--overwrite")
    assert b"inputs.npz" not in (tmp_path / name).read_bytes()


def test_warm_up_inputs_that_are_named_no_longer_are_removed(tmp_path: Path, call: Callable[..., Result]) -> None:
    words = ("triton", "adds", "--out", "models")
    warmup = tmp_path / "models/adds/warmup"
    call(*words, "--samples", "inputs.npz")
    (first,) = warmup.iterdir()

    call(*words, "--samples", "others.npz")
    (second,) = warmup.iterdir()
    assert second.name != first.name
    assert second.name in (tmp_path / "models/adds/config.pbtxt").read_text()

    # What somebody else put there stays.
    (warmup / "theirs").mkdir()
    (warmup / "theirs/x").write_bytes(b"1")
    call(*words, "--overwrite")
    assert [path.name for path in warmup.iterdir()] == ["theirs"]
    shutil.rmtree(warmup / "theirs")
    call(*words, "--samples", "inputs.npz")
    call(*words, "--overwrite")
    assert not warmup.exists()


def test_another_base_path_is_said(tmp_path: Path, call: Callable[..., Result]) -> None:
    call("tfserving", "adds", "--out", "models", "--base-path", "/models")

    with pytest.raises(ChangedViewError, match=r"models\.config has adds at /models/adds, but this call has") as caught:
        call("tfserving", "adds", "--out", "models")

    assert caught.value.hint.startswith("give --base-path /models; or overwrite it: convert-and-validate tfserving")
    assert '"/models/adds"' in (tmp_path / "models/models.config").read_text()
    call("tfserving", "adds", "--out", "models", "--base-path", "/served", "--overwrite")
    assert '"/served/adds"' in (tmp_path / "models/models.config").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_no_comment_of_a_file_is_wider_than_80_columns(tmp_path: Path, call: Callable[..., Result], kind: str) -> None:
    options, name = KINDS[kind]
    call(kind, "adds", "--out", "models", *options)

    lines = (tmp_path / name).read_text().splitlines()

    assert max(len(line) for line in lines if line.startswith("#")) <= 80
    assert lines[0].startswith("# Written by paritygate")


def test_a_head_says_what_a_file_is_of_and_is_a_comment(tmp_path: Path, call: Callable[..., Result]) -> None:
    call("triton", "adds", "--out", "models", "--samples", "inputs.npz", "--server", "25.10")
    call("kserve", "adds", "--out", "services", *KINDS["kserve"][0])

    lines = (tmp_path / "models/adds/config.pbtxt").read_text().splitlines()

    assert lines[0] == "# Written by paritygate: adds version 1, onnx-fp32."
    assert lines[1].startswith("# files: sha256:")
    assert lines[2:4] == ["# --samples inputs.npz", "# --server 25.10"]
    assert lines[4].startswith("# below: sha256:")
    assert parse_text("\n".join(lines)).name == "adds"
    service = (tmp_path / "services/adds/inferenceservice.yaml").read_text()
    assert yaml.safe_load(service)["kind"] == "InferenceService"


def test_a_long_name_is_broken_at_spaces() -> None:
    text = Head(said=f"{'a' * 60} version 1, onnx-fp32").over("body\n")

    assert max(map(len, text.splitlines())) <= 80
    assert all(line.startswith("# ") for line in text.splitlines()[:-1])
    check_as_written(text.encode(), "file")


@pytest.mark.parametrize("value", ["a\nbackend: 'x'", "inputs.npz", "\u2028# below: sha256:0"])
def test_an_option_is_no_line_of_the_body(value: str) -> None:
    text = Head(said="x", options={"--samples": value}).over("body\n")

    assert text.split("\n")[-2:] == ["body", ""]
    check_as_written(text.encode(), "file", {"--samples": "other"})
    with pytest.raises(ChangedViewError, match="was written with --samples"):
        check_as_written(text.encode(), "file", {})


def test_another_body_below_the_same_head_is_as_written() -> None:
    text = Head(said="x", files="sha256:0", options={"--server": "25.10"}).over("one\n")

    other = with_body(text, "two\n")

    assert other == Head(said="x", files="sha256:0", options={"--server": "25.10"}).over("two\n")
    with pytest.raises(ChangedViewError, match="was changed"):
        check_as_written(text.replace("one", "two").encode(), "file")


def test_a_file_without_a_digest_was_changed() -> None:
    content = b"# Written by paritygate: adds version 1.\nname: 'adds'\n"

    assert is_ours(content)
    with pytest.raises(ChangedViewError, match="was changed"):
        check_as_written(content, "file")
