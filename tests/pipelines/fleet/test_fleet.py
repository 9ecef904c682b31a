"""`run` of a folder of specs: what one does never stops the others, and what has not changed costs nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.processes import wait_until

from paritygate.errors import UsageError
from paritygate.pipelines.fleet.fleet import FleetEntry, entries_in_order, specs_in
from paritygate.pipelines.report.fleet import counts_of, render_fleet, verdict_of

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_MANY = 20
_SLOW = """
import time

import numpy as np


def rows():
    open("begun", "a").close()
    time.sleep(120)
    yield {"x": np.zeros((1, 4), np.float32)}
"""


def _spec(desk: Desk, name: str, **parts: object) -> None:
    desk.spec(
        f"specs/{name}.yaml", model={"name": name, "source": "../model.onnx", "rename": {"output_0": "y"}}, **parts
    )


def _run(specs: Desk, code: int) -> dict[str, Any]:
    """Return the JSON of a run in a process of its own, as users call it."""
    command = [sys.executable, "-m", "paritygate", "run", "specs", "--workers", "2", "--json", "-"]
    called = subprocess.run(command, cwd=specs.folder, check=False, capture_output=True)
    assert called.returncode == code, called.stderr
    data: dict[str, Any] = json.loads(called.stdout)
    assert data["exit_code"] == code
    return data


@pytest.fixture
def specs(desk: Desk) -> Desk:
    """Return a folder with specs: one passes, one names samples that are not there, and one cannot be read."""
    desk.onnx()
    desk.samples()
    (desk.folder / "specs").mkdir()
    parts: dict[str, Any] = {"samples": {"source": "../inputs.npz"}, "decisions": {"y": {"argmax": True}}}
    _spec(desk, "right", **parts)
    _spec(desk, "wrong", samples={"source": "../none.npz"})
    (desk.folder / "specs" / "broken.yaml").write_text("model: [", encoding="utf-8")
    (desk.folder / "specs" / "notes.txt").write_text("no spec", encoding="utf-8")
    return desk


def _by_spec(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {Path(run["spec"]).stem: run for run in data["runs"]}


def test_each_spec_is_judged_as_alone_and_stops_no_other(specs: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE")
    runs = _by_spec(_run(specs, 2))

    assert {name: run["exit_code"] for name, run in runs.items()} == {"broken": 2, "right": 0, "wrong": 2}
    assert runs["right"]["release"]["version"] == 1
    assert "none.npz" in runs["wrong"]["error"]["message"]
    (page,) = (specs.folder / "artifacts/fleets").glob("*/index.html")
    text = page.read_text(encoding="utf-8")
    places = [text.index(f"specs/{name}.yaml") for name in ("broken", "wrong", "right")]
    assert places == sorted(places), "what needs attention comes first"
    assert all((page.parent / name).is_file() for name in ("0001.log", "0002.log", "0003.log"))
    again = _by_spec(_run(specs, 2))
    assert again["right"]["log"] == "", "nothing has changed, so that nothing was run"
    assert again["right"]["release"]["version"] == 1
    alone = specs.json("run", "specs/right.yaml", "--no-cache").data["runs"][0]
    assert alone["variants"]["onnx-fp32"]["outputs"] == runs["right"]["variants"]["onnx-fp32"]["outputs"]


def test_folders_and_specs_are_named_together(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.json"):
        (tmp_path / name).touch()

    assert specs_in(["klue-sts", str(tmp_path)]) == ["klue-sts", str(tmp_path / "a.yml"), str(tmp_path / "b.yaml")]
    with pytest.raises(UsageError):
        specs_in([str(tmp_path), str(tmp_path / "b.yaml")])


@pytest.mark.parametrize(
    "words", [("specs", "--format", "junit"), ("specs", "--workers", "0"), ("empty",), ("none", "--workers", "2")]
)
def test_wrong_usage_is_refused(specs: Desk, words: tuple[str, ...]) -> None:
    (specs.folder / "empty").mkdir()

    assert specs.call("run", *words).code == 2
    assert not (specs.folder / "artifacts/fleets").exists()


def test_two_specs_of_one_model_are_refused(specs: Desk) -> None:
    _spec(specs, "right")
    text = (specs.folder / "specs/right.yaml").read_text(encoding="utf-8")
    (specs.folder / "specs/other.yaml").write_text(text, encoding="utf-8")

    assert specs.call("run", "specs").code == 2
    assert not (specs.folder / "artifacts/fleets").exists()


def test_the_page_says_how_each_ended_and_escapes_it(tmp_path: Path) -> None:
    entries = [
        FleetEntry(spec="a.yaml", exit_code=code, seconds=1.0, outcome={"model": f"<{code}>"}, log=str(tmp_path / "l"))
        for code in (0, 1, 3, 5)
    ]

    page = render_fleet(entries, tmp_path)
    assert [verdict_of(entry) for entry in entries_in_order(entries)] == ["error", "inconclusive", "fail", "pass"]
    assert "&lt;5&gt;" in page
    assert "<5>" not in page
    assert 'href="l"' in page
    assert counts_of(entries).startswith("4 specs")


def _commands() -> str:
    """Return the commands of all processes."""
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_no_run_outlives_the_command(specs: Desk, number: signal.Signals, code: int) -> None:
    specs.module("specs/slow", _SLOW)
    for name in ("right", "wrong"):
        _spec(specs, name, samples={"source": "slow:rows"}, decisions={})
    process = subprocess.Popen(
        [sys.executable, "-m", "paritygate", "run", "specs", "--workers", "3", "--json", "all.json"],
        cwd=specs.folder,
    )
    wait_until(lambda: any(specs.folder.rglob("begun")))
    process.send_signal(number)

    assert process.wait(600) == code
    wait_until(lambda: str(specs.folder) not in _commands())
    assert not (specs.folder / "all.json").exists()


@pytest.mark.thorough
@pytest.mark.timeout(7200)  # 20 runs, on a machine that may be busy
def test_twenty_specs_are_resumed_after_ctrl_c(specs: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE")
    for at in range(_MANY - 3):
        _spec(specs, f"more{at:02}", samples={"source": "../inputs.npz"}, decisions={"y": {"argmax": True}})
    command = [sys.executable, "-m", "paritygate", "run", "specs", "--workers", "2"]
    with subprocess.Popen(command, cwd=specs.folder, stdout=subprocess.DEVNULL) as process:
        # A run that has ended in a release is not repeated. Of five, three ended, and one cannot be read.
        wait_until(lambda: len(list(specs.folder.glob("artifacts/fleets/*/*.log"))) > 4)
        process.send_signal(signal.SIGINT)
        assert process.wait(600) == 130

    runs = _by_spec(_run(specs, 2))
    codes = {name: run["exit_code"] for name, run in runs.items()}
    assert codes == {**dict.fromkeys(runs, 0), "broken": 2, "wrong": 2}
    assert len(runs) == _MANY
    assert sum(not run["log"] for run in runs.values()) >= 1
    assert {run["release"]["version"] for run in runs.values() if run["exit_code"] == 0} == {1}
