"""`endurance` on a real server, right and with planted faults that come late or only in a batch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace

from paritygate.errors import UsageError
from paritygate.pipelines.live.endurance import drift_of, endurance
from paritygate.pipelines.live.endurance_result import EnduranceRequest, Period
from paritygate.pipelines.process.child import Progress
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk
    from tests.pipelines.live.conftest import Interrupted, Served

    Endure = Callable[..., Called]


@pytest.fixture
def endure(finished: Desk, served: Served) -> Endure:
    """Return a function that calls `endurance` on the server for some seconds."""

    def call(*more: str, seconds: float = 1.0) -> Called:
        given = ("--against", "tiny@prod", "--samples", "inputs.npz", "--minutes", str(seconds / 60), "--rate", "200")
        return finished.json("endurance", served.address, *given, *more)

    return call


def test_a_right_server_passes_if_its_memory_is_not_needed(finished: Desk, endure: Endure) -> None:
    called = endure("--without-memory", "--rate", "60", "--report", "endurance.html")

    data = called.data
    assert (called.code, data["verdict"], data["exit_code"]) == (0, "pass", 0), str(called)
    assert (data["wrong"], data["lost"], data["errors"], data["memory"]) == (0, 0, 0, None)
    assert data["unsent"] == 0
    assert data["requests"] == data["answers"] == sum(period["requests"] for period in data["periods"]) + 64
    assert [each["size"] for each in data["batches_before"]] == [1, 2, 4, 8, 16]
    assert [each["rows"] for each in data["batches_after"]] == [4, 8, 16, 32, 64]
    assert all(each["wrong"] == 0 for each in data["batches_before"])
    assert max(map(len, called.out.splitlines())) <= 80
    assert "Latency" in (finished.folder / "endurance.html").read_text(encoding="utf-8")


def test_without_its_memory_the_verdict_is_inconclusive(endure: Endure) -> None:
    called = endure()

    assert (called.code, called.data["verdict"], called.data["not_watched"] != "") == (3, "inconclusive", True)


def test_answers_that_drift_within_their_limits_are_found_with_the_request(
    finished: Desk, served: Served, endure: Endure
) -> None:
    # A quarter of the limit of FP32, so no single answer is wrong.
    served.changed = lambda number, logits: logits + np.float32(2.5e-5 * (number >= 300))

    drift = ("--max-batch", "1", "--requests", "464", "--report", "drift.html")
    called = endure("--without-memory", *drift, seconds=30)

    data = called.data
    assert (called.code, data["wrong"], data["flips"]) == (1, 0, 0), str(called)
    assert 0.1 < data["drift"]["last"] - data["drift"]["first"] < 1
    # The period of the drift, or one after it.
    assert 200 < data["drift"]["request"] <= data["requests"]
    assert "Drift: median difference" in (finished.folder / "drift.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("shares", "begins"),
    [
        # Steady growth: the first period beyond its limit, not the largest.
        ([0.02 * number for number in range(30)], 1500),
        # One period alone is confirmed by none.
        ([0.01] * 10 + [0.9] + [0.01] * 5 + [0.5] * 4, 1600),
        ([0.01] * 19 + [0.5], 1900),
        ([0.01] * 20, None),
    ],
)
def test_a_drift_begins_with_the_first_period_beyond_its_limit(shares: list[float], begins: int | None) -> None:
    figures = {"requests": 100, "per_second": 1.0, "p50_ms": 1.0, "p99_ms": 1.0, "memory": None}
    periods = [
        Period(at=float(number), first_request=100 * number, share=share, **figures)  # type: ignore[arg-type]
        for number, share in enumerate(shares)
    ]

    drift = drift_of(periods)

    assert drift is not None
    assert drift.request == begins


@pytest.mark.thorough
def test_answers_that_are_wrong_late_are_found_with_the_request(served: Served, endure: Endure) -> None:
    served.changed = lambda number, logits: np.roll(logits, 1, axis=-1) if number == 200 else logits

    called = endure("--without-memory", "--max-batch", "1", "--requests", "264", seconds=30)

    assert (called.code, called.data["wrong"], called.data["first_failure"]["kind"]) == (1, 1, "wrong"), str(called)


def test_a_batch_that_mixes_its_rows_is_found(served: Served, endure: Endure) -> None:
    # The fourth row of a batch is another one.
    def changed(_: int, logits: np.ndarray) -> np.ndarray:
        logits = logits.copy()
        logits[3:4] += 1
        return logits

    served.changed = changed
    called = endure("--without-memory", seconds=1)

    before = {each["size"]: each for each in called.data["batches_before"]}
    assert (called.code, called.data["wrong"]) == (1, 0), str(called)
    assert {size: each["wrong"] for size, each in before.items()} == {1: 0, 2: 0, 4: 4, 8: 4, 16: 4}
    assert before[4]["same_bytes"] == 12


@pytest.mark.thorough
def test_a_batch_that_the_server_refuses_is_reported(served: Served, endure: Endure) -> None:
    served.most_rows = 4

    called = endure("--without-memory", "--rate", "60", seconds=1)

    assert called.code == 0, str(called)
    assert [(each["size"], each["refused"]) for each in called.data["batches_after"]] == [
        (1, ""),
        (2, ""),
        (4, ""),
        (8, "HTTP 400"),
    ]


def test_two_models_are_loaded_at_once_and_each_is_judged_by_itself(
    finished: Desk, served: Served, endure: Endure
) -> None:
    served.changed = lambda number, logits: np.roll(logits, 1, axis=-1) if number == 300 else logits
    # The same release under another address, as in a second format.
    other = (f"{served.url}/v1/models/tiny", "tiny@prod", "inputs.npz")

    given = ("--requests", "264", "--without-memory", "--max-batch", "1", "--report", "two.html")
    called = endure("--also", *other, *given, seconds=30)

    assert "tiny: sent 528 requests" in called.err
    both = [called.data, *called.data["also"]]
    assert (called.code, called.data["verdict"], len(both)) == (1, "fail", 2), str(called)
    assert [each["served"]["url"] for each in both] == [served.address, other[0]]
    assert sorted(each["wrong"] for each in both) == [0, 1]
    assert [each["requests"] for each in both] == [264, 264]
    (reason,) = called.data["reasons"]
    assert reason.startswith(next(each["served"]["url"] for each in both if each["wrong"]))
    assert (finished.folder / "two.html").read_text(encoding="utf-8").count("Over the whole time") == 2


def test_progress_names_the_model_whose_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(request: EnduranceRequest, *_: object, progress: Progress, **__: object) -> None:
        progress("running the reference", 0, 0)
        if request.model == "other":
            msg = "enough"
            raise UsageError(msg)

    monkeypatch.setattr("paritygate.pipelines.live.endurance.prepare", prepare)
    samples = SampleSource(text="x.npz", folder=tmp_path)
    one = EnduranceRequest(repository=tmp_path, url="http://127.0.0.1:1/a", model="tiny", which=1, samples=samples)
    shown: list[str] = []

    with pytest.raises(UsageError):
        endurance(replace(one, also=(replace(one, model="other"),)), progress=lambda doing, *_: shown.append(doing))

    assert shown == ["tiny: running the reference", "other: running the reference"]


def test_the_process_of_another_server_is_not_that_of_pid(served: Served, endure: Endure) -> None:
    addresses = f"{served.url}/v1/models/tiny", f"{served.url.replace('127.0.0.1', 'localhost')}/v1/models/tiny"
    also = [word for address in addresses for word in ("--also", address, "tiny@prod", "inputs.npz")]

    called = endure(*also, "--pid", str(os.getpid()), "--requests", "8", "--max-batch", "1", seconds=30)

    watched = [each["not_watched"] == "" for each in (called.data, *called.data["also"])]
    assert watched == [True, True, False], str(called)


def test_a_model_that_is_not_there_ends_the_load_of_the_others(served: Served, endure: Endure) -> None:
    served.instead = lambda number, _: 404 if number == 0 else None

    called = endure("--also", f"{served.url}/v1/models/tiny", "tiny@prod", "inputs.npz", seconds=600)

    assert called.code == 5, str(called)
    assert called.data["verdict"] == "error"


def test_requests_are_capped_by_their_number(served: Served, endure: Endure) -> None:
    called = endure("--without-memory", "--requests", "120", "--max-batch", "1", seconds=600)

    assert called.data["requests"] == 120, str(called)
    # Four rows alone, before and after.
    assert served.asked == 128


def test_a_server_that_stops_answering_gets_no_more(served: Served, endure: Endure) -> None:
    served.instead = lambda number, _: "drop" if number >= 164 else None

    # Fifty a period, which are too few to see it in one.
    called = endure("--without-memory", "--max-batch", "1", "--rate", "100", seconds=30)

    data = called.data
    assert (called.code, data["answers"] + data["lost"]) == (1, data["requests"]), str(called)
    # Twenty in a row, and one for each of 64 callers, besides those at work meanwhile.
    assert 84 <= data["lost"] < 84 + 64
    assert data["batches_after"] == []


def test_a_rate_that_the_server_cannot_keep_fails(finished: Desk, served: Served, endure: Endure) -> None:
    # One at a time and 33 a second at most. The first period takes as long as was planned for all.
    def takes(number: int, _: int) -> float:
        if number >= 64:
            with served.lock:
                time.sleep(0.03)
        return 0.0

    served.takes = takes
    called = endure("--without-memory", "--max-batch", "1", "--report", "slow.html")

    data = called.data
    assert (called.code, data["verdict"], data["lost"], data["wrong"]) == (1, "fail", 0, 0), str(called)
    assert data["unsent"] == 200 - (data["requests"] - 64) > 0
    assert f"not sent: {data['unsent']}" in called.out
    assert "not sent" in (finished.folder / "slow.html").read_text(encoding="utf-8")


def test_a_look_at_all_allowed_requests_is_no_load(served: Served, endure: Endure) -> None:
    called = endure("--without-memory", "--requests", "10", "--max-batch", "1")

    data = called.data
    assert (called.code, data["verdict"], data["requests"], data["periods"]) == (3, "inconclusive", 10, []), str(called)
    assert served.asked == 14


def test_a_server_that_refuses_one_row_after_the_load_fails(served: Served, endure: Endure) -> None:
    # The look and the load are 80 requests, and four rows are repeated once and twice before.
    served.instead = lambda number, _: 500 if number >= 88 else None

    called = endure("--without-memory", "--requests", "80", "--max-batch", "2", seconds=30)

    data = called.data
    assert (called.code, data["requests"], data["errors"], data["lost"]) == (1, 80, 0, 0), str(called)
    assert [each["refused"] for each in data["batches_before"]] == ["", ""]
    assert [each["refused"] for each in data["batches_after"]] == ["HTTP 500"]


def test_a_slowdown_that_was_not_measured_is_inconclusive(endure: Endure) -> None:
    called = endure("--without-memory", "--max-slowdown", "1.1", "--requests", "100", "--max-batch", "1")

    assert (called.code, called.data["latency"], called.data["lost"]) == (3, None, 0), str(called)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_of_an_interrupted_load_what_came_back_is_judged_and_kept(
    finished: Desk, interrupted: Interrupted, *, is_wrong: bool
) -> None:
    answer = lambda number, logits: logits + np.float32(0.1 * (is_wrong and number == 249))  # noqa: E731
    given = ("--minutes", "1", "--rate", "200", "--without-memory", "--max-batch", "1", "--report", "interrupted.html")

    code, data = interrupted(250, answer, "endurance", *given)

    assert (code, data["exit_code"], data["is_interrupted"]) == (130, 130, True)
    assert (data["verdict"], data["wrong"]) == (("fail", 1) if is_wrong else ("inconclusive", 0))
    assert 250 - 4 <= data["requests"] == data["answers"]
    assert (finished.folder / "interrupted.html").is_file()


@pytest.mark.parametrize(
    "options",
    [
        ("--minutes", "11"),
        ("--minutes", "0"),
        ("--max-growth", "0"),
        ("--max-slowdown", "0.5"),
        ("--max-slowdown", "nan"),
        ("--users", "0"),
        ("--users", "2"),  # besides the rate
        ("--pid", "4194305"),  # more than Linux gives out
    ],
)
def test_wrong_usage_is_refused(served: Served, endure: Endure, options: tuple[str, ...]) -> None:
    assert endure(*options).code == 2
    assert served.asked == 0
