"""A changed limit is judged by the answers that are there: no model is asked, and the result is that of asking them."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipelines.conftest import Called, Desk

from paritygate.validate.probes.catalogue import ALL_PROBES, SESSION_PROBES

pytestmark = [
    pytest.mark.children,
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="only Linux tells what a process reads"),
]

_TARGETS = ["onnx-fp32", "onnx-fp16"]
# What is of the moment: how long something took, and whence it was taken over.
_OF_THE_MOMENT = {"seconds", "samples_seconds", "reference_seconds"}
_ASKED_AGAIN = frozenset(SESSION_PROBES)
_TAKEN = ("judged again: ", "compared at ")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A model with two variants whose answers are known, those to probes included."""
    desk = Desk(folder=tmp_path_factory.mktemp("judged-anew"))
    desk.onnx()
    desk.samples()
    _spec(desk)
    first = desk.json("run", "spec.yaml")
    assert first.code == 0, str(first)
    # Two of its comparisons are of one model, one of them emulated: neither is the other, done again.
    assert {job["why"] for job in first.data["runs"][0]["jobs"]} == {""}
    return desk


@pytest.fixture(autouse=True)
def _cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)


def _spec(desk: Desk, **parts: object) -> None:
    desk.spec(**{"targets": _TARGETS, "probes": list(ALL_PROBES), "reason": "drawn", **parts})


def _jobs(called: Called) -> list[tuple[bool, bool]]:
    """Return of each comparison whether anything was taken over, and whether it was judged anew."""
    jobs = called.data["runs"][0]["jobs"]
    return [(bool(job["taken_from"]), job["is_judged_anew"]) for job in jobs if "comparison of" in job["job"]]


def _evidence(run: Path) -> object:
    return _bare(json.loads((run / "evidence.json").read_bytes())["variants"])


def _bare(data: object) -> object:
    if isinstance(data, dict):
        # How many rows are asked again hangs on what a call costs at the moment.
        of_probes = {key for key, value in data.items() if key in _ASKED_AGAIN and isinstance(value, dict)}
        kept = {key: {"status": value["status"]} if key in of_probes else value for key, value in data.items()}
        return {key: _bare(value) for key, value in kept.items() if key not in _OF_THE_MOMENT}
    if isinstance(data, str):
        return re.sub(r"^\d+(?= rows agree)", "some", data)
    if isinstance(data, list):
        return [_bare(item) for item in data if not (isinstance(item, str) and item.startswith(_TAKEN))]
    return data


def _drawn(draw: random.Random) -> dict[str, object]:
    """Return parts of a spec in which limits and what else answers come to are drawn, many of them near what is so."""
    limits: dict[str, Callable[[], float]] = {
        "max_abs_diff": lambda: 10 ** draw.uniform(-5, 0),
        "mean_abs_diff": lambda: 10 ** draw.uniform(-6, -1),
        "max_row_rel_diff": lambda: 10 ** draw.uniform(-6, -1),
        "repeat_max_abs_diff": lambda: draw.choice([0.0, 1e-3]),
        "decision_mismatches": lambda: draw.randrange(3),
        "mismatch_rate_upper_95": lambda: draw.choice([0.01, 0.05, 0.5]),
    }
    tolerance = {
        target: {name: limits[name]() for name in draw.sample(sorted(limits), draw.randint(0, 3))}
        for target in _TARGETS
    }
    parts: dict[str, object] = {"tolerance": {target: drawn for target, drawn in tolerance.items() if drawn}}
    if draw.random() < 0.3:
        parts["edge"] = draw.choice(["fail", "warn"])
    return parts


# The first seed shows what the thorough ones show more often.
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, 16))])
def test_what_is_judged_anew_is_what_comes_of_asking(desk: Desk, seed: int) -> None:
    _spec(desk, **_drawn(random.Random(seed)))  # noqa: S311 - draws limits

    called = desk.json("run", "--no-promote", "spec.yaml")
    run = desk.runs[-1]
    found = _evidence(run)
    # It asks the models again, in the same folder.
    asked = desk.call("validate", "--run", str(run))

    assert found == _evidence(run)
    assert called.code == asked.code


def test_no_model_is_loaded_for_another_limit(desk: Desk) -> None:
    _spec(desk, tolerance={"onnx-fp16": {"max_abs_diff": 0.4321}})

    called = desk.json("run", "--no-promote", "spec.yaml")

    # Of fp16 there are two: as it runs here, and emulated.
    assert _jobs(called) == [(True, False), (True, True), (True, True)]
    assert "2 comparisons were judged again without running a model" in called.out
    notes = called.data["runs"][0]["variants"]["onnx-fp16"]["notes"]
    assert any(note.startswith("judged again: the models ran at ") for note in notes)
    assert not list(desk.runs[-1].glob("jobs/validate-onnx-fp16/judged/*.log")), "a child was started"
    again = desk.json("run", "--no-promote", "spec.yaml")
    assert _jobs(again) == [(True, False)] * 3


@pytest.fixture(scope="module")
def failed(desk: Desk) -> Desk:
    """Return the model after a variant failed by its limits, and no probe was asked."""
    _spec(desk, seed=5, probes="none", tolerance={"onnx-fp16": {"max_abs_diff": 1e-12}})
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PARITYGATE_CACHE", raising=False)
        called = desk.json("run", "--no-promote", "spec.yaml")
    assert called.code == 1, str(called)
    return desk


def test_what_failed_by_its_limits_is_judged_by_wider_ones(failed: Desk) -> None:
    _spec(failed, seed=5, probes="none", tolerance={"onnx-fp16": {"max_abs_diff": 0.5}})

    called = failed.json("run", "--no-promote", "spec.yaml")

    assert called.code == 0, str(called)
    assert _jobs(called)[1:] == [(True, True)] * 2


def test_what_was_not_asked_is_asked(failed: Desk) -> None:
    _spec(failed, seed=5)

    called = failed.json("run", "--no-promote", "spec.yaml")

    comparisons = [job for job in called.data["runs"][0]["jobs"] if "comparison of" in job["job"]]
    assert [job["taken_from"] for job in comparisons] == ["", "", ""]
    assert called.code == 0, str(called)


def test_answers_take_no_room_in_the_run(desk: Desk) -> None:
    assert not list(desk.runs[0].rglob("answers.json"))


def test_code_of_the_user_judges_in_a_process_of_its_own(desk: Desk) -> None:
    desk.module(
        "own_metric",
        """
        import numpy as np

        from paritygate.batch import Batch


        def rows():
            values = np.random.default_rng(3).standard_normal((120, 4)).astype(np.float32)
            yield Batch(inputs={"x": values}, ids=[str(row) for row in range(120)], gold=values[:, 0])


        def spread(answers, gold):
            return float(np.asarray(answers).std())
        """,
    )
    desk.onnx("column.onnx", width=1)
    own: dict[str, object] = {
        "model": {"name": "column", "source": "column.onnx", "rename": {"output_0": "logits"}},
        "decisions": {},
        "samples": {"source": "own_metric:rows"},
        "gold": {"metric": "own_metric:spread", "output": "logits"},
        "probes": "none",
    }
    _spec(desk, **own)
    first = desk.json("run", "--no-promote", "spec.yaml")

    _spec(desk, **own, tolerance={"onnx-fp16": {"max_abs_diff": 0.4}})
    called = desk.json("run", "--no-promote", "spec.yaml")

    assert (first.code, called.code) == (0, 0), str(called)
    assert _jobs(called)[1:] == [(True, True)] * 2
    run = Path(called.data["runs"][0]["run"])
    assert list(run.glob("jobs/validate-onnx-fp16/judged/*.log")), "no child was started"
