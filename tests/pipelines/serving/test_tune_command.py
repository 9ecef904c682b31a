"""The command `tune` on a small server that speaks as Triton does, and lies, slows down or goes away as it is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from tests.loopback import QuietHandler, serving
from tests.pipelines.serving.conftest import SIGNATURE

from paritygate.errors import BackendError, ChangedViewError, InputFileError, MeasurementError, UsageError
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.live.loops import Sent, Window
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.release.views.view_updates import update_views
from paritygate.pipelines.serving.protobuf import data_of
from paritygate.pipelines.serving.triton.messages import parse_text
from paritygate.pipelines.serving.triton.settings import Settings, settings_of, with_settings
from paritygate.pipelines.tuning import measuring
from paritygate.signature import Dim

# What an answer takes by the clock of the tests: the time that this process takes for one does not count.
_CALL_S = 0.02
_METRICS = b"""# HELP nv_cpu_utilization CPU utilization rate [0.0 - 1.0]
nv_cpu_utilization 0.5
nv_cpu_memory_used_bytes 3145728
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.25
nv_gpu_utilization{gpu_uuid="GPU-2"} 0.125
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 1048576
nv_gpu_memory_used_bytes{gpu_uuid="GPU-2"} 3145728
nv_inference_count{model="adds",version="1"} NaN
"""


@dataclass
class Server:
    """What the server does, and what it was asked."""

    url: str = ""
    name: str = "triton"
    is_controlled: bool = True
    # Whether it has addresses of versions; and the version that it says it has and answers as, if any.
    is_versioned: bool = True
    version: str = ""
    # Of the request, counted from 0: what happens in place of the right answer.
    instead: Callable[[int], Any] = lambda _: None
    refuses: Callable[[Mapping[str, Any]], bool] = lambda _: False
    config: dict[str, Any] = field(default_factory=dict)
    loads: list[Mapping[str, Any]] = field(default_factory=list)
    asked: int = 0
    rows: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self, config: dict[str, Any]) -> None:
        self.config = config

    @property
    def settings(self) -> Settings:
        return settings_of(self.config)


def _stats(server: Server) -> dict[str, Any]:
    """Return what the server counts, as if each request waited 3 ms and was computed in 20."""
    spent = {"success": server.rows, "queue": 3 * server.rows, "compute_infer": 20 * server.rows}
    spent |= {"cache_hit": 0} if server.config.get("response_cache") else {}
    return {
        "inference_count": server.rows,
        "execution_count": max(1, server.rows // 2),
        "inference_stats": {name: {"count": server.rows, "ns": ms * 10**6} for name, ms in spent.items()},
    }


def _answer(server: Server, body: bytes, length: int, wrong: Any) -> tuple[bytes, bytes]:  # noqa: ANN401 - as `instead`
    """Return JSON and bytes of an answer, which a function may change."""
    shape = json.loads(body[:length])["inputs"][0]["shape"]
    y = np.frombuffer(body[length:], dtype=np.float32).reshape(shape) + 1
    raw = (wrong(y) if callable(wrong) else y).astype(np.float32).tobytes()
    output = {"name": "y", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    said = {"model_version": server.version} if server.version else {}
    return json.dumps({**said, "outputs": [output]}).encode(), raw


def _pages(server: Server) -> dict[str, Any]:
    """Return what the server says of itself and of the model, by path."""
    described = [{"datatype": "FP32", "shape": [-1, 4], "name": name} for name in "xy"]
    pages: dict[str, Any] = {
        "/v2": {"name": server.name, "version": "2.0", "extensions": ["binary_tensor_data"]},
        "/v2/models/adds/versions/1": {"name": "adds", "inputs": described[:1], "outputs": described[1:]},
        "/v2/models/adds/config": server.config if server.is_controlled else None,
        "/v2/models/adds/versions/1/stats": {"model_stats": [_stats(server)]},
    }
    if not server.is_versioned:
        model = pages.pop("/v2/models/adds/versions/1")
        pages["/v2/models/adds"] = {**model, "versions": [server.version] if server.version else []}
    return pages


def _handler(server: Server) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def get(self) -> None:
            if self.path == "/metrics":
                self.send(_METRICS)
                return
            self.send_page(_pages(server))

        def post(self) -> None:
            body = self.body()
            if "/versions/" in self.path and not server.is_versioned:
                self.send(b'{"detail": "Not Found"}', 404)
                return
            if self.path == "/v2/repository/models/adds/load":
                asked = json.loads(body).get("parameters", {}).get("config")
                server.loads.append(json.loads(asked) if asked else {})
                if asked and server.refuses(server.loads[-1]):
                    self.send(b'{"error": "failed to load"}', 400)
                    return
                if asked:
                    server.load(server.loads[-1])
                self.send(b"")
                return
            with server.lock:
                wrong = server.instead(server.asked)
                server.asked += 1
                server.rows += 1
            if wrong == "vanish":
                self.connection.close()
                return
            if isinstance(wrong, tuple):
                self.send(wrong[1], wrong[0])
                return
            head, raw = _answer(server, body, int(self.headers["Inference-Header-Content-Length"]), wrong)
            self.send(head + raw, Inference_Header_Content_Length=str(len(head)))

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a server that answers rightly, until it is told otherwise."""
    told = Server()
    with serving(_handler(told)) as told.url:
        yield told


def words(server: Server, *more: str) -> list[str]:
    return [
        *("tune", "adds", "--url", server.url, "--out", "models", "--repository", "repository"),
        *("--samples", "inputs.npz", "--latency-budget", "500ms", "--max-batch-size", "16", "--queue-delay", "100us"),
        *("--instances", "1,4", "--seconds", "0.2", "--callers", "8", "--percentile", "90", *more),
    ]


@pytest.fixture
def steady_clock(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every request really be sent, one after the other, and take what it would on a machine with time to spare.

    `test_tune_load.py` is about the real loops.
    """

    def closed(
        send: Callable[[int], Any], *, callers: int, seconds: float, least: int = 1, first: int = 0
    ) -> Window[Any]:
        at_once = min(callers, server.settings.instances)
        count = max(least, callers, round(seconds * at_once / _CALL_S))
        each = _CALL_S * callers / at_once
        sent = [Sent(at=0.0, latency=each, answer=send(first + number)) for number in range(count)]
        return Window(sent=sent, seconds=count * _CALL_S / at_once)

    def opened(send: Callable[[int], Any], times: Sequence[float], *, first: int = 0, **_: object) -> Window[Any]:
        sent = [Sent(at=at, latency=_CALL_S, answer=send(first + number)) for number, at in enumerate(times)]
        return Window(sent=sent, seconds=times[-1] + _CALL_S)

    monkeypatch.setattr(measuring, "closed_loop", closed)
    monkeypatch.setattr(measuring, "open_loop", opened)


@pytest.fixture
def call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: Server,
    make_release: Callable[..., StoredRelease],
    steady_clock: None,
) -> Callable[..., Result]:
    """Return a function that calls the command on a release whose view was written, and that the server has."""
    del steady_clock
    monkeypatch.chdir(tmp_path)
    make_release()
    rows = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)
    np.savez(tmp_path / "inputs.npz", x=rows)
    write_view()
    server.load(view_config(tmp_path))

    def run(*more: str) -> Result:
        result = CliRunner().invoke(cli, words(server, *more), standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return result

    return run


def write_view() -> dict[str, Any]:
    """Write the view by the command, and return what it says of it."""
    arguments = ["triton", "adds", "--out", "models", "--repository", "repository", "--json", "view.json"]
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert result.exception is None
    return dict(json.loads(Path("view.json").read_text()))


def view_config(folder: Path) -> dict[str, Any]:
    return data_of(parse_text((folder / "models/adds/config.pbtxt").read_text()))


def test_the_best_settings_are_written_with_their_evidence(
    tmp_path: Path, server: Server, call: Callable[..., Result]
) -> None:
    before = json.loads(json.dumps(server.config))
    first = (tmp_path / "models/adds/config.pbtxt").read_text().splitlines()[0]

    result = call("--json", "result.json")

    # Four calls at once are four times as many, and nothing else makes a difference.
    assert settings_of(view_config(tmp_path)) == Settings(max_batch_size=16, instances=4, queue_delay_us=100)
    assert (tmp_path / "models/adds/config.pbtxt").read_text().splitlines()[0] == first
    assert result.return_value == 0
    assert max(map(len, result.output.splitlines())) <= 80
    assert "verdict: pass: batch 16, 4 inst., 100 us" in result.output
    assert "0 wrong" not in result.output
    # The server was given back what it had: it has not read the folder that the view is in.
    assert server.config == before
    assert "note: the server has not read models/adds" in result.output
    evidence = json.loads((tmp_path / "models/adds/tuned.json").read_text())
    said = json.loads((tmp_path / "result.json").read_text())
    assert evidence["settings"] == {"max_batch_size": 16, "instances": 4, "queue_delay_us": 100}
    assert (evidence["server"], evidence["server_version"], evidence["wrong_answers"]) == ("triton", "2.0", 0)
    assert evidence["seconds"] == said["seconds"] > 0
    assert evidence["measurements"] == len(evidence["points"]) == said["measurements"]
    # Every request that the server had was measured, warmed it up, or was the first look; each was checked.
    assert evidence["answers"] == server.asked
    assert evidence["best"]["rows_per_s"] > 2 * evidence["baseline"]["rows_per_s"]
    # As the server counts them.
    assert {(round(p["queue_ms"]), round(p["compute_ms"])) for p in evidence["points"]} == {(3, 20)}
    assert {p["cache_hits"] for p in evidence["points"]} == {0}
    assert evidence["open"]["loop"] == "open"
    assert evidence["open"]["rate"] < evidence["best"]["rows_per_s"]
    drawing = ET.parse(tmp_path / "models/adds/tuned.svg").getroot()  # noqa: S314 - written a moment ago
    assert drawing.tag.endswith("svg")
    assert "limit 500 ms" in [element.text for element in drawing.iter()]


def test_a_view_that_was_changed_by_hand_is_not_tuned(tmp_path: Path, call: Callable[..., Result]) -> None:
    path = tmp_path / "models/adds/config.pbtxt"
    path.write_text(path.read_text() + "parameters {}\n")
    before = path.read_bytes()

    with pytest.raises(ChangedViewError, match=r"models/adds/config\.pbtxt was changed since it was written"):
        call()
    assert path.read_bytes() == before


def test_the_view_of_the_same_files_is_written_with_what_was_measured(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    call("--json", "result.json")
    tuned, said = view_config(tmp_path), json.loads((tmp_path / "result.json").read_text())

    assert write_view()["tuned"] == {"use": "measured", "settings": said["settings"], "version": 1}
    assert view_config(tmp_path) == tuned
    # Of other files nothing was measured, but they are served as those before were.
    make_release(added=2.0)
    assert write_view()["tuned"] == {"use": "carried over", "settings": said["settings"], "version": 1}
    assert settings_of(view_config(tmp_path)) == settings_of(tuned)
    # A version that was measured has its own again.
    make_release(added=1.0)
    assert write_view()["tuned"]["use"] == "measured"

    (tmp_path / "models/adds/tuned.json").write_text("{}")
    with pytest.raises(InputFileError, match=r"tuned\.json is corrupt"):
        CliRunner().invoke(
            cli,
            ["triton", "adds", "--out", "models", "--repository", "repository"],
            standalone_mode=False,
            catch_exceptions=False,
        )


def test_a_view_that_follows_keeps_what_was_tuned_where_the_signature_is_the_same(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    call()
    tuned = settings_of(view_config(tmp_path))

    make_release(added=2.0)
    (same,) = update_views(tmp_path / "repository", "adds", "prod")
    assert (same.version, same.to_json()["tuned"]["use"]) == (2, "carried over")
    assert settings_of(view_config(tmp_path)) == tuned

    # With another range of the batch, what was measured says nothing, and that is said.
    make_release(added=3.0, signature=replace(SIGNATURE, dims={"batch": Dim(min=1, opt=4, max=8)}))
    (other,) = update_views(tmp_path / "repository", "adds", "prod")
    assert (other.version, other.to_json()["tuned"]["use"]) == (3, "left out")
    assert settings_of(view_config(tmp_path)) == Settings(max_batch_size=8, instances=1, queue_delay_us=100)


def test_a_spec_that_leaves_less_room_bounds_what_is_carried_over(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    call()

    make_release(added=2.0, serve={"max_batch_size": 4})
    write_view()

    assert settings_of(view_config(tmp_path)) == Settings(max_batch_size=4, instances=4, queue_delay_us=100)


@pytest.mark.parametrize("after", [0, 40, 300])
def test_one_wrong_answer_under_load_ends_it_and_nothing_is_written(
    tmp_path: Path, server: Server, call: Callable[..., Result], after: int
) -> None:
    before, view = json.loads(json.dumps(server.config)), (tmp_path / "models/adds/config.pbtxt").read_bytes()
    server.instead = lambda number: (lambda y: y + 0.01) if number == after else None

    result = call("--json", "result.json")

    assert result.return_value == 1
    last = " ".join(result.output.split("verdict: ")[1].split())
    assert last.startswith("fail: a wrong answer with batch 16")
    assert "of the samples: y is wrong in 4 of 4 values" in last
    assert last.endswith("nothing was written")
    assert json.loads((tmp_path / "result.json").read_text())["wrong_answers"] == 1
    assert (tmp_path / "models/adds/config.pbtxt").read_bytes() == view
    assert not (tmp_path / "models/adds/tuned.json").exists()
    assert server.config == before
    # It did not go on for long.
    assert server.asked < after + 400


def test_an_answer_within_the_limits_of_the_release_is_right(server: Server, call: Callable[..., Result]) -> None:
    server.instead = lambda number: (lambda y: y + np.float32(1e-5)) if number % 2 else None

    assert call().return_value == 0


def test_a_server_that_nobody_may_load_on_is_measured_as_it_is(
    tmp_path: Path, server: Server, call: Callable[..., Result]
) -> None:
    server.name, view = "other", (tmp_path / "models/adds/config.pbtxt").read_bytes()

    result = call("--json", "result.json")

    said = json.loads((tmp_path / "result.json").read_text())
    assert result.return_value == 0
    assert "measured as it is: it is other, not Triton" in " ".join(result.output.split())
    assert server.loads == []
    assert {json.dumps(point["settings"]) for point in said["points"]} == {json.dumps(said["before"])}
    assert (tmp_path / "models/adds/config.pbtxt").read_bytes() == view


def test_each_point_has_what_the_server_says_of_its_machine(
    tmp_path: Path, server: Server, call: Callable[..., Result]
) -> None:
    call("--metrics", f"{server.url}/metrics", "--json", "result.json")

    said = json.loads((tmp_path / "result.json").read_text())
    use = {"cpu_share": 0.5, "memory_mib": 3.0, "gpu_share": 0.25, "gpu_memory_mib": 4.0}
    assert all(point["use"] == use for point in said["points"])
    with pytest.raises(BackendError, match="is not a page of metrics"):
        call("--metrics", f"{server.url}/v2")
    with pytest.raises(UsageError):
        call("--metrics", "http://user:word@127.0.0.1:1/metrics")


@pytest.mark.parametrize("is_told", [True, False])
def test_a_cache_of_answers_is_off_while_it_is_measured_or_said(
    tmp_path: Path, server: Server, call: Callable[..., Result], *, is_told: bool
) -> None:
    server.config["response_cache"] = {"enable": True}
    before = json.loads(json.dumps(server.config))
    server.refuses = lambda _: not is_told

    result = call("--json", "result.json")

    said = json.loads((tmp_path / "result.json").read_text())
    hits = sum(point["cache_hits"] for point in said["points"])
    assert (result.return_value, hits > 0) == (0, not is_told)
    assert any("response_cache" in note for note in said["notes"])
    assert server.config == before


@pytest.mark.parametrize("version", ["", "1"])
def test_a_server_without_addresses_of_versions_is_measured_as_it_is(
    tmp_path: Path, server: Server, call: Callable[..., Result], version: str
) -> None:
    server.name, server.is_versioned, server.version = "fastapi", False, version

    result = call("--json", "result.json")

    said = json.loads((tmp_path / "result.json").read_text())
    assert (result.return_value, said["verdict"], said["server"]) == (0, "pass", "fastapi")
    assert said["answers"] == server.asked > 0
    assert server.loads == []


def test_a_server_that_has_another_version_is_not_measured(server: Server, call: Callable[..., Result]) -> None:
    server.name, server.is_versioned, server.version = "fastapi", False, "7"

    with pytest.raises(BackendError, match="has no version 1 of adds"):
        call()
    assert server.asked == 0


def test_a_triton_that_loads_for_nobody_is_measured_as_it_is(server: Server, call: Callable[..., Result]) -> None:
    server.refuses = lambda _: True

    result = call()

    assert result.return_value == 0
    assert "HTTP 400: failed to load" in " ".join(result.output.split())


def test_settings_that_the_server_does_not_load_are_said(server: Server, call: Callable[..., Result]) -> None:
    server.refuses = lambda config: settings_of(config).instances > 1

    result = call()

    assert "note: the server did not load batch 16, 4 inst., 100 us: HTTP 400" in " ".join(result.output.split())
    assert "the view has it already" in result.output
    assert server.settings.instances == 1


def test_a_limit_that_nothing_keeps_is_a_failure(tmp_path: Path, server: Server, call: Callable[..., Result]) -> None:
    result = call("--latency-budget", "1ms")

    assert result.return_value == 1
    assert "no settings answer within p90 1 ms; the least was" in " ".join(result.output.split())
    assert not (tmp_path / "models/adds/tuned.json").exists()
    assert server.settings.instances == 1


def test_a_server_that_goes_away_is_an_error_of_its_own(server: Server, call: Callable[..., Result]) -> None:
    server.instead = lambda number: "vanish" if number >= 50 else None

    with pytest.raises(MeasurementError, match=r"(went away|stopped answering) after \d+ answers"):
        call("--endpoint", "timeout_s=2")
    assert server.settings.instances == 1


def test_a_server_that_answers_with_an_error_ends_it(server: Server, call: Callable[..., Result]) -> None:
    server.instead = lambda number: (500, b'{"error": "out of memory"}') if number == 60 else None

    with pytest.raises(BackendError, match="out of memory"):
        call()


def _error_in(path: Path) -> tuple[str, int]:
    """Return verdict and exit code of a result that holds an error."""
    said = json.loads(path.read_text())
    assert set(said["error"]) == {"message", "hint", "command"}
    return said["verdict"], said["exit_code"]


@pytest.mark.parametrize("after", [10, 60])
def test_settings_that_somebody_else_loads_meanwhile_end_it(
    tmp_path: Path, server: Server, call: Callable[..., Result], after: int
) -> None:
    view = (tmp_path / "models/adds/config.pbtxt").read_bytes()
    others = with_settings(server.config, Settings(max_batch_size=8, instances=2, queue_delay_us=100))

    def load(number: int) -> None:
        if number == after:
            server.load(json.loads(json.dumps(others)))

    server.instead = load

    with pytest.raises(MeasurementError, match="settings that somebody else loaded"):
        call("--json", "result.json")

    assert _error_in(tmp_path / "result.json") == ("error", 5)
    assert (tmp_path / "models/adds/config.pbtxt").read_bytes() == view
    assert not (tmp_path / "models/adds/tuned.json").exists()
    # It is theirs, and stays.
    assert server.config == others


def test_two_that_tune_one_model_do_not_both_go_on(tmp_path: Path, server: Server, call: Callable[..., Result]) -> None:
    marks: list[str] = []
    first = server.load

    def load(config: dict[str, Any]) -> None:
        marks.append((config.get("metric_tags") or {}).get("paritygate_tune", ""))
        first(config)

    server.load = load  # type: ignore[method-assign] # what it is told is looked at
    before = json.loads(json.dumps(server.config))
    call()
    # While it measured, everything that was loaded was marked, and what was given back is not.
    assert marks[0] == marks[-1] == ""
    assert all(marks[1:-1])

    server.load({**before, "metric_tags": {"paritygate_tune": f"x until {time.time() + 3600:.0f}"}})
    asked = server.asked
    with pytest.raises(MeasurementError, match="another tune measures adds"):
        call("--json", "result.json")
    assert _error_in(tmp_path / "result.json") == ("error", 5)
    # What says of itself is all that was asked.
    assert server.asked == asked

    # One that was killed long ago stops nobody.
    server.load({**before, "metric_tags": {"paritygate_tune": "x until 1000000000"}})
    assert call().return_value == 0
    assert server.config == before


def test_a_view_that_is_written_meanwhile_is_left_as_it_is(
    tmp_path: Path, server: Server, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    def promote(number: int) -> None:
        if number == 40:
            make_release(added=2.0)
            write_view()

    server.instead = promote

    with pytest.raises(MeasurementError, match="was written again during the measurement"):
        call("--json", "result.json")

    assert _error_in(tmp_path / "result.json") == ("error", 5)
    assert view_config(tmp_path)["version_policy"]["specific"]["versions"] in (["2"], [2])
    assert not (tmp_path / "models/adds/tuned.json").exists()


class _Plain(QuietHandler):
    """A server of JSON at paths of its own, which has nothing elsewhere: as FastAPI says it."""

    def get(self) -> None:
        self.send(b'{"detail":"Not Found"}', 404)

    def post(self) -> None:
        self.body()
        self.get()


def test_a_server_that_is_no_triton_is_said_to_be_none(call: Callable[..., Result]) -> None:
    with serving(_Plain) as url, pytest.raises(BackendError) as caught:
        call("--url", url)

    assert str(caught.value) == (
        f"tune needs a Triton server, but {url} does not answer as one: the server at {url} has no model at "
        "/v2/models/adds/infer: Not Found"
    )
    assert caught.value.exit_code == 5
    assert "a Triton that serves models" in caught.value.hint


def test_no_more_is_sent_than_is_allowed(server: Server, call: Callable[..., Result]) -> None:
    with pytest.raises(MeasurementError, match=r"100 requests were sent to .* which is the limit"):
        call("--endpoint", "requests=100")
    assert server.asked <= 100


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--max-batch-size", "32"], "max_batch_size is 32, and the model was made and verified for at most 16"),
        (["--latency-budget", "20"], "'20' is not a time"),
        (["--instances", "0"], "is not a list of whole numbers from 1 on"),
        (["--url", "grpc://127.0.0.1:1/adds"], "expected HTTP"),
        (["--url", "http://127.0.0.1:1/v2/models/other"], "is the address of 'other'"),
        (["--out", "nothing"], "nothing has no view of adds"),
        (["--rows", "17"], "a request of 17 rows is more than the server accepts"),
        (["--endpoint", "requests_per_second=5"], "does not apply here"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    server: Server, call: Callable[..., Result], more: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        call(*more)
    assert (server.asked, server.loads) == (0, [])


def test_a_folder_of_another_kind_is_told_one_of_its_own(call: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "services/adds").mkdir(parents=True)
    (tmp_path / "services/adds/inferenceservice.yaml").write_text("kind: InferenceService\n")

    with pytest.raises(UsageError, match="services has a view for KServe") as caught:
        call("--out", "services")

    assert "triton adds prod --out services-triton" in caught.value.hint


def test_a_view_that_follows_another_alias_is_told_a_folder_of_its_own(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release(added=2.0)

    with pytest.raises(UsageError, match="differs from the released version 2") as caught:
        call("2")

    assert "triton adds 2 --out models-2 --repository" in caught.value.hint


def test_a_view_of_another_release_is_refused(
    server: Server, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release(added=2.0)

    with pytest.raises(UsageError, match="differs from the released version 2"):
        call()
    assert server.asked == 0


@pytest.mark.children
@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_the_server_with_what_it_had(
    tmp_path: Path, server: Server, call: Callable[..., Result], number: signal.Signals, code: int
) -> None:
    del call
    before = json.loads(json.dumps(server.config))
    is_measured, goes_on = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        # It has other settings than it had, and is measured with them until the signal is sent.
        if server.settings.instances == 4:
            is_measured.set()
            goes_on.wait(600)

    server.instead = hold
    arguments = words(server, "--latency-budget", "600s")
    process = subprocess.Popen(
        [sys.executable, "-m", "paritygate", *arguments], cwd=tmp_path, env=dict(os.environ), stderr=subprocess.PIPE
    )
    try:
        assert is_measured.wait(600)
        process.send_signal(number)
        goes_on.set()
        _, said = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            process.kill()
    assert process.returncode == code, said
    assert server.config == before
    assert b"Traceback" not in said
