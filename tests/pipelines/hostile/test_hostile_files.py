"""Names and files that no model should come with: pipes, links, bytes that are no text, NUL, empty outputs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.__main__ import _run
from paritygate.errors import InputFileError, StorageError
from paritygate.files import digest_of_file, files_below
from paritygate.models.onnx.file import read_onnx

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Desk

# As Python hands over the byte 0xff of a name that is not UTF-8.
_NO_TEXT = "model\udcff"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", f"{_NO_TEXT}.yaml"],
        ["compare", f"{_NO_TEXT}.onnx", "b.onnx", "--samples", "x.npz"],
        ["compare", "a.onnx", "b.onnx", "--samples", "x.npz", "--json", f"{_NO_TEXT}.json"],
        ["export", "klue-sts", "--root", f"{_NO_TEXT}"],
    ],
)
def test_an_argument_that_is_no_utf8_is_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(arguments) == 2
    err = capsys.readouterr().err

    assert err.startswith("error: the argument model\\udcff")
    assert "is not UTF-8\nhint: rename the file or folder, and give its new name\n" in err


def test_a_folder_that_is_no_utf8_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / _NO_TEXT).mkdir()
    monkeypatch.chdir(tmp_path / _NO_TEXT)

    assert _run(["backends"]) == 2
    assert "the current directory" in capsys.readouterr().err


def test_a_file_of_a_model_whose_name_is_no_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / _NO_TEXT).touch()

    with pytest.raises(StorageError, match="is not UTF-8, so it cannot be recorded"):
        list(files_below(tmp_path))


def test_what_is_no_plain_file_is_refused_and_not_waited_at(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(StorageError, match="pipe is a pipe, a socket or a device, not a file"):
        list(files_below(tmp_path))
    with pytest.raises(OSError, match="a pipe, a socket or a device, not a file"):
        digest_of_file(tmp_path / "pipe")
    (tmp_path / "pipe").unlink()
    (tmp_path / "link").symlink_to("nothing")
    with pytest.raises(StorageError, match="link is a link to nothing"):
        list(files_below(tmp_path))


def _replace(path: Path, kind: str) -> None:
    path.parent.chmod(0o755)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "nothing")


@pytest.mark.parametrize("kind", ["pipe", "device", "link"])
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("log/tiny/000001.json", "list"),
        ("log/tiny/000001.json", "show"),
        ("log/tiny/000002.json", "verify"),
        ("store/tiny/1/manifest.json", "show"),
        ("store/tiny/1/manifest.json", "verify"),
        ("store/tiny/1/onnx-fp32/model.onnx", "verify"),
        ("store/tiny/1/added", "verify"),
    ],
)
def test_a_pipe_or_link_in_a_repository_is_said_and_not_waited_at(
    finished: Desk, tmp_path: Path, name: str, command: str, kind: str
) -> None:
    desk = finished.copy(tmp_path)
    _replace(desk.folder / "artifacts/repository" / name, kind)

    called = desk.call(command, *([] if command == "list" else ["tiny"]))

    assert called.code == 5, str(called)
    assert "unexpected" not in called.err
    assert Path(name).name in called.err + called.out


def test_a_pipe_in_a_run_is_said_and_not_waited_at(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    os.mkfifo(desk.run_folder / "onnx-fp32/pipe")

    called = desk.call("promote", "--verbose", "--run", str(desk.run_folder))

    assert called.code == 5, str(called)
    assert "pipe is a pipe, a socket or a device, not a file" in called.err


def test_an_onnx_name_that_is_no_utf8_is_no_onnx_model(bench: Bench) -> None:
    path = Path(bench.linear("a"))
    path.write_bytes(path.read_bytes().replace(b"logits", b"log\xff\xfes"))

    with pytest.raises(InputFileError, match=r"is not an ONNX model: the name b'log\\xff\\xfes' in it is not UTF-8"):
        read_onnx(path)
    assert bench.compare(str(path), bench.linear("b"), "--samples", bench.samples()).code == 2


@pytest.mark.parametrize("name", ["a\0b", "../../etc/x", "a/b", "x" * 3000, "\x1b[2J", "\u202eabc", "a\nverdict: pass"])
def test_odd_names_of_outputs_are_names(bench: Bench, name: str) -> None:
    arguments = [bench.linear("a", output=name), bench.linear("b", output=name, error=1.0)]

    outcome = bench.compare(*arguments, "--samples", bench.samples(), "--failures", str(bench.folder / "failures"))

    assert outcome.code == 1
    assert list(outcome.result["outputs"]) == [name]
    assert not any(ord(character) < 32 for character in outcome.out.replace("\n", ""))


def _with_empty_output(bench: Bench, name: str, error: float, *, is_alone: bool = False) -> str:
    import onnx

    nodes = [
        onnx.helper.make_node("Add", ["x", "error"], ["logits"]),
        onnx.helper.make_node("Slice", ["x", "zero", "zero", "one"], ["boxes"]),
    ]
    outputs: dict[str, tuple[str, list[int | str]]] = {"boxes": ("float", ["batch", 0])}
    return bench.model(
        name,
        nodes,
        inputs={"x": ("float", ["batch", 4])},
        outputs=outputs if is_alone else {"logits": ("float", ["batch", 4]), **outputs},
        weights={
            "error": np.full(1, error, np.float32),
            "zero": np.array([0], np.int64),
            "one": np.array([1], np.int64),
        },
    )


def test_an_output_with_an_empty_axis_is_not_measured_and_the_way_out_works(bench: Bench) -> None:
    arguments = [_with_empty_output(bench, "a", 0), _with_empty_output(bench, "b", 1e-6), "--samples", bench.samples()]

    refused = bench.compare(*arguments)
    ignored = bench.compare(*arguments, "--ignore", "boxes=always empty")

    assert refused.code == 5
    assert refused.check("measured", "boxes")["detail"].endswith("in the spec, or --ignore boxes=REASON")
    assert ignored.code == 0, ignored.out


def test_a_model_whose_only_output_has_an_empty_axis_is_refused(bench: Bench) -> None:
    arguments = [_with_empty_output(bench, "a", 0, is_alone=True), _with_empty_output(bench, "b", 1, is_alone=True)]

    outcome = bench.compare(*arguments, "--samples", bench.samples())

    assert outcome.code == 5
    assert outcome.message == "the reference's outputs hold no values: an axis of 'boxes' has no entries in any batch"


def test_of_an_output_that_was_not_compared_for_another_reason_no_axis_is_blamed(bench: Bench) -> None:
    outcome = bench.compare(bench.linear("a"), bench.linear("b", batch=1), "--samples", bench.samples())

    assert "has no entries" not in outcome.out
