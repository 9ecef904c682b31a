"""What a run takes over from an earlier one: nothing that read what has changed since, in whatever way it was read.

Each change is made alone, and what the run then finds is held against a run that takes nothing over.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.pipelines.conftest import Desk

pytestmark = [
    pytest.mark.children,
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="only Linux tells what a process reads"),
]

_ROWS = """
    import json
    import os
    from pathlib import Path

    import numpy as np
    import onnxruntime
    from safetensors import safe_open

    from helper import SCALE
    from paritygate.batch import Batch

    HERE = Path(__file__).parent

    def rows():
        parts = sorted((HERE / "parts").glob("*.npy"))
        scale = SCALE + sum(float(np.load(path).sum()) for path in parts) + 10 * len(parts)
        scale += json.loads((HERE / "config.json").read_text())["add"]
        scale += float((HERE / "link.txt").read_text())
        scale += float(os.environ.get("SCALE_OF_TEST", "0"))
        scale += float((HERE / "folder").resolve().joinpath("value.txt").read_text())
        scale += float(os.readlink(HERE / "named"))
        scale += float(max((HERE / "versions").glob("*.txt"), key=lambda path: path.stat().st_mtime).read_text())
        if (HERE / "override.txt").exists():
            scale += float((HERE / "override.txt").read_text())
        scale += (HERE / "sized.bin").stat().st_size
        with safe_open(str(HERE / "native.safetensors"), framework="np") as native:
            scale += float(native.get_tensor("add").sum())
        scaling = onnxruntime.InferenceSession(str(HERE / "scaling.onnx"))
        scale += float(scaling.run(None, {"x": np.ones((1, 4), np.float32)})[0].sum())
        values = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32) * scale
        for start in range(0, 120, 40):
            yield Batch(inputs={"x": values[start : start + 40]}, ids=tuple(map(str, range(start, start + 40))))
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A model whose samples are made by code that reads files in all the ways that are known; run once."""
    desk = Desk(folder=tmp_path_factory.mktemp("what-changes"))
    desk.onnx()
    desk.onnx("scaling.onnx", fill=0.5)
    desk.module("rows", _ROWS)
    desk.module("helper", "SCALE = 1.0\n")
    here = desk.folder
    (here / "config.json").write_text('{"add": 1}')
    (here / "one.txt").write_text("1")
    (here / "two.txt").write_text("2")
    (here / "link.txt").symlink_to("one.txt")
    (here / "sized.bin").write_bytes(bytes(3))
    for name in ("real_1", "real_2"):
        (here / name).mkdir()
        (here / name / "value.txt").write_text(name[-1])
    (here / "folder").symlink_to("real_1")
    (here / "named").symlink_to("3")
    (here / "versions").mkdir()
    (here / "versions/old.txt").write_text("4")
    (here / "versions/new.txt").write_text("6")
    os.utime(here / "versions/old.txt", (1e9, 1e9))
    (here / "parts").mkdir()
    np.save(here / "parts/a.npy", np.ones(3))
    save_file({"add": np.ones(2, np.float32)}, str(here / "native.safetensors"))
    desk.spec(samples={"source": "rows:rows"})
    # Of a file that was changed just now, its times do not tell whether it is changed again.
    time.sleep(2.2)
    first = desk.json("run", "spec.yaml")
    assert first.code == 0, str(first)
    jobs = first.data["runs"][0]["jobs"]
    assert _done(first.data) == ["export", "record", "compare"], jobs
    assert [job["not_kept"] for job in jobs] == ["", "", ""]
    return desk


_KINDS = {"the conversion": "export", "the recording": "record", "the comparison": "compare"}


def _done(data: dict[str, Any]) -> list[str]:
    """Return which jobs were done, and not taken over."""
    jobs = data["runs"][0]["jobs"]
    return [
        name for job in jobs for start, name in _KINDS.items() if job["job"].startswith(start) and not job["taken_from"]
    ]


def _found(desk: Desk) -> tuple[Any, ...]:
    """Return what the last run found."""
    from paritygate.pipelines.run.workspace import open_run

    evidence = open_run(desk.runs[-1]).evidence()
    assert evidence is not None
    ((entry),) = evidence.variants
    assert entry.result is not None
    outputs = {name: (item.max_abs_diff, item.std_diff) for name, item in entry.result.outputs.items()}
    limits = {key: value for key, value in entry.result.tolerance.items() if value is not None}
    return evidence.samples.digest, entry.artifact, entry.verdict, str(outputs), str(limits)


@dataclass(frozen=True)
class _Change:
    """A change, and which jobs have to be done again; what it does is undone."""

    name: str
    do: Callable[[Path], Callable[[], None]]
    again: tuple[str, ...]
    words: tuple[str, ...] = ()


def _write(name: str, content: bytes | str, *, keeps_times: bool = False) -> Callable[[Path], Callable[[], None]]:
    def do(here: Path) -> Callable[[], None]:
        path = here / name
        before = path.read_bytes() if path.exists() else None
        found = path.stat() if path.exists() else None
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if keeps_times and found is not None:
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

        def undo() -> None:
            if before is None:
                path.unlink()
            else:
                path.write_bytes(before)
                assert found is not None
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

        return undo

    return do


def _flip(name: str, at: int) -> Callable[[Path], Callable[[], None]]:
    def do(here: Path) -> Callable[[], None]:
        content = bytearray((here / name).read_bytes())
        content[at] ^= 0x40
        return _write(name, bytes(content), keeps_times=True)(here)

    return do


def _link(target: str, name: str = "link.txt") -> Callable[[Path], Callable[[], None]]:
    def do(here: Path) -> Callable[[], None]:
        link = here / name
        before = link.readlink()
        link.unlink()
        link.symlink_to(target)

        def undo() -> None:
            link.unlink()
            link.symlink_to(before)

        return undo

    return do


def _variable(name: str, value: str) -> Callable[[Path], Callable[[], None]]:
    def do(here: Path) -> Callable[[], None]:
        del here
        os.environ[name] = value
        return lambda: os.environ.pop(name) and None

    return do


def _touch(name: str) -> Callable[[Path], Callable[[], None]]:
    def do(here: Path) -> Callable[[], None]:
        os.utime(here / name)
        return lambda: None

    return do


def _part(here: Path) -> Callable[[], None]:
    np.save(here / "parts/b.npy", np.ones(3))
    return (here / "parts/b.npy").unlink


def _removed_part(here: Path) -> Callable[[], None]:
    content = (here / "parts/a.npy").read_bytes()
    (here / "parts/a.npy").unlink()
    return lambda: (here / "parts/a.npy").write_bytes(content) and None


def _spec(**parts: object) -> Callable[[Path], Callable[[], None]]:
    def do(here: Path) -> Callable[[], None]:
        desk = Desk(folder=here)
        desk.spec(samples={"source": "rows:rows"}, **parts)
        return lambda: desk.spec(samples={"source": "rows:rows"}) and None

    return do


def _newest(here: Path) -> Callable[[], None]:
    found = (here / "versions/new.txt").stat()
    os.utime(here / "versions/new.txt", (5e8, 5e8))
    return lambda: os.utime(here / "versions/new.txt", ns=(found.st_atime_ns, found.st_mtime_ns))


def _replaced(here: Path) -> Callable[[], None]:
    """Put a file of other content in the place of one, as a rename does."""
    (here / "new.json").write_text('{"add": 7}')
    (here / "new.json").replace(here / "config.json")
    return lambda: (here / "config.json").write_text('{"add": 1}') and None


_ALL = ("export", "record", "compare")
# The conversion holds the source against all samples.
_SAMPLES = _ALL
_SAME_ANSWER = (
    "a variable of a library",
    "a variable that compiled code may read",
    "a content of which the size is looked at",
)
_CHANGES = (
    _Change("nothing", lambda _: lambda: None, ()),
    _Change("a file is touched", _touch("config.json"), ()),
    _Change("a model is touched", _touch("model.onnx"), ()),
    _Change("a file that nobody reads", _write("unread.txt", "1"), ()),
    _Change("a variable of a CI job", _variable("GITHUB_RUN_ID", "1"), ()),
    _Change("a variable that compiled code may read", _variable("UNREAD_OF_TEST", "1"), _ALL),
    _Change("a shell's own variable", _variable("COLUMNS", "77"), ()),
    _Change("the limits of the release", _spec(promote={"alias": "staging"}), ()),
    _Change("a tolerance", _spec(tolerance={"onnx-fp32": {"max_abs_diff": 0.5}}), ()),
    _Change("a decision", _spec(decisions={"logits": {"threshold": 0.0}}), ()),
    _Change("a role", _spec(roles={"x": {"role": "number", "nan": False}}), ("record", "compare")),
    _Change("a rule of an output", _spec(outputs={"logits": {"min_cosine_similarity": 0.5}}), ()),
    # The export does not depend on it, and is refused all the same.
    _Change("a role of an input that is not there", _spec(roles={"y": {"nan": False}}), ()),
    _Change("the seed", _spec(seed=3), ("record", "compare")),
    _Change("the opset", _spec(opset=18), ("export", "compare")),
    _Change("the samples' code", _write("rows.py", "\n"), _SAMPLES),
    _Change("a module that it imports", _write("helper.py", "SCALE = 3.0\n"), _SAMPLES),
    _Change("the same length of code", _write("helper.py", "SCALE = 5.0\n"), _SAMPLES),
    _Change("a text", _write("config.json", '{"add": 5}'), _SAMPLES),
    _Change("a text, with size and time kept", _write("config.json", '{"add": 2}', keeps_times=True), _SAMPLES),
    _Change("a file that is renamed to it", _replaced, _SAMPLES),
    _Change("a link's target", _link("two.txt"), _SAMPLES),
    _Change("a link to a folder that is resolved", _link("real_2", "folder"), _SAMPLES),
    _Change("a link that is read itself", _link("5", "named"), _SAMPLES),
    _Change("which of two files is newer", _newest, _SAMPLES),
    _Change("what a link leads to", _write("one.txt", "4"), _SAMPLES),
    _Change("a file that was not there", _write("override.txt", "5"), _SAMPLES),
    _Change("a file in a listed folder", _part, _SAMPLES),
    _Change("a file of a listed folder is gone", _removed_part, _SAMPLES),
    _Change("a size that is looked at", _write("sized.bin", bytes(9)), _SAMPLES),
    _Change("a content of which the size is looked at", _write("sized.bin", b"abc"), _SAMPLES),
    _Change("a variable that it reads", _variable("SCALE_OF_TEST", "2"), _SAMPLES),
    _Change("a variable of a library", _variable("OMP_NUM_THREADS", "1"), _ALL),
    _Change("a file of another kind in the folder of the code", _write("notes.md", "1"), ()),
    _Change("a byte that a native library reads", _flip("native.safetensors", -2), _SAMPLES),
    _Change("a byte of a model that native code reads", _flip("scaling.onnx", -60), _SAMPLES),
    _Change("a module that stands in for one of the package", _write("safetensors.py", "raise SystemExit\n"), ()),
)


@pytest.mark.thorough
@pytest.mark.parametrize("change", _CHANGES, ids=lambda change: change.name)
def test_what_read_it_is_done_again_and_nothing_else(bench: Desk, change: _Change) -> None:
    undo = change.do(bench.folder)
    try:
        called = bench.json("run", *change.words, "spec.yaml")
        found = _found(bench) if called.code == 0 else called.code
        anew = bench.json("run", "--no-cache", *change.words, "spec.yaml")
        expected = _found(bench) if anew.code == 0 else anew.code
    finally:
        undo()

    assert found == expected
    assert called.code == anew.code
    if called.code == 0:
        assert _done(called.data) == list(change.again), [job["why"] for job in called.data["runs"][0]["jobs"]]
        if change.again == _SAMPLES and change.name not in _SAME_ANSWER:
            # It was worth doing again: another thing came of it.
            assert found[0] != _first(bench)
        # What was there before is known still.
        again = bench.json("run", *change.words, "spec.yaml")
        assert _done(again.data) == [], [job["why"] for job in again.data["runs"][0]["jobs"]]


def _first(desk: Desk) -> str:
    from paritygate.pipelines.run.workspace import open_run

    evidence = open_run(desk.runs[0]).evidence()
    assert evidence is not None
    return evidence.samples.digest


def test_what_was_done_for_it_says_so(bench: Desk) -> None:
    # Where nothing at all has changed, only this looks at each job for itself.
    called = bench.json("run", "spec.yaml", "--verbose")

    assert "all 3 jobs were reused from " in called.out
    (result,) = called.data["runs"][0]["variants"].values()
    assert any("nothing that was read then has changed since" in note for note in result["notes"])


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)


_ROWS_OF_A_SERVER = """
    import socket

    import numpy as np

    from paritygate.batch import Batch

    def rows():
        socket.create_connection(("127.0.0.1", {port})).close()
        values = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)
        yield Batch(inputs={{"x": values}}, ids=tuple(map(str, range(120))))
"""


def test_a_job_that_no_later_run_can_take_over_says_why(tmp_path: Path) -> None:
    desk = Desk(folder=tmp_path)
    desk.onnx()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        desk.module("rows", _ROWS_OF_A_SERVER.format(port=server.getsockname()[1]))
        desk.spec(samples={"source": "rows:rows"})

        shown = desk.call("run", "--no-promote", "--verbose", "spec.yaml")
        again = desk.json("run", "--no-promote", "spec.yaml")

    assert shown.code == 0, str(shown)
    words = "no later run can reuse the recording of tiny: it opened a network connection"
    assert shown.out.splitlines().count(words) == 1
    assert "no later run can reuse" not in again.out
    (record,) = (job for job in again.data["runs"][0]["jobs"] if job["job"].startswith("the recording"))
    assert (record["taken_from"], record["not_kept"]) == ("", "it opened a network connection")
    # The first of the jobs that asks that server; those after it follow from what comes of it.
    planned = desk.json("plan", "spec.yaml").data["plans"][0]["jobs"][0]
    (same,) = (job for job in again.data["runs"][0]["jobs"] if job["job"] == planned["job"])
    assert planned["would_be"] == "done"
    # As the run itself said.
    assert planned["why"] == same["why"]
    assert "it opened a network connection" in planned["why"]
