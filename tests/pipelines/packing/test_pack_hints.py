"""What packing and unpacking say to do next, where they do not go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipelines.conftest import Desk, make_desk


@pytest.fixture
def run(finished: Desk, tmp_path: Path) -> Desk:
    """Return a desk with a finished run that may be changed."""
    return finished.copy(tmp_path / "desk")


def _hint(desk: Desk, *args: str) -> tuple[int, str]:
    called = desk.call(*args)
    error, hint = called.err.splitlines()[-2:]
    assert error.startswith("error: ")
    return called.code, hint


def test_two_inputs_of_one_place_are_refused(tmp_path: Path) -> None:
    (tmp_path / "desk/outside/model").mkdir(parents=True)
    desk = make_desk(tmp_path / "desk")
    # Where a source that lies elsewhere goes.
    (desk.folder / "outside/model/model.onnx").write_text("of the spec", encoding="utf-8")
    (desk.folder / "model.onnx").rename(tmp_path / "model.onnx")
    model = {"name": "tiny", "source": "../model.onnx", "rename": {"output_0": "logits"}}
    desk.spec(model={**model, "files": ["outside/model/model.onnx"]})
    assert desk.call("export", "spec.yaml", "--quiet").code == 0

    called = desk.call("pack", "--run", str(desk.run_folder))

    assert called.code == 2
    assert "model.onnx would both go to 'outside/model/model.onnx'" in called.err
    assert "hint: rename one of them, or leave the run's inputs out with --without-inputs" in called.err


def test_a_missing_input_may_be_left_out(run: Desk) -> None:
    (run.folder / "inputs.npz").unlink()

    code, hint = _hint(run, "pack", "--run", str(run.run_folder))

    assert (code, hint) == (2, "hint: put it back, or leave the run's inputs out with --without-inputs")


def test_another_file_in_the_way_asks_for_another_name(run: Desk) -> None:
    (run.folder / "p.tar").write_text("mine", encoding="utf-8")

    assert _hint(run, "pack", "--run", str(run.run_folder), "--output", "p.tar") == (
        2,
        "hint: name another file with --output",
    )


def test_links_are_replaced_by_what_they_point_to(run: Desk) -> None:
    (run.run_folder / "link").symlink_to(run.folder / "model.onnx")
    first = _hint(run, "pack", "--run", str(run.run_folder))
    (run.run_folder / "link").unlink()
    (run.run_folder / "link").symlink_to(run.folder)
    second = _hint(run, "pack", "--run", str(run.run_folder))

    assert first == (5, "hint: replace it by the file itself, or remove it")
    assert second == (5, "hint: replace the link by the folder it points to")


def test_options_that_are_not_needed_are_to_be_left_out(run: Desk) -> None:
    assert run.call("pack", "--run", str(run.run_folder), "--output", "p.tar").code == 0

    unpack = ("unpack", "p.tar", "--root", "there")
    assert _hint(run, *unpack, "--folder", ".") == (2, "hint: leave --folder out")
    assert _hint(run, *unpack, "--samples", "inputs.npz") == (2, "hint: leave --samples out")


def test_a_pack_that_may_not_be_read_says_so(run: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.call("pack", "--run", str(run.run_folder), "--output", "p.tar").code == 0
    real = Path.open

    def refused(self: Path, *args: object, **kwargs: object) -> object:
        if self.name == "p.tar":
            raise PermissionError(13, "Permission denied")
        return real(self, *args, **kwargs)  # type: ignore[call-overload]  # as it was called

    monkeypatch.setattr(Path, "open", refused)

    called = run.call("unpack", "p.tar", "--root", "there")

    assert called.code == 2
    assert (
        called.err == "error: pack p.tar cannot be read: Permission denied\nhint: check the path and its permissions\n"
    )


def test_a_pack_of_no_run_is_wrong_usage(desk: Desk) -> None:
    called = desk.call("pack")

    assert called.code == 2
    assert "pack needs --run DIR" in called.err
