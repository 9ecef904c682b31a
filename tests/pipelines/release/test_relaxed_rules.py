"""A failed gate is not talked round: asking less needs a reason, and what failed stays in evidence and report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.pipelines.conftest import changed_entry

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_TARGETS = ["onnx-fp32", "onnx-fp16"]


def _limit(value: float) -> dict[str, Any]:
    return {"targets": _TARGETS, "tolerance": {"onnx-fp16": {"max_abs_diff": value}}}


def _failed_once(desk: Desk, **parts: object) -> str:
    """Run a spec whose FP16 variant fails on a declared limit and return the run's name."""
    desk.spec(**{**_limit(1e-12), **parts})
    called = desk.call("run", "spec.yaml", "--verbose")
    assert called.code == 1, str(called)
    return desk.runs[-1].name


def test_a_declared_limit_that_is_raised_after_a_failure_needs_a_reason(desk: Desk) -> None:
    first = _failed_once(desk)
    desk.spec(**_limit(0.1))

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert f"checks less of onnx-fp16 than run {first} of the same source, which failed" in called.err
    assert "max_abs_diff is 0.1, and was 1e-12" in called.err
    assert "default limits" not in called.err
    assert "reason: TEXT" in called.err
    assert desk.releases == []


def test_the_line_of_yaml_that_asks_as_much_again_is_taken(desk: Desk) -> None:
    first = _failed_once(desk)
    _later(desk)
    second = _failed_once(desk, **{**_limit(1e-11), "reason": "a trial"})
    desk.spec(**_limit(0.1))

    refused = desk.call("run", "spec.yaml")

    assert refused.code == 2
    assert all(name in refused.err for name in (first, second, "1e-12", "1e-11"))
    line = yaml.safe_load(refused.err.partition("rules: ")[2].partition(", or give")[0])
    assert line == {"tolerance": {"onnx-fp16": {"max_abs_diff": 1e-12}}}
    desk.spec(**{**_limit(0.1), **line})
    # It is judged again, and fails by its own limit.
    assert desk.call("run", "spec.yaml").code == 1


def test_limits_that_it_passed_by_before_it_failed_need_none(desk: Desk) -> None:
    desk.spec(**_limit(0.1))
    assert desk.call("run", "spec.yaml").code == 0
    _later(desk)
    _failed_once(desk)
    desk.spec(**_limit(0.1))

    planned, called = desk.call("plan", "spec.yaml"), desk.call("run", "spec.yaml")

    assert planned.code == called.code == 0, f"{planned}\n{called}"
    _later(desk)
    # Anything looser than that is looser than what failed.
    desk.spec(**_limit(0.2))
    assert "max_abs_diff is 0.2, and was 1e-12" in desk.call("run", "spec.yaml", "--verbose").err
    # The limit it passed by is no excuse for what is left out.
    _failed_once(desk, probes=["batches"])
    desk.spec(**_limit(0.1))
    assert "without the probes batches" in desk.call("run", "spec.yaml", "--verbose").err


def test_limits_that_it_passed_by_after_it_failed_need_the_reason_again(desk: Desk) -> None:
    _failed_once(desk)
    _later(desk)
    desk.spec(**_limit(0.1), reason="the service rounds")
    assert desk.call("run", "spec.yaml").code == 0
    _later(desk)
    _failed_once(desk)
    desk.spec(**_limit(0.1))

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert called.err.count("max_abs_diff is 0.1, and was 1e-12") == 2


def test_a_default_limit_that_it_passed_by_is_no_leave_to_declare_a_looser_one(desk: Desk) -> None:
    desk.spec(targets=_TARGETS)
    assert desk.call("run", "spec.yaml").code == 0
    _later(desk)
    _failed_once(desk)
    desk.spec(**_limit(0.5))

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert "max_abs_diff is 0.5, and was 1e-12" in called.err
    # The defaults themselves need none, so the message says why this limit does.
    assert "passed by default limits" in called.err


@pytest.mark.parametrize(
    ("failed", "looser", "stricter"),
    [
        # What a default comes to hangs on the output: its number says nothing of one that is declared.
        ({"max_abs_diff": 1e-12}, {"max_abs_diff": 5e-3}, {"max_abs_diff": 1e-13}),
        (
            {"outputs": {"logits": {"max_abs_diff": [1e-12, 0.1, None]}}},
            {"outputs": {"logits": {"max_abs_diff": [1e-2, 0.1, None]}}},
            {"outputs": {"logits": {"max_abs_diff": [1e-13, 0.1, 0.1]}}},
        ),
        (
            {"outputs": {"logits": {"mean_abs_diff": 1e-12}}},
            {"outputs": {"logits": {"mean_abs_diff": 1e-3}}},
            {"outputs": {"logits": {"mean_abs_diff": 1e-13}}},
        ),
        ({"max_abs_diff": 1e-12}, {"outputs": {"logits": {"max_abs_diff": 1e-3}}}, {"max_abs_diff": 1e-12}),
    ],
)
def test_a_pass_by_defaults_hides_no_failure_of_a_declared_limit(
    desk: Desk, failed: dict[str, Any], looser: dict[str, Any], stricter: dict[str, Any]
) -> None:
    desk.spec(targets=_TARGETS)
    assert desk.call("run", "spec.yaml").code == 0
    _later(desk)
    desk.spec(targets=_TARGETS, tolerance={"onnx-fp16": failed})
    assert desk.call("run", "spec.yaml").code == 1
    _later(desk)

    codes = []
    for limits in (looser, stricter, {}):
        desk.spec(targets=_TARGETS, tolerance={"onnx-fp16": limits})
        codes.append(desk.call("plan", "spec.yaml").code)

    # Back to the defaults, it needs no reason: by those it had passed.
    assert codes == [2, 0, 0]


def test_it_is_refused_before_anything_is_made_and_by_plan_too(desk: Desk) -> None:
    first = _failed_once(desk)
    desk.spec(**_limit(0.1))

    planned, called = desk.call("plan", "spec.yaml"), desk.call("run", "spec.yaml")

    assert planned.code == called.code == 2, f"{planned}\n{called}"
    for said in (planned.err, called.err):
        assert f"checks less of onnx-fp16 than run {first} of the" in " ".join(said.split())
    assert "exported" not in called.err
    assert f"artifacts/runs/tiny/{first}/evidence.json" in called.err


def _later(desk: Desk) -> None:
    """Wait until the next run is begun in a later second: two of the same second are in no order."""
    begun = desk.runs[-1].name.partition("-")[0]
    while datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ") <= begun:
        time.sleep(0.05)


def test_to_ask_less_at_the_edge_after_a_failure_needs_a_reason(desk: Desk) -> None:
    _failed_once(desk, edge="fail")
    desk.spec(**_limit(1e-12))

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert "edge: warn, and it was fail" in called.err


def test_with_a_reason_it_is_judged_and_release_and_report_say_so(desk: Desk) -> None:
    first = _failed_once(desk)
    desk.spec(**_limit(0.1), reason="the service rounds to one decimal place")

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 0, str(called)
    assert f"checked less of onnx-fp16 than run {first}, which failed: max_abs_diff is 0.1, and was 1e-12" in called.out
    assert "reason for checking less: the service rounds to one decimal place" in called.out
    assert "looser than the defaults for onnx-fp16: max_abs_diff 0.1" in called.out
    report = (desk.runs[-1] / "report.md").read_text(encoding="utf-8")
    assert "Failed earlier" in report
    assert first in report
    assert "the service rounds to one decimal place" in report
    evidence = json.loads((desk.runs[-1] / "evidence.json").read_text(encoding="utf-8"))
    (kept,) = evidence["earlier_failures"]
    assert (kept["run"], kept["variant"]) == (first, "onnx-fp16")
    assert kept["failed"][0].startswith("max_abs_diff[logits]:")
    # Whether the release is a new version or one that exists already, the log has the move of the alias.
    (record,) = (json.loads(path.read_bytes()) for path in desk.folder.glob("artifacts/repository/log/tiny/*.json"))
    assert "it checks less than a run that failed: the service rounds to one decimal place" in record["reason"]


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({"logits": {"min_cosine_similarity": 0.5}}, "min_cosine_similarity of logits is 0.5, and was 1"),
        ({}, "no min_cosine_similarity is asked of logits, and 1 was"),
    ],
)
def test_a_cosine_similarity_that_is_lowered_after_a_failure_needs_a_reason(
    desk: Desk, outputs: dict[str, Any], words: str
) -> None:
    # No rounding keeps the direction of every row to the last bit.
    first = _failed_once(desk, outputs={"logits": {"min_cosine_similarity": 1}})
    desk.spec(**_limit(1e-12), outputs=outputs)

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert f"checks less of onnx-fp16 than run {first} of the same source, which failed" in called.err
    assert words in called.err


def test_rules_of_a_failure_are_read_from_its_result_in_evidence_of_earlier_versions(desk: Desk) -> None:
    _failed_once(
        desk, outputs={"logits": {"min_cosine_similarity": 1, "min_sqnr": 500}}, edge="fail", probes=["values"]
    )
    desk.spec(**_limit(0.1), probes=["batches"])

    def refused() -> str:
        called = desk.call("plan", "spec.yaml")
        assert called.code == 2, str(called)
        return " ".join(called.err.split())

    recorded = refused()
    _edit(desk, "evidence.json", lambda data: [entry.pop("asked") for entry in data["variants"]])
    known = refused()

    for words in ("max_abs_diff is 0.1", "no min_cosine_similarity", "without the probes values", "edge: warn, and"):
        assert words in recorded
        assert words in known
    # This rule is newer than such evidence.
    assert "no min_sqnr is asked of logits, and 500 was" in recorded
    assert "min_sqnr is asked" not in known


def test_a_limit_that_is_declared_for_the_first_time_needs_none(desk: Desk) -> None:
    # Between neighbouring floats the weights differ by more than FP16 holds, so the defaults fail.
    desk.spec(targets=_TARGETS, tolerance={"onnx-fp16": {"mean_abs_diff": 1e-12}})
    assert desk.call("run", "spec.yaml", "--verbose").code == 1
    desk.spec(
        targets=_TARGETS,
        tolerance={"onnx-fp16": {"mean_abs_diff": 1e-12, "max_abs_diff": 1.0}},
    )

    called = desk.call("run", "spec.yaml", "--verbose")

    # Judged, and failed by the limit that stayed.
    assert called.code == 1, str(called)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"targets": _TARGETS}, "max_abs_diff is no longer declared, but was 1e-12"),
        ({**_limit(1e-12), "decisions": {}}, "no decision on logits"),
    ],
)
def test_what_is_dropped_after_a_failure_needs_a_reason(desk: Desk, parts: dict[str, Any], words: str) -> None:
    _failed_once(desk)
    desk.spec(**parts)

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert words in called.err


def test_probes_that_are_left_out_after_a_failure_need_a_reason(desk: Desk) -> None:
    _failed_once(desk, probes=["batches"])
    desk.spec(**_limit(1e-12))

    by_spec = desk.call("run", "spec.yaml", "--verbose")
    desk.spec(**_limit(1e-12), probes=["batches"])
    by_option = desk.call("run", "spec.yaml", "--verbose", "--probes", "none")

    assert by_spec.code == by_option.code == 2, f"{by_spec}\n{by_option}"
    assert "without the probes batches" in by_spec.err
    assert "without the probes batches" in by_option.err


def test_another_source_is_another_matter(desk: Desk) -> None:
    _failed_once(desk)
    desk.onnx(width=4)
    desk.spec(**_limit(0.1))

    called = desk.call("run", "spec.yaml", "--verbose")

    assert "of the same source" not in called.err
    assert called.code == 0, str(called)


def test_fewer_probes_than_the_spec_asks_for_leave_the_evidence_alone(desk: Desk) -> None:
    _failed_once(desk, probes=["batches"])
    run = desk.run_folder
    before = {path: path.read_bytes() for path in (run / "evidence.json", run / "report.html")}

    called = desk.call("validate", "--run", str(run), "--probes", "none", "--verbose")

    assert called.code == 1, str(called)
    assert {path: path.read_bytes() for path in before} == before
    assert "note: the result is in" in called.out
    assert "probes of the spec were left out (batches)" in called.out
    assert (run / "scratch/evidence.json").is_file()


def test_the_failure_that_a_new_validation_replaces_stays_in_the_report(desk: Desk) -> None:
    first = _failed_once(desk)
    run = desk.run_folder

    called = desk.call("validate", "--run", str(run), "--verbose")

    assert called.code == 1, str(called)
    (kept,) = json.loads((run / "evidence.json").read_text(encoding="utf-8"))["earlier_failures"]
    assert (kept["run"], kept["variant"], kept["asked_less"]) == (first, "onnx-fp16", [])
    assert "this run, validated before" in (run / "report.md").read_text(encoding="utf-8")


def test_a_spec_that_is_loosened_in_the_run_folder_needs_a_reason_too(desk: Desk) -> None:
    _failed_once(desk)
    path = desk.run_folder / "spec.json"
    path.write_text(path.read_text(encoding="utf-8").replace("1e-12", "0.5"), encoding="utf-8")

    called = desk.call("validate", "--run", str(desk.run_folder), "--verbose")

    assert called.code == 2, str(called)
    assert "max_abs_diff is 0.5, and was 1e-12" in called.err


def test_what_was_switched_off_is_printed_with_the_release(desk: Desk) -> None:
    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 0, str(called)
    assert "did not run for onnx-fp32: the probes " in called.out
    shown = desk.call("show", "tiny", "prod", "--verbose")
    assert "did not run for onnx-fp32: the probes " in shown.out


def _edit(desk: Desk, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    path = desk.run_folder / name
    data = json.loads(path.read_bytes())
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def _excused(desk: Desk) -> None:
    """Fail a run, and validate it again with a looser limit and a reason."""
    _failed_once(desk)
    _edit(desk, "spec.json", lambda data: data["spec"]["tolerance"]["onnx-fp16"].update(max_abs_diff=0.5))
    _edit(desk, "spec.json", lambda data: data["spec"].update(reason="the service rounds"))
    called = desk.call("validate", "--run", str(desk.run_folder), "--verbose")
    assert called.code == 0, str(called)


def test_a_failure_that_was_excused_is_not_forgotten_without_the_reason(desk: Desk) -> None:
    _excused(desk)
    _edit(desk, "spec.json", lambda data: data["spec"].update(reason=None))

    called = desk.call("validate", "--run", str(desk.run_folder), "--verbose")

    assert called.code == 2, str(called)
    assert "max_abs_diff is 0.5, and was 1e-12" in called.err


def test_a_failure_that_was_excused_stays_with_what_was_asked_then(desk: Desk) -> None:
    _excused(desk)

    for _ in range(2):
        assert desk.call("validate", "--run", str(desk.run_folder), "--verbose").code == 0

    (kept,) = json.loads((desk.run_folder / "evidence.json").read_bytes())["earlier_failures"]
    assert kept["asked_less"] == ["max_abs_diff is 0.5, and was 1e-12"]
    assert kept["asked"]["decisions"] == ["logits"]
    assert kept["asked"]["tolerance"]["max_abs_diff"] == 1e-12
    # Who asks as much again needs no reason.
    _edit(desk, "spec.json", lambda data: data["spec"]["tolerance"]["onnx-fp16"].update(max_abs_diff=1e-12))
    _edit(desk, "spec.json", lambda data: data["spec"].update(reason=None))
    assert desk.call("validate", "--run", str(desk.run_folder), "--verbose").code == 1


def test_a_failure_that_another_run_excused_needs_a_reason_in_the_next_one_too(desk: Desk) -> None:
    _excused(desk)
    desk.spec(**_limit(0.5))

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert "max_abs_diff is 0.5, and was 1e-12" in called.err


def test_what_failed_on_another_device_needs_a_reason_too(desk: Desk) -> None:
    _failed_once(desk)
    evidence = json.loads((desk.run_folder / "evidence.json").read_bytes())
    elsewhere = {**{key: value for key, value in evidence.items() if key != "others"}, "device": "cuda:sm80"}

    def pass_here(data: dict[str, Any]) -> None:
        data["variants"][1] = changed_entry(data["variants"][1], verdict="pass", exit_code=0)
        data.update(others=[elsewhere])

    _edit(desk, "evidence.json", pass_here)
    _edit(desk, "spec.json", lambda data: data["spec"]["tolerance"]["onnx-fp16"].update(max_abs_diff=0.5))

    called = desk.call("validate", "--run", str(desk.run_folder), "--verbose")

    assert called.code == 2, str(called)
    assert "checks less of onnx-fp16" in called.err
