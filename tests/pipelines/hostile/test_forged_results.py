"""What a child leaves may be written by code of the model: what paritygate would not write is one clear error."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.conftest import _run_here, jobs_done_here

from paritygate.errors import BackendError
from paritygate.pipelines.process import child
from paritygate.pipelines.process.child import ChildJob, StartedChild

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Desk

_DEEP = json.loads("[" * 400 + "]" * 400)
_FORGED: list[Any] = [
    None, 0, "text", [], [1], {}, {"main": "../../x"}, {"main": "model.onnx", "signature": 3, "ties": []},
    {"verdict": "pass", "exit_code": "0"}, {"verdict": "pass", "probes": 3}, {"checks": {"a": 1}}, _DEEP,
    {"verdict": "pass", "exit_code": 0, "checks": [], "outputs": {}},
]  # fmt: skip
_CALLS = {
    "export": (("run", "spec.yaml"), 4),
    "compare": (("run", "spec.yaml"), 5),
    "selftest": (("selftest", "spec.yaml"), 5),
    "inspect": (("inspect", "model.onnx"), 5),
}


@pytest.mark.parametrize("forged", _FORGED, ids=lambda forged: repr(forged)[:30])
@pytest.mark.parametrize("name", _CALLS)
def test_a_forged_result_is_an_error_of_its_job(name: str, forged: object, desk: Desk) -> None:
    words, code = _CALLS[name]

    def forge(job: ChildJob, *args: Any) -> Any:  # noqa: ANN401 - as `run_child`
        return forged if job.name == name else _run_here(job, *args)

    with jobs_done_here(forge):
        called = desk.call(*words)

    assert called.code == code, str(called)
    assert "unexpected" not in called.err + called.out
    assert desk.releases == []


def _child(folder: Path, content: str) -> StartedChild:
    """Return a child that has ended, and whose result holds something."""
    job = ChildJob(name="compare", args={}, folder=folder, what="it", time_limit_s=1, crash_error=BackendError)
    job.log.touch()
    (folder / "compare.result.json").write_text(content, encoding="utf-8")

    class _Ended:
        returncode = 0

        @staticmethod
        def poll() -> int:
            return 0

    return StartedChild(
        job=job,
        process=_Ended(),
        events=None,
        result=folder / "compare.result.json",
        memory=None,  # type: ignore[arg-type]  # not looked at
    )


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "3", "null", "NaN", '"ok"', "[" * 100_000, '{"status": "ok"}', '{"status": ["ok"], "value": 1}',
        '{"status": "error", "class": "UnsupportedOperatorsError", "message": 1, "hint": 2, "rows": 3}',
        '{"status": "error", "class": "UnsupportedOperatorsError", "message": "", "hint": "", "rows": [[1]]}',
        '{"status": "error", "class": "ParitygateError", "message": [], "hint": {}}',
        '{"status": "error", "class": "__builtins__", "message": "m", "hint": "h"}',
        '{"status": "crash", "message": {}}', '{"status": "ok", "value": ' + "9" * 5000 + "}",
    ],
    ids=lambda content: content[:40],
)  # fmt: skip
def test_a_forged_file_is_an_error_of_its_job(content: str, tmp_path: Path) -> None:
    with pytest.raises(child.ParitygateError):
        child.result_of_child(_child(tmp_path, content), "")


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"3", b'{"stage": 1}', b'{"stage": 1, "done": 1e999, "total": 1}', b"[" * 100_000,
     b'{"stage": "x", "done": ' + b"9" * 5000 + b', "total": 1}', b'{"stage": "x", "done": [], "total": {}}'],
    ids=lambda line: line[:30].decode(),
)  # fmt: skip
def test_a_forged_event_is_an_error_of_its_job(line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[StartedChild] = []
    monkeypatch.setattr(child, "stop_child", stopped.append)
    events = child.ChildEvents(_child(tmp_path, "{}"))
    events.pending = line + b"\n"

    with pytest.raises(BackendError):
        events.reply(time.monotonic() + 60, lambda *_: None)

    assert len(stopped) == 1


def test_this_forges_what_is_read(desk: Desk) -> None:
    names: list[str] = []

    def note(job: ChildJob, *args: Any) -> Any:  # noqa: ANN401 - as `run_child`
        names.append(job.name)
        return _run_here(job, *args)

    do: Callable[..., Any] = note
    with jobs_done_here(do):
        assert desk.call("run", "spec.yaml").code == 0

    assert {"export", "record", "compare"} <= set(names)
