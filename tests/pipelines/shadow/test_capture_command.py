"""`capture` with real servers on the loopback interface: it accepts copies at once, and counts what it loses."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.loopback import QuietHandler, serving
from tests.processes import wait_until

from paritygate.__main__ import _run
from paritygate.errors import ParitygateError, StorageError, UsageError, ZeroRowsError
from paritygate.pipelines.shadow import events as events_module
from paritygate.pipelines.shadow import sending, sink
from paritygate.pipelines.shadow.capture import CapturedFile
from paritygate.pipelines.shadow.events import Events
from paritygate.pipelines.shadow.sending import CaptureRequest, CaptureResult
from paritygate.pipelines.shadow.sink import capture
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.endpoint.tensors import as_bytes

# Only an event that never comes takes so long.
PATIENCE_S = 600.0
X = np.array([[0.5, 2.0]], np.float32)
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 2.0]}]}).encode()


class _Doubling(QuietHandler):
    """Answers twice what it was sent, as JSON."""

    def post(self) -> None:
        said = json.loads(self.body()[: int(self.headers.get("Inference-Header-Content-Length", 1 << 20))])
        answer = {"outputs": [{"name": self.path, "datatype": "FP32", "shape": [1], "data": [len(said["inputs"])]}]}
        self.send(json.dumps(answer).encode())


class _Silent(QuietHandler):
    """Never answers."""

    def post(self) -> None:
        self.body()
        threading.Event().wait(PATIENCE_S)


class _SilentOnDemand(_Doubling):
    """Answers what was not sent to `/silent`."""

    def post(self) -> None:
        if self.path == "/silent":
            threading.Event().wait(PATIENCE_S)
        super().post()


class _Held(_Doubling):
    """Answers once it may."""

    may_answer = threading.Event()

    def post(self) -> None:
        self.may_answer.wait(PATIENCE_S)
        super().post()


class _Failing(QuietHandler):
    """Answers with an error."""

    def post(self) -> None:
        self.body()
        self.send(b'{"error": "?"}', 500)


class _Capture:
    """A capture in a thread, and the lines that it wrote."""

    def __init__(self, out: Path, server: str | None, **limits: float) -> None:
        chosen: dict[str, Any] = {"most": 1000, "most_bytes": 1 << 20, "seconds": PATIENCE_S, **limits}
        chosen = {"answer_s": PATIENCE_S, **chosen}
        self.out = out
        self.request = CaptureRequest(host="127.0.0.1", port=0, server=server, out=out, **chosen)
        self.result: CaptureResult | None = None
        self.error: ParitygateError | None = None
        self._address = ""
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._has_begun.wait(PATIENCE_S)

    def _run(self) -> None:
        try:
            self.result = capture(self.request, began=self._begin)
        except ParitygateError as err:
            self.error = err
        finally:
            self._has_begun.set()

    def _begin(self, address: str) -> None:
        self._address = address
        self._has_begun.set()

    @property
    def place(self) -> tuple[str, int]:
        return _place(self._address)

    def post(self, body: bytes, path: str = "/v2/models/m/infer", **headers: str) -> int:
        return _post(self._address, body, path, {name.replace("_", "-"): text for name, text in headers.items()})

    def wait(self) -> CaptureResult:
        self._thread.join(PATIENCE_S)
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text(encoding="utf-8").splitlines()]


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("http://").partition(":")
    return host, int(port)


def _post(address: str, body: bytes, path: str = "/v2/models/m/infer", headers: Mapping[str, str] | None = None) -> int:
    """Return the status of one request over a connection of its own."""
    with contextlib.closing(http.client.HTTPConnection(*_place(address), timeout=PATIENCE_S)) as connection:
        connection.request("POST", path, body, dict(headers or {}))
        return connection.getresponse().status


@pytest.fixture(autouse=True)
def _ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a capture look for its end more often."""
    monkeypatch.setattr(sink, "LOOK_S", 0.01)
    monkeypatch.setattr(sending, "LOOK_S", 0.01)


@pytest.fixture
def doubling() -> Iterator[str]:
    with serving(_Doubling) as address:
        yield address


def test_requests_and_answers_are_written_for_their_owner_alone(tmp_path: Path, doubling: str) -> None:
    captured = _Capture(tmp_path / "traffic.jsonl", doubling, most=3)

    assert [captured.post(BODY) for _ in range(3)] == [202] * 3

    result = captured.wait()
    assert (result.captured, result.unanswered, result.lost, result.ended_by) == (3, 0, 0, "requests")
    assert result.size_bytes == captured.out.stat().st_size
    assert stat.S_IMODE(captured.out.stat().st_mode) == 0o600
    assert {line["status"] for line in captured.lines} == {200}
    assert captured.lines[0]["request"] == json.loads(BODY)
    assert captured.lines[0]["response"]["outputs"][0]["name"] == "/v2/models/m/infer"


def test_a_path_of_the_server_takes_the_place_of_the_requests(tmp_path: Path, doubling: str) -> None:
    captured = _Capture(tmp_path / "traffic.jsonl", f"{doubling}/v2/models/other/infer", most=1)
    captured.post(BODY)

    captured.wait()
    assert captured.lines[0]["response"]["outputs"][0]["name"] == "/v2/models/other/infer"


def test_values_that_were_sent_as_bytes_are_written_as_numbers(tmp_path: Path, doubling: str) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [tensor]}).encode()
    captured = _Capture(tmp_path / "traffic.jsonl", doubling, most=1)
    captured.post(head + as_bytes(X), Inference_Header_Content_Length=str(len(head)))

    captured.wait()
    assert captured.lines[0]["request"]["inputs"][0]["data"] == [0.5, 2.0]


def test_events_of_a_request_and_its_answer_become_one_line(tmp_path: Path) -> None:
    captured = _Capture(tmp_path / "traffic.jsonl", None, most=2)
    kind = "org.kubeflow.serving.inference"
    captured.post(b'{"outputs": []}', "/", ce_id="2", ce_type=f"{kind}.response")
    captured.post(BODY, "/", ce_id="1", ce_type=f"{kind}.request")
    captured.post(BODY, "/", ce_id="2", ce_type=f"{kind}.request")
    captured.post(BODY, "/", ce_id="3", ce_type="something.else")
    captured.post(b'{"instances": []}', "/", ce_id="5", ce_type=f"{kind}.request")
    captured.post(BODY, "/", ce_id="4", ce_type=f"{kind}.request")
    captured.post(b'{"outputs": [4]}', "/", ce_id="4", ce_type=f"{kind}.response")

    result = captured.wait()
    assert (result.captured, result.unpaired, result.unreadable, result.ended_by) == (2, 1, 2, "requests")
    assert captured.lines == [{"response": {"outputs": outputs}, "request": json.loads(BODY)} for outputs in ([], [4])]


def _event(number: int, kind: str, body: bytes = BODY) -> sending.Copy:
    return sending.Copy("/", {"ce-id": str(number), "ce-type": f"org.kubeflow.serving.inference.{kind}"}, body)


@pytest.mark.parametrize(
    "kinds",
    [
        ["request", "request", "response", "response"],
        ["response", "response", "request", "request"],
        ["request", "request", "response", "request", "response"],
    ],
)
def test_events_that_share_an_id_are_no_pair(kinds: list[str]) -> None:
    events = Events()

    assert [events.add(_event(7, kind)) for kind in kinds] == [None] * len(kinds)
    assert events.unpaired == len(kinds)
    assert [events.add(_event(8, kind)) is None for kind in ("response", "request")] == [True, False]
    assert events.unpaired == len(kinds)


@pytest.mark.parametrize("is_answer_first", [True, False])
def test_an_answer_event_that_nobody_can_read_is_kept_without_its_body(*, is_answer_first: bool) -> None:
    events, pair = Events(), [_event(1, "response", b"<html>"), _event(1, "request")]

    first, line = (events.add(copy) for copy in (pair if is_answer_first else pair[::-1]))

    assert (first, line, events.unpaired) == (None, {"response": None, "request": json.loads(BODY)}, 0)


def test_events_without_an_answer_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "_MOST_PENDING_BYTES", 3 * len(BODY) + 10)
    events = Events()
    for number in range(5):
        events.add(_event(number, "request"))
    assert events.unpaired == 5

    # The oldest are dropped.
    kept = [events.add(_event(number, "response", b'{"outputs": []}')) is not None for number in range(4, 1, -1)]
    assert (kept, events.unpaired) == ([True] * 3, 2)
    assert events.add(_event(1, "response")) is None


@pytest.mark.parametrize(("handler", "status"), [(_Failing, 500), (_Silent, 0), (None, 0)])
def test_what_the_server_does_not_answer_is_unanswered(
    tmp_path: Path, handler: type[QuietHandler] | None, status: int
) -> None:
    with contextlib.ExitStack() as stack:
        address = "http://127.0.0.1:9" if handler is None else stack.enter_context(serving(handler))
        limits = {"answer_s": 0.3} if handler is _Silent else {}
        captured = _Capture(tmp_path / "traffic.jsonl", address, most=2, **limits)
        assert [captured.post(BODY) for _ in range(2)] == [202, 202]

        result = captured.wait()

    assert (result.captured, result.unanswered, result.lost) == (2, 2, 0)
    assert {line["status"] for line in captured.lines} == {status}


def test_what_cannot_wait_is_lost_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_MOST_WAITING", 2)
    with serving(_Held) as address:
        captured = _Capture(tmp_path / "traffic.jsonl", address, most=6)
        statuses = [captured.post(BODY) for _ in range(12)]
        _Held.may_answer.set()
        with contextlib.suppress(OSError, http.client.HTTPException):
            while captured.is_running:
                captured.post(BODY)
        result = captured.wait()

    assert set(statuses) == {202, 503}
    assert (result.captured, result.unanswered, result.ended_by) == (6, 0, "requests")
    assert result.lost >= statuses.count(503) >= 6


@pytest.mark.parametrize("body", [b"?", b"[]", b"\xff", b"[" * 100_000], ids=["text", "list", "bytes", "deep"])
def test_a_body_that_is_no_request_is_left_out(tmp_path: Path, doubling: str, body: bytes) -> None:
    captured = _Capture(tmp_path / "traffic.jsonl", doubling, most=1)
    captured.post(body)
    captured.post(BODY)

    result = captured.wait()
    assert (result.captured, len(captured.lines)) == (1, 1)


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"inputs": []}', b'{"inputs": {}}', b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2]}]}'],
)
def test_a_request_that_shadow_could_not_read_is_left_out(tmp_path: Path, doubling: str, body: bytes) -> None:
    captured = _Capture(tmp_path / "traffic.jsonl", doubling, most=2)
    captured.post(BODY)
    captured.post(body, "/v2/repository/index")
    captured.post(BODY)

    result = captured.wait()
    assert (result.captured, result.unreadable) == (2, 1)
    signature = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 2)),),
        outputs=(TensorSpec(name="/v2/models/m/infer", dtype="float32", shape=("batch",)),),
    )
    file = CapturedFile(path=captured.out, name="traffic.jsonl", signature=signature)
    assert [exchange.why for exchange in file.exchanges()] == ["", ""]


def test_copies_that_are_being_answered_at_the_end_are_lost(tmp_path: Path) -> None:
    with serving(_SilentOnDemand) as address:
        captured = _Capture(tmp_path / "traffic.jsonl", address, most=1)
        assert [captured.post(BODY, "/silent") for _ in range(3)] == [202] * 3
        assert captured.post(BODY) == 202
        result = captured.wait()

    assert (result.captured, result.lost) == (1, 3)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    captured = _Capture(tmp_path / "traffic.jsonl", None)
    kind = "org.kubeflow.serving.inference"
    line = json.dumps({"request": json.loads(BODY), "response": {"outputs": []}}, separators=(",", ":"))
    whole = 1000 // (len(line) + 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        for number in range(whole + 1):
            captured.post(BODY, "/", ce_id=str(number), ce_type=f"{kind}.request")
            captured.post(b'{"outputs": []}', "/", ce_id=str(number), ce_type=f"{kind}.response")
        with pytest.raises(StorageError):
            captured.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert captured.out.read_text(encoding="utf-8") == f"{line}\n" * whole


def test_the_file_ends_before_its_limit(tmp_path: Path, doubling: str) -> None:
    captured = _Capture(tmp_path / "traffic.jsonl", doubling, most_bytes=300)
    for _ in range(2):
        captured.post(BODY)

    result = captured.wait()
    assert (result.captured, result.lost, result.ended_by) == (1, 1, "size")
    assert 0 < captured.out.stat().st_size == result.size_bytes <= 300


def test_nothing_is_left_where_nothing_came(tmp_path: Path) -> None:
    captured = _Capture(tmp_path / "traffic.jsonl", None, seconds=0.3)

    with pytest.raises(ZeroRowsError):
        captured.wait()
    assert not captured.out.exists()


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    (tmp_path / "traffic.jsonl").write_text("kept", encoding="utf-8")

    with pytest.raises(UsageError):
        _Capture(tmp_path / "traffic.jsonl", None, seconds=0.3).wait()
    assert (tmp_path / "traffic.jsonl").read_text(encoding="utf-8") == "kept"


def test_a_port_in_use_and_a_missing_folder_are_refused(tmp_path: Path, doubling: str) -> None:
    port = int(doubling.rpartition(":")[2])
    request = CaptureRequest(
        host="127.0.0.1", port=port, server=None, out=tmp_path / "a.jsonl", most=1, most_bytes=1, seconds=1
    )
    with pytest.raises(UsageError):
        capture(request)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError):
        _Capture(tmp_path / "none" / "a.jsonl", None).wait()


@pytest.mark.parametrize(("handler", "code"), [(_Doubling, 0), (_Failing, 5), (None, 5)])
def test_a_server_that_answers_nothing_is_an_error(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    handler: type[QuietHandler] | None,
    code: int,
) -> None:
    out, said = tmp_path / "traffic.jsonl", tmp_path / "said.json"
    places: list[str] = []

    def captured(*args: Any, began: Callable[[str], object], **more: Any) -> CaptureResult:  # noqa: ANN401 - handed on
        def begin(address: str) -> None:
            began(address)
            places.append(address)
            _post(address, BODY)

        return capture(*args, began=begin, **more)

    monkeypatch.setattr(sink, "capture", captured)
    with contextlib.ExitStack() as stack:
        address = "http://127.0.0.1:9" if handler is None else stack.enter_context(serving(handler))
        words = ["--send-to", address, "--out", str(out), "--listen", "0", "--requests", "1"]
        ended = _run(["capture", *words, "--json", str(said)])

    assert ended == code
    assert json.loads(said.read_text(encoding="utf-8"))["exit_code"] == code
    assert len(out.read_text(encoding="utf-8").splitlines()) == 1
    told = " ".join(capfd.readouterr().err.split())
    assert [told.count(f"listening at {place}") for place in places] == [1]
    assert ("--send-to" in told) == bool(code)


@pytest.mark.parametrize("text", ["127.0.0.1:8000", "me:secret@host:80", "host?secret", "ftp://me:secret@h/p"])
def test_a_wrong_address_is_shown_as_it_was_typed(tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
    assert _run(["capture", "--send-to", text, "--out", str(tmp_path / "a.jsonl")]) == 2

    err = capfd.readouterr().err
    assert "secret" not in err
    assert text.rpartition("@")[2].partition("?")[0] in err
    assert "://" not in err.partition("is not an address")[0] or "://" in text


def _connected(captured: _Capture) -> socket.socket:
    return socket.create_connection(captured.place, PATIENCE_S)


def _is_taken(captured: _Capture, body: bytes = BODY, path: str = "/v2/models/m/infer", **headers: str) -> bool:
    try:
        return captured.post(body, path, **headers) == 202
    except ConnectionError:  # a server that refuses a body reads none of it
        return False


def _end(captured: _Capture) -> CaptureResult:
    """Return the result of a capture of events that ends after one request."""
    for kind, body in (("request", BODY), ("response", b'{"outputs": []}')):
        event = {"ce_id": "1", "ce_type": f"org.kubeflow.serving.inference.{kind}"}
        # The server frees a connection some time after its client closed it.
        wait_until(partial(_is_taken, captured, body, "/", **event))
    return captured.wait()


@pytest.mark.parametrize("length", ["9" * 5000, str(sending.MOST_BODY + 1)])
def test_a_length_that_is_too_large_is_refused_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], length: str
) -> None:
    captured = _Capture(tmp_path / "traffic.jsonl", None, most=1)
    with _connected(captured) as connection:
        connection.sendall(f"POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")

    assert _end(captured).lost == 1
    assert not capsys.readouterr().err


def test_bodies_that_are_being_received_take_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "_MOST_RECEIVING_BYTES", 1000)
    captured = _Capture(tmp_path / "traffic.jsonl", None, most=1)
    with _connected(captured) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{")
        # The server may see this body some time after it was sent.
        wait_until(lambda: not _is_taken(captured))

    # The rest never comes.
    wait_until(lambda: _is_taken(captured))
    assert _end(captured).lost >= 2


def test_connections_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sink, "_MOST_CONNECTIONS", 2)
    captured = _Capture(tmp_path / "traffic.jsonl", None, most=1)
    with _connected(captured), _connected(captured), _connected(captured) as third:
        assert not third.recv(100)

    wait_until(lambda: _is_taken(captured))
    assert _end(captured).lost >= 1
    assert not capsys.readouterr().err


def test_the_end_closes_a_connection_whose_body_is_not_whole(tmp_path: Path) -> None:
    captured = _Capture(tmp_path / "traffic.jsonl", None, most=1)
    with _connected(captured) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n{")
        assert _end(captured).ended_by == "requests"
        assert not connection.recv(100), "the thread still waits for the rest"
