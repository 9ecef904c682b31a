"""`shadow` on captured answers of a released model, right ones and wrong ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest
from tests.pipelines.conftest import jobs_done_here

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk


def _capture(
    desk: Desk,
    requests: int,
    *,
    wrong_every: int = 0,
    moved_every: int = 0,
    unanswered_every: int = 0,
    refused: int = 0,
    rows: int = 1,
    versions: tuple[str | int | None, ...] = (None,),
) -> None:
    """Write the answers of the model to requests of its own, some of them with the classes in another order."""
    session = onnxruntime.InferenceSession(str(desk.folder / "model.onnx"))
    random = np.random.default_rng(11)
    with (desk.folder / "traffic.jsonl").open("w", encoding="utf-8") as lines:
        for number in range(1, requests + 1):
            x = random.standard_normal((rows, 4)).astype(np.float32)
            scores = session.run(None, {"x": x})[0]
            if wrong_every and number % wrong_every == 0:
                scores = np.roll(scores, 1, axis=-1)
            if moved_every and number % moved_every == 0:
                scores += 1.0  # no decision changes
            line: dict[str, object] = {"inputs": {"x": x.tolist()}, "outputs": {"logits": scores.tolist()}}
            if (version := versions[number % len(versions)]) is not None:
                line |= {"model_name": "tiny", "model_version": version}
            if unanswered_every and number % unanswered_every == 0:
                line |= {"status": 502}
            lines.write(json.dumps(line) + "\n")
        for _ in range(refused):
            lines.write(json.dumps({"inputs": {"x": "?"}, "status": 400}) + "\n")


@pytest.mark.parametrize(
    ("capture", "code", "verdict"),
    [
        ({"requests": 400}, 0, "promote"),
        ({"requests": 400, "refused": 400}, 3, "hold"),
        ({"requests": 40}, 3, "hold"),
        ({"requests": 200, "wrong_every": 8}, 1, "rollback"),
        ({"requests": 200, "unanswered_every": 8}, 1, "rollback"),
    ],
)
def test_the_verdict_follows_the_answers(finished: Desk, capture: dict[str, int], code: int, verdict: str) -> None:
    _capture(finished, **capture)

    with jobs_done_here():
        called = finished.json("shadow", "tiny", "--captured", "traffic.jsonl", "--max-flip-rate", "0.02")

    assert (called.code, called.data["verdict"]) == (code, verdict), str(called)
    assert called.data["exit_code"] == code
    assert called.data["requests"] == capture["requests"]
    assert called.data["refused"] == capture.get("refused", 0)
    assert called.data["changed"] == (capture["requests"] // 8 if "wrong_every" in capture else 0)
    assert called.data["unanswered"] == (capture["requests"] // 8 if "unanswered_every" in capture else 0)
    assert called.data["first_changed"] == (8 if code == 1 else None)
    assert bool(called.data["until_promoted"]) == (verdict == "hold" and "refused" not in capture)


def test_rows_of_one_request_are_one_observation(finished: Desk) -> None:
    _capture(finished, 4, wrong_every=2, rows=16)

    with jobs_done_here():
        called = finished.json("shadow", "tiny", "--captured", "traffic.jsonl", "--max-flip-rate", "0.1")

    assert (called.data["requests"], called.data["rows"], called.data["changed"]) == (4, 64, 32)
    assert called.data["verdict"] == "hold", "32 changed rows of 2 requests"
    assert called.data["flip_rate"] == 0.5


@pytest.mark.parametrize(
    "options",
    [
        ("tiny", "--max-flip-rate", "0"),
        ("tiny", "--max-flip-rate", "0.5"),
        ("tiny", "--variant", "onnx-int8"),
        ("tiny", "--decision", "z:argmax"),
        ("tiny@prod", "1"),
        ("tiny@prod/onnx-fp32", "--variant", "onnx-fp32"),
        ("tiny@",),
    ],
)
def test_wrong_usage_is_refused(finished: Desk, options: tuple[str, ...]) -> None:
    _capture(finished, 1)

    assert finished.call("shadow", *options, "--captured", "traffic.jsonl").code == 2


@pytest.mark.parametrize(("requests", "code"), [(0, 2), (1, 3), (30, 1)])
def test_a_server_that_answers_nothing_is_rolled_back(finished: Desk, requests: int, code: int) -> None:
    _capture(finished, requests, unanswered_every=1)

    assert finished.call("shadow", "tiny", "--captured", "traffic.jsonl", "--max-flip-rate", "0.02").code == code


def test_a_last_line_that_is_cut_off_is_reported(finished: Desk) -> None:
    _capture(finished, 3)
    with (finished.folder / "traffic.jsonl").open("a", encoding="utf-8") as lines:
        lines.write('{"inputs": {"x": [[0.1')

    called = finished.json("shadow", "tiny", "--captured", "traffic.jsonl")

    assert (called.code, called.data["requests"], called.data["is_last_line_cut_off"]) == (3, 3, True), str(called)
    assert "the last line of traffic.jsonl is cut off" in " ".join(called.out.split())


def test_answers_under_other_names_are_wrong_usage(finished: Desk) -> None:
    _capture(finished, 3)
    traffic = finished.folder / "traffic.jsonl"
    traffic.write_text(traffic.read_text(encoding="utf-8").replace('"logits"', '"scores"'), encoding="utf-8")

    called = finished.call("shadow", "tiny", "--captured", "traffic.jsonl")

    assert called.code == 2
    assert "'logits'" in called.err


@pytest.fixture(scope="module")
def released_twice(finished: Desk, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk with two releases; `model.onnx` is the second one."""
    desk = finished.copy(tmp_path_factory.mktemp("twice"))
    desk.onnx(width=4)
    with jobs_done_here():
        called = desk.json("run", "spec.yaml")
    assert desk.releases == ["tiny/1", "tiny/2"], str(called)
    return desk


def test_answers_of_another_release_are_not_judged(released_twice: Desk) -> None:
    """A server that still serves the version before is no reason to roll back the release."""
    _capture(released_twice, 200, wrong_every=2, versions=("1", 2))
    with jobs_done_here():
        called = released_twice.json("shadow", "tiny", "--captured", "traffic.jsonl", "--max-flip-rate", "0.02")

    data = called.data
    assert (called.code, data["verdict"], data["changed"], data["requests"]) == (3, "hold", 0, 100), str(called)
    assert (data["of_other_versions"], data["other_versions"], data["reported_versions"]) == (100, ["1"], [])


@pytest.mark.parametrize(
    ("version", "wrong", "code"),
    [
        ("1", {}, 0),  # always 1, and right
        ("1", {"wrong_every": 2}, 1),  # half of its answers are those of this release
        ("1", {"wrong_every": 1}, 5),  # perhaps the release before
        ("1", {"moved_every": 1}, 5),  # with the same decisions
        ("7", {}, 0),  # no release
        ("7", {"wrong_every": 1}, 1),
        (True, {}, 0),  # no version
    ],
)
def test_a_server_that_may_number_freely_is_judged_by_its_values(
    released_twice: Desk, version: str, wrong: dict[str, int], code: int
) -> None:
    _capture(released_twice, 400, versions=(version,), **wrong)
    options = ("--max-flip-rate", "0.02", "--decision", "logits:argmax")
    with jobs_done_here():
        called = released_twice.json("shadow", "tiny", "--captured", "traffic.jsonl", *options)

    assert called.code == code, str(called)
    if code == 5:
        assert not {"rollback", "promote"} & {*(called.err + called.out).lower().split()}
    else:
        assert called.data["reported_versions"] == ([] if version is True else [version])
        assert (called.data["requests"], called.data["other_versions"]) == (400, [])


def test_a_server_whose_answers_nobody_can_read_is_rolled_back(finished: Desk) -> None:
    _capture(finished, 40)
    lines = [json.loads(line) for line in (finished.folder / "traffic.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines[::2]:
        line["outputs"] = {"logits": "secret"}
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (finished.folder / "traffic.jsonl").write_text(text, encoding="utf-8")

    with jobs_done_here():
        called = finished.json("shadow", "tiny", "--captured", "traffic.jsonl", "--max-flip-rate", "0.02")

    assert (called.code, called.data["verdict"], called.data["first_changed"]) == (1, "rollback", 1), str(called)
    assert (called.data["unreadable"], called.data["unanswered"], called.data["requests"]) == (20, 20, 40)
    assert called.data["first_why"]
    assert "secret" not in called.out + called.err + json.dumps(called.data)


@pytest.mark.parametrize(("unfit", "code"), [(1, 0), (200, 3), (400, 2)])
def test_requests_that_the_release_does_not_accept_are_counted(finished: Desk, unfit: int, code: int) -> None:
    _capture(finished, 400)
    traffic = finished.folder / "traffic.jsonl"
    lines = traffic.read_text(encoding="utf-8").splitlines(keepends=True)
    other = [line.replace('"x"', '"features"') for line in lines[:unfit]]
    traffic.write_text("".join([*other, *lines[unfit:]]), encoding="utf-8")

    with jobs_done_here():
        called = finished.json("shadow", "tiny", "--captured", "traffic.jsonl", "--max-flip-rate", "0.03")

    assert called.code == code, str(called)
    if code == 2:
        assert "traffic.jsonl, line 1" in " ".join(called.err.split())
    else:
        found = called.data
        assert (found["unfit"], found["first_unfit"], found["requests"]) == (unfit, 1, 400 - unfit)


def test_values_beyond_their_limits_are_counted_where_no_decision_changes(finished: Desk) -> None:
    _capture(finished, 40, moved_every=4, wrong_every=8)
    with jobs_done_here():
        options = ("--max-flip-rate", "0.3", "--decision", "logits:argmax")
        called = finished.json("shadow", "tiny", "--captured", "traffic.jsonl", *options)

    assert (called.data["changed"], called.data["beyond_limits"]) == (5, 5), str(called)


@pytest.mark.parametrize("release", [("tiny@prod",), ("tiny@1",), ("tiny@1/onnx-fp32",), ("tiny", "1")])
def test_a_release_is_named_as_for_other_commands(finished: Desk, release: tuple[str, ...]) -> None:
    _capture(finished, 1, refused=1)
    lines = (finished.folder / "traffic.jsonl").read_text(encoding="utf-8").splitlines()
    (finished.folder / "traffic.jsonl").write_text(lines[-1], encoding="utf-8")

    called = finished.json("shadow", *release, "--captured", "traffic.jsonl")

    assert (called.code, called.data["model"], called.data["version"]) == (3, "tiny", 1), str(called)
    assert called.data["until_promoted"] > 6000
    assert (called.data["rows"], called.data["inputs"]) == (0, None), "without a judged request"
