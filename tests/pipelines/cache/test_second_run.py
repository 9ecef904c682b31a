"""A run of which nothing has changed says so, imports no framework, and starts no child."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.cache_cost import looked_at
from tests.pipelines.conftest import Desk, jobs_done_here, make_desk

pytestmark = pytest.mark.children

# A run after whose jobs somebody edits the spec.
_EDITED_MEANWHILE = """
from pathlib import Path
from paritygate.__main__ import main
from paritygate.pipelines import run_spec
whole = run_spec.run_spec
def edited(*arguments):
    outcome = whole(*arguments)
    spec = Path("spec.yaml")
    spec.write_text(spec.read_text().replace("threshold: 1", "threshold: 2"))
    return outcome
run_spec.run_spec = edited
main()
"""


def _run_and_released(folder: Path) -> Desk:
    desk = make_desk(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PARITYGATE_CACHE", raising=False)
        patch.chdir(folder)
        assert _ran().returncode == 0
    return desk


@pytest.fixture
def unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a spec that was never run."""
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    return make_desk(tmp_path)


class _Known:
    """A spec that was run and released, and a copy of its folder, because restoring that is cheaper than a run."""

    def __init__(self, folder: Path, kept: Path) -> None:
        self._desk = _run_and_released(folder)
        self._kept = Path(shutil.copytree(folder, kept, symlinks=True))
        self._is_changed = False

    def taken(self, *, to_change: bool) -> Desk:
        """Return the desk, of which nothing has changed, for a test that changes it or does not."""
        if self._is_changed:
            # Entries are of the files that were there, and not of their copies.
            shutil.rmtree(self._desk.folder)
            shutil.copytree(self._kept, self._desk.folder, symlinks=True)
            for entry in _finished_runs(self._desk):
                shutil.rmtree(entry.parent)
            os.chdir(self._desk.folder)
            assert _ran().returncode == 0
        self._is_changed = to_change
        return self._desk


def _finished_runs(desk: Desk) -> list[Path]:
    """Return what the cache keeps of whole runs, a file of each."""
    return [path for path in desk.folder.glob("artifacts/cache/*/*/entry.json") if b"the run of" in path.read_bytes()]


@pytest.fixture(scope="module")
def _known_once(tmp_path_factory: pytest.TempPathFactory) -> _Known:
    return _Known(tmp_path_factory.mktemp("known"), tmp_path_factory.mktemp("kept") / "known")


@pytest.fixture
def known(_known_once: _Known, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a spec that was run and released, for tests that damage what is there."""
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    # Where the tests stand now is where they stand again afterwards.
    monkeypatch.chdir(Path.cwd())
    desk = _known_once.taken(to_change=True)
    os.chdir(desk.folder)
    return desk


@pytest.fixture
def unchanged(_known_once: _Known, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a spec that was run and released, for tests that change nothing."""
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    monkeypatch.chdir(Path.cwd())
    desk = _known_once.taken(to_change=False)
    os.chdir(desk.folder)
    return desk


def _ran(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paritygate", "run", "spec.yaml", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def _changing(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("changing")
    (folder / "installed").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder / "installed"))
        return _run_and_released(folder)


@pytest.fixture
def settled(_changing: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a spec of which nothing has changed, for tests that change one thing: it is cheaper than a new run."""
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    monkeypatch.chdir(_changing.folder)
    monkeypatch.setenv("PYTHONPATH", str(_changing.folder / "installed"))
    _changing.spec()
    assert any("nothing has changed" in _ran().stdout for _ in range(3))
    return _changing


def test_it_says_that_nothing_has_changed_and_what_it_came_to(unchanged: Desk) -> None:
    runs = unchanged.runs
    said = _ran().stdout
    assert said.startswith(f"nothing has changed since run {runs[-1].name} of ")
    assert "verdict: pass: tiny" in said
    assert "tiny version 1 already holds exactly this: no new version was made; alias prod" in said
    assert unchanged.runs == runs


def test_its_json_says_of_each_job_where_it_was_done(unchanged: Desk) -> None:
    first, *_, last = (*unchanged.runs, unchanged.runs[-1])
    ran = _ran("--json", "-")
    (run,) = json.loads(ran.stdout)["runs"]
    assert (ran.returncode, run["run"], run["exit_code"]) == (0, str(last), 0)
    assert [job["taken_from"] for job in run["jobs"]] == [first.name] * 3
    assert (run["release"]["version"], run["release"]["is_new"], run["release"]["record"]) == (1, False, None)


@pytest.mark.usefixtures("unchanged")
def test_what_make_and_python_set_for_the_moment_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS", "PYTHONUNBUFFERED"):
        monkeypatch.setenv(name, "1")
    assert "nothing has changed" in _ran().stdout


def test_it_imports_no_framework_and_starts_no_child(unchanged: Desk) -> None:
    assert looked_at(["run", "spec.yaml"], unchanged.folder / "look.json") == {"frameworks": [], "children": 0}


def test_more_than_it_printed_is_looked_up_job_by_job(known: Desk) -> None:
    first = known.runs[0]
    before = len(known.runs)
    said = _ran("--verbose").stdout
    assert f"all 3 jobs were reused from run {first.name}, since nothing that they read has changed" in said
    assert len(known.runs) == before + 1


@pytest.mark.parametrize(
    "change",
    [
        "its report",
        pytest.param("another run", marks=pytest.mark.thorough),
        "an alias",
        "a released file",
        "a package",
        pytest.param("the path", marks=pytest.mark.thorough),
        "the spec",
        pytest.param("an option", marks=pytest.mark.thorough),
    ],
)
def test_what_the_run_itself_follows_counts(
    settled: Desk, change: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words: list[str] = []
    place = settled.folder / "installed"
    if change == "its report":
        (settled.runs[-1] / "report.html").write_text("something else")
    elif change == "another run":
        with jobs_done_here():
            assert settled.call("run", "spec.yaml", "--no-promote").code == 0
    elif change == "an alias":
        assert settled.call("alias", "tiny", "staging", "1").code == 0
    elif change == "a released file":
        released = list(settled.folder.glob("artifacts/repository/store/tiny/*/onnx-*/model.onnx"))
        assert released
        for path in released:
            path.unlink()
    elif change == "a package":
        (place / "more.py").touch()
    elif change == "the path":
        monkeypatch.setenv("PYTHONPATH", f"{place}{os.pathsep}{tmp_path}")
    elif change == "the spec":
        settled.spec(decisions={"logits": {"threshold": 0}})
    else:
        words = ["--alias", "canary"]
    before = len(settled.runs)

    assert "nothing has changed" not in _ran(*words).stdout
    assert len(settled.runs) == before + 1


def test_a_released_file_that_is_damaged_is_said_and_released_anew(known: Desk) -> None:
    (released,) = known.folder.glob("artifacts/repository/store/tiny/1/onnx-*/model.onnx")
    released.chmod(0o644)
    released.write_bytes(released.read_bytes() + b"1")

    said = " ".join(_ran().stdout.split())
    assert "released tiny version 2" in said
    assert "warning: version 1 was made of the same files, but they changed since the release" in said
    assert "convert-and-validate verify tiny 1" in said
    assert known.call("verify", "tiny", "1").code == 5


def test_a_record_that_is_edited_is_found_out(known: Desk) -> None:
    (record,) = known.folder.glob("artifacts/repository/log/tiny/000001.json")
    found = record.stat()
    record.chmod(0o644)
    record.write_text(record.read_text().replace("sha256:", "sha255:", 1))
    os.utime(record, ns=(found.st_atime_ns, found.st_mtime_ns))

    assert _ran().returncode == 5
    with jobs_done_here():
        assert known.call("run", "spec.yaml").code == 5


def test_what_json_was_written_beside_the_spec_does_not_count(unknown: Desk) -> None:
    unknown.module(
        "rows",
        """
        from pathlib import Path
        import numpy as np
        from paritygate.batch import Batch

        def rows():
            names = sorted(path.name for path in Path(__file__).parent.iterdir() if path.suffix == ".npz")
            for name in names:
                values = np.load(Path(__file__).parent / name)["x"]
                yield Batch(inputs={"x": values}, ids=tuple(map(str, range(len(values)))))
        """,
    )
    unknown.spec(samples={"source": "rows:rows"})
    first = unknown.json("run", "spec.yaml", "--json", str(unknown.folder / "out.json"))
    assert {job["not_kept"] for job in first.data["runs"][0]["jobs"]} == {""}

    again = _ran("--verbose", "--json", "out.json")
    assert all(job["taken_from"] for job in json.loads((unknown.folder / "out.json").read_text())["runs"][0]["jobs"])
    assert again.returncode == 0


@pytest.fixture
def two_places(tmp_path: Path) -> Path:
    """Return a folder with two places that links may lead to; in the second one, nothing can be read."""
    here = make_desk(tmp_path).folder
    for place in ("one", "two"):
        (here / place).mkdir()
        for name in ("spec.yaml", "model.onnx", "inputs.npz"):
            data = (here / name).read_bytes()
            (here / place / name).write_bytes(data if place == "one" else bytes(len(data)))
    return here


@pytest.mark.thorough
def test_a_link_that_is_led_elsewhere_counts(two_places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = two_places
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    monkeypatch.chdir(here)
    # The folder of the spec, the spec in it, and the samples; a run that begins is another one, so these are the last.
    links = {"now": "", "one/now.yaml": "spec.yaml", "now.npz": "inputs.npz"}

    def lead(link: str, place: str) -> None:
        (here / link).unlink(missing_ok=True)
        (here / link).symlink_to(here / place / links[link])

    def ran() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "paritygate", "run", "now/now.yaml", "--samples", "now.npz"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    for link in links:
        lead(link, "one")
    (here / "two/now.yaml").write_bytes((here / "two/spec.yaml").read_bytes())
    assert ran().returncode == 0
    for link in links:
        assert "nothing has changed" in ran().stdout
        lead(link, "two")
        elsewhere = ran()
        assert elsewhere.returncode not in {0, 1}
        assert "nothing has changed" not in elsewhere.stdout
        lead(link, "one")


def test_a_spec_that_is_edited_while_its_run_goes_on_is_run(unknown: Desk) -> None:
    unknown.spec(decisions={"logits": {"threshold": 1}})
    command = [sys.executable, "-c", _EDITED_MEANWHILE, "run", "spec.yaml"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert "threshold: 2" in (unknown.folder / "spec.yaml").read_text()

    assert "nothing has changed" not in subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_what_is_damaged_is_not_said_again(known: Desk) -> None:
    (entry,) = _finished_runs(known)
    before = len(known.runs)
    digest, text = entry.read_bytes().split(b"\n", maxsplit=1)
    data = json.loads(text)
    entry.chmod(0o644)
    damaged = json.dumps({**data, "value": {"folder": data["value"]["folder"]}}).encode()
    entry.write_bytes(digest + b"\n" + damaged)

    ran = _ran()
    assert (ran.returncode, len(known.runs)) == (0, before + 1)
    assert "all 3 jobs were reused" in ran.stdout


def test_the_one_that_looks_would_notice(unknown: Desk) -> None:
    unknown.onnx("other.onnx", fill=1.0)
    words = ["compare", "model.onnx", "other.onnx", "--samples", "inputs.npz", "--probes", "none"]
    found = looked_at(words, unknown.folder / "look.json")
    assert found["children"] > 0


def test_what_does_not_run_here_is_known_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(folder=tmp_path)
    desk.onnx()
    desk.samples()
    desk.spec(targets=["onnx-fp32", "openvino-bf16"], required=["onnx-fp32"])
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    words = ["run", "spec.yaml", "--no-benchmark", "--no-promote"]
    first = desk.json(*words).data["runs"][0]["variants"]["openvino-bf16"]
    if not first["not_run_here"]:
        pytest.skip("this CPU computes in bf16")

    assert looked_at(["run", "spec.yaml", "--verbose", *words[2:]], desk.folder / "look.json") == {
        "frameworks": [],
        "children": 0,
    }
    second = desk.json(*words).data["runs"][0]["variants"]["openvino-bf16"]
    assert (second["verdict"], second["not_run_here"]) == ("not run here", first["not_run_here"])
