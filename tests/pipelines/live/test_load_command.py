"""`load` on a real server, right and with planted faults: each answer under load is compared with the release."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.pipelines.live.server import description_differences, served_names
from paritygate.signature import Signature, TensorSpec, rename_signature

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk
    from tests.pipelines.live.conftest import Interrupted, Served

    Load = Callable[..., Called]


def test_a_right_server_passes_with_its_figures(finished: Desk, served: Served, load: Load) -> None:
    called = load("--users", "1,4", "--rate", "100", "--seconds", "0.4", "--report", "load.html")

    data = called.data
    assert (called.code, data["verdict"], data["exit_code"]) == (0, "pass", 0), str(called)
    assert (data["wrong"], data["flips"], data["errors"], data["lost"], data["first_failure"]) == (0, 0, 0, 0, None)
    assert data["requests"] == data["answers"] == served.asked
    assert 0 <= data["largest_share"] < 0.1
    assert [(step["loop"], step["users"], step["rate"]) for step in data["steps"]] == [
        ("closed", 1, None),
        ("closed", 4, None),
        ("open", 64, 100.0),
    ]
    assert all(step["p50_ms"] <= step["p95_ms"] <= step["p99_ms"] for step in data["steps"])
    assert data["highest_rate"] == max(step["per_second"] for step in data["steps"])
    # Each request has an id of its own, which the server can log.
    assert len(set(served.ids)) == served.asked
    # The server of the test is a part of this process.
    assert data["not_watched"]
    assert "Throughput against latency" in (finished.folder / "load.html").read_text(encoding="utf-8")
    assert max(map(len, called.out.splitlines())) <= 80


def test_answers_swapped_under_concurrency_are_found_and_traced(served: Served, load: Load) -> None:
    served.takes = lambda *_: 0.002
    served.swaps = lambda number: number % 200 == 199

    alone = load("--users", "1", "--seconds", "600", "--endpoint", "requests=300")
    called = load("--users", "16", "--seconds", "600", "--endpoint", "requests=1000")

    data = called.data
    assert (alone.code, alone.data["wrong"], alone.data["requests"]) == (0, 0, 300), str(alone)
    assert (called.code, data["verdict"], data["is_wrong_without_load"]) == (1, "fail", False), str(called)
    assert 1 <= data["wrong"] == data["steps"][0]["wrong"] <= 7
    failure = data["first_failure"]
    assert (failure["kind"], failure["id"].endswith(f"-{failure['request']}")) == ("wrong", True)
    assert failure["answer_of"].startswith("row ")
    assert failure["id"] in served.ids


def test_a_wrong_server_is_not_loaded(served: Served, load: Load) -> None:
    served.changed = lambda _, logits: logits + np.float32(0.1)

    called = load("--users", "4", "--seconds", "5")

    assert (called.code, called.data["is_wrong_without_load"], called.data["steps"]) == (1, True, [])
    assert called.data["largest_share"] > 1
    assert called.data["requests"] == served.asked <= 64


@pytest.mark.parametrize("first", [0, 50])
def test_answers_that_cannot_be_read_are_not_called_beyond_the_limits(served: Served, load: Load, first: int) -> None:
    served.instead = lambda number, _: 200 if number >= first else None

    called = load("--users", "1", "--seconds", "5")

    data = called.data
    assert (called.code, data["unreadable"], data["answers"] - data["unreadable"]) == (1, data["wrong"], first)
    assert data["wrong"] > 0
    assert not [words for words in data["reasons"] if "beyond" in words]
    assert ("0 % of its limit" in " ".join(called.out.split())) == (first > 0)


def test_a_value_beyond_its_limit_is_wrong_although_no_decision_flips(served: Served, load: Load) -> None:
    served.changed = lambda number, logits: logits + np.float32(0.1 * (number == 70))

    called = load("--users", "1", "--seconds", "600", "--endpoint", "requests=80")

    assert (called.code, called.data["wrong"], called.data["flips"]) == (1, 1, 0)
    assert called.data["first_failure"]["request"] == 70
    assert called.data["largest_share"] > 10


def test_errors_at_high_load_are_counted_by_their_status_without_the_servers_words(
    finished: Desk, served: Served, load: Load
) -> None:
    served.takes = lambda *_: 0.002
    served.instead = lambda _, at_work: 503 if at_work > 4 else None

    called = load("--users", "1,16", "--seconds", "0.5", "--report", "errors.html")

    data = called.data
    assert (called.code, data["steps"][0]["errors"], data["wrong"], data["lost"]) == (1, 0, 0, 0), str(called)
    assert data["errors"] == data["steps"][1]["errors"] == data["statuses"]["HTTP 503"] > 0
    assert [step["why_not"] == "" for step in data["steps"]] == [True, False]
    # The body of an error may hold values of an input.
    page = (finished.folder / "errors.html").read_text(encoding="utf-8")
    assert "secret" not in json.dumps(data) + called.out + called.err + page


def test_dropped_connections_are_lost_requests(served: Served, load: Load) -> None:
    served.instead = lambda number, _: "drop" if number == 130 else None

    called = load("--users", "2", "--seconds", "600", "--endpoint", "requests=140")

    assert (called.code, called.data["lost"], called.data["errors"], called.data["wrong"]) == (1, 1, 0, 0), str(called)
    assert called.data["first_failure"]["kind"] == "lost"
    # A request that never came back took longer than every other one.
    assert called.data["steps"][0]["mean_ms"] is None


def test_a_server_that_stops_answering_ends_the_load(served: Served, load: Load) -> None:
    served.instead = lambda number, _: "drop" if number >= 100 else None

    called = load("--users", "2,4", "--seconds", "60")

    data = called.data
    assert (called.code, len(data["steps"]), len(data["left_out"])) == (1, 1, 1), str(called)
    assert 20 <= data["lost"] <= 30


def test_of_an_interrupted_load_what_came_back_is_judged_and_kept(interrupted: Interrupted) -> None:
    given = ("--users", "2", "--rate", "10", "--seconds", "60")

    code, data = interrupted(100, lambda _, logits: logits, "load", *given)

    assert (code, data["verdict"], data["is_interrupted"]) == (130, "inconclusive", True)
    assert (len(data["steps"]), len(data["left_out"]), data["answers"]) == (1, 1, data["requests"])
    assert data["steps"][0]["why_not"]


def test_what_a_gone_server_was_not_sent_is_not_called_lost(served: Served, load: Load) -> None:
    served.instead = lambda number, _: "drop" if number >= 100 else None

    called = load("--rate", "1000", "--callers", "2", "--seconds", "1", "--report", "gone.html")

    (step,) = called.data["steps"]
    assert (called.code, step["lost"]) == (1, called.data["lost"]), str(called)
    assert step["requests"] + step["unsent"] == 1000
    assert called.data["requests"] == called.data["answers"] + called.data["lost"] == step["requests"] + 64
    row = next(line for line in called.out.splitlines() if line.startswith("1,000/s"))
    assert row.split()[-4] == str(step["lost"])
    assert any(reason == f"{step['unsent']} requests not sent" for reason in called.data["reasons"])


def test_a_server_that_is_gone_after_one_answer_is_not_waited_for(served: Served, load: Load) -> None:
    served.instead = lambda number, _: "drop" if number else None

    called = load("--users", "2")

    # Of a server that hangs, each request takes 30 seconds.
    assert (called.code, called.data["lost"], served.asked) == (1, 3, 4), str(called)
    assert (called.data["is_wrong_without_load"], called.data["steps"]) == (False, [])


def test_a_rate_that_the_server_cannot_keep_is_not_sustained_and_its_waiting_counts(served: Served, load: Load) -> None:
    # One at a time and 50 a second at most; four times as many are sent.
    def takes(*_: int) -> float:
        import time

        with served.lock:
            time.sleep(0.02)
        return 0.0

    served.takes = takes
    called = load("--rate", "200", "--users", "1", "--seconds", "0.7")

    closed, opened = called.data["steps"]
    assert (called.code, called.data["wrong"], called.data["lost"]) == (0, 0, 0), str(called)
    assert (closed["why_not"] == "", opened["why_not"] == "") == (True, False)
    # A second after the last of 140 was to be sent, no more is. What was never sent waits longest.
    assert opened["requests"] + opened["unsent"] == 140
    assert (opened["unsent"] > 0, opened["p99_ms"]) == (True, None)
    assert called.data["highest_rate"] == closed["per_second"]


def test_without_a_sustained_load_it_fails(load: Load) -> None:
    called = load("--users", "1", "--seconds", "0.2", "--latency-budget", "1us")

    assert (called.code, called.data["highest_rate"], called.data["wrong"]) == (1, None, 0)


def test_another_description_is_a_fail_before_any_load(served: Served, load: Load) -> None:
    served.datatype = "FP64"

    called = load("--users", "4")

    assert (called.code, len(called.data["described_otherwise"]), called.data["requests"]) == (1, 1, 0)
    assert served.asked == 0


def test_twice_the_sustained_rate_loses_nothing_and_is_right_afterwards(served: Served, load: Load) -> None:
    # A client as slow as this machine: the server is never the reason.
    served.takes = lambda *_: 0.02

    called = load("--users", "2", "--seconds", "0.3", "--stress", "--stress-seconds", "0.5")

    first, stress = called.data["steps"]
    assert (called.code, called.data["is_right_after_stress"], stress["is_stress"]) == (0, True, True), str(called)
    assert stress["rate"] == pytest.approx(2 * first["per_second"])
    assert stress["requests"] == stress["answered"] == max(1, round(stress["rate"] * 0.5))


def test_a_server_that_errs_under_stress_fails(served: Served, load: Load) -> None:
    served.takes = lambda *_: 0.02
    served.instead = lambda _, at_work: 500 if at_work > 2 else None

    called = load("--users", "2", "--seconds", "0.3", "--stress", "--stress-seconds", "0.5")

    assert (called.code, called.data["steps"][0]["errors"]) == (1, 0), str(called)
    assert called.data["steps"][1]["errors"] > 0


def test_requests_are_capped(served: Served, load: Load) -> None:
    called = load("--users", "2,4", "--seconds", "20", "--endpoint", "requests=100")

    assert called.data["requests"] == served.asked == 100, str(called)
    assert len(called.data["left_out"]) == 1


@pytest.mark.thorough
def test_users_begin_one_after_the_other(served: Served, load: Load) -> None:
    served.takes = lambda *_: 0.01

    called = load("--users", "4", "--spawn-rate", "10", "--seconds", "0.2")

    # The last of four begins after 0.3 s.
    assert called.data["steps"][0]["seconds"] >= 0.5


@pytest.mark.parametrize(
    "options",
    [
        ("--users", "0"),
        ("--rate", "0"),
        ("--users", "1", "--seconds", "601"),
        ("--rows", "500"),
        ("--pid", "4194305"),
        ("--against", "tiny"),
        ("--against", "tiny@prod/onnx-int8"),
        ("--report", "load.pdf"),
        ("--endpoint", "requests_per_second=5"),
        ("--latency-budget", "20"),
    ],
)
def test_wrong_usage_is_refused(served: Served, load: Load, options: tuple[str, ...]) -> None:
    assert load(*options).code == 2
    assert served.asked == 0


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://192.0.2.1:8000", None),
        ("http://192.0.2.1:8000", "192.0.2.2"),
        ("http://models.example:8000", "example"),
        ("http://0.0.0.0:8000", None),
        ("http://127.0.0.1.example:8000", None),
    ],
)
def test_another_machine_is_not_loaded_unless_it_is_named(finished: Desk, url: str, host: str | None) -> None:
    allowed = () if host is None else ("--i-may-load", host)

    called = finished.call(
        "load", f"{url}/v2/models/tiny", "--against", "tiny@prod", "--samples", "inputs.npz", *allowed
    )

    assert called.code == 2
    assert "--i-may-load" in called.err


@pytest.mark.thorough
def test_values_and_ids_of_the_samples_are_in_no_report(finished: Desk, served: Served, load: Load) -> None:
    served.changed = lambda number, logits: logits + np.float32(0.1 * (number >= 64))
    ids = np.asarray([f"secret-{row}" for row in range(120)])
    with np.load(finished.folder / "inputs.npz") as arrays:
        np.savez(finished.folder / "named.npz", ids=ids, **dict(arrays))

    called = load("--samples", "named.npz", "--users", "1", "--seconds", "0.3", "--report", "named.html")

    page = (finished.folder / "named.html").read_text(encoding="utf-8")
    assert called.code == 1
    assert "secret" not in json.dumps(called.data) + called.out + called.err + page
    assert Path(finished.folder / "named.html").is_file()


@pytest.mark.parametrize("path", ["/v1/models/tiny", "/predict"])
def test_servers_of_other_protocols_are_loaded_too(finished: Desk, served: Served, path: str) -> None:
    served.changed = lambda number, logits: logits + np.float32(0.1 * (number == 90))
    mapping = finished.folder / "mapping.yaml"
    mapping.write_text("{request: {inputs: {x: features}}, response: {outputs: {logits: scores}}}", encoding="utf-8")
    options = ("--endpoint-json", "mapping.yaml") if path == "/predict" else ()

    called = finished.json(
        *("load", f"{served.url}{path}", "--against", "tiny@prod", "--samples", "inputs.npz", "--users", "2"),
        *("--seconds", "600", "--endpoint", "requests=100", *options),
    )

    assert (called.code, called.data.get("wrong")) == (1, 1), str(called)
    assert called.data["answers"] == served.asked == 100


def test_a_mapping_of_other_names_is_wrong_usage(finished: Desk, served: Served) -> None:
    mapping = finished.folder / "other.yaml"
    mapping.write_text("{request: {inputs: {x: features}}, response: {outputs: {other: scores}}}", encoding="utf-8")

    called = finished.call(
        *("load", f"{served.url}/predict", "--against", "tiny@prod", "--samples", "inputs.npz"),
        *("--endpoint-json", "other.yaml"),
    )

    assert (called.code, served.asked) == (2, 0)


@pytest.mark.parametrize(("instead", "url"), [(503, None), ("drop", None), (None, "http://127.0.0.1:9/v2/models/tiny")])
def test_a_server_that_does_not_answer_at_all_is_not_measured(
    finished: Desk, served: Served, instead: object, url: str | None
) -> None:
    served.instead = lambda *_: instead

    called = finished.json("load", url or served.address, "--against", "tiny@prod", "--samples", "inputs.npz")

    assert (called.code, called.data["verdict"], called.data["exit_code"]) == (5, "error", 5), str(called)


def test_a_server_with_names_by_position_is_described_by_them() -> None:
    released = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 3)),),
    )
    described = rename_signature(released, {"x": "x__0", "y": "y__0"})

    assert served_names(described, released) == described
    assert served_names(None, released) == served_names(released, released) == released
    assert description_differences(described, served_names(described, released)) == ()
