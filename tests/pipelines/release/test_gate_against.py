"""`gate --against`: a run that is worse than the released version fails, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.pipelines.conftest import changed_entry

from paritygate.codec import from_data
from paritygate.pipelines.release.regression import _notes, _of_results, _Pair
from paritygate.pipelines.run.evidence import Evidence
from paritygate.pipelines.spec.against import FIGURES
from paritygate.validate.gold.figures import GoldStatistics

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

FACTORS = {name: figure.factor for name, figure in FIGURES.items()}


@pytest.fixture
def desk(finished: Desk, tmp_path: Path) -> Desk:
    """Return a desk with a run that was released as version 1, alias prod."""
    return finished.copy(tmp_path)


def gate(desk: Desk, *options: str, run: Path | None = None, against: str = "prod") -> Called:
    """Hold the run against a release, and return what a user sees."""
    folder = run or desk.runs[0]
    return desk.json("gate", "--run", str(folder), "--against", against, *options)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the JSON data in a file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def edit_result(desk: Desk, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what was measured of the one variant of the run."""
    edit(desk.run_folder / "evidence.json", lambda data: change(data["variants"][0]["result"]))


def set_share(share: float) -> Callable[[dict[str, Any]], None]:
    """Return a change after which the largest difference is that part of its limit."""

    def change(result: dict[str, Any]) -> None:
        for check in result["checks"]:
            if check["name"] == "max_abs_diff":
                check["measured"] = share * check["limit"]

    return change


def set_mismatches(count: int) -> Callable[[dict[str, Any]], None]:
    """Return a change after which so many answers differ."""
    return lambda result: result["decisions"]["logits"].update(mismatches=count)


def test_the_run_that_was_released_is_not_worse(desk: Desk) -> None:
    called = gate(desk)

    assert called.code == 0
    assert [item["figure"] for item in called.data["figures"]] == [
        "max_abs_diff",
        "mismatch_rate",
        "size_mb",
        "interface",
    ]
    assert not any(item["is_worse"] for item in called.data["figures"])
    assert called.data["not_compared"] == ["latency_p50_ms: the run has no benchmark"]
    assert "not compared: latency_p50_ms: the run has no benchmark\n" in called.out
    assert called.out.endswith("verdict: pass: tiny: nothing is worse than in version 1, alias prod\n")


def test_a_larger_difference_is_worse(desk: Desk) -> None:
    edit_result(desk, set_share(0.9))

    called = gate(desk, "--quiet")

    assert called.code == 1
    (worse,) = (item for item in called.data["figures"] if item["is_worse"])
    assert (worse["figure"], worse["about"], worse["now"]) == ("max_abs_diff", "logits", pytest.approx(0.9))
    lines = called.out.splitlines()
    assert lines[2].split() == ["worse", "onnx-fp32", "max_abs_diff", "0", "%", "90", "%", "10", "%"]
    assert lines[3:] == ["verdict: fail: tiny: 1 figure is worse than in version 1, alias prod"]


@pytest.mark.parametrize(("share", "code"), [(0.09, 0), (0.11, 1)])
def test_growth_by_less_than_a_tenth_of_the_limit_is_none_to_speak_of(desk: Desk, share: float, code: int) -> None:
    edit_result(desk, set_share(share))

    assert gate(desk, "--worse", "max_abs_diff=1").code == code


def test_a_model_without_any_release_passes_where_it_is_allowed(desk: Desk) -> None:
    options = ("--repository", "elsewhere")

    assert gate(desk, *options).code == 2
    called = gate(desk, *options, "--allow", "first-release")

    assert called.code == 0
    assert called.data["version"] == 0
    assert "has no release in elsewhere" in " ".join(called.out.split())
    # Where there is a release, a name that is none of its aliases is as wrong as ever, and what is worse is.
    assert gate(desk, "--allow", "first-release", against="canary").code == 2
    edit_result(desk, set_share(0.9))
    assert gate(desk, "--allow", "first-release").code == 1


@pytest.mark.parametrize(("count", "code"), [(1, 0), (2, 1)])
def test_more_answers_that_differ_are_worse(desk: Desk, count: int, code: int) -> None:
    edit_result(desk, set_mismatches(count))

    assert gate(desk).code == code


def test_the_option_says_by_how_much(desk: Desk) -> None:
    edit_result(desk, set_share(0.9))

    assert gate(desk, "--worse", "max_abs_diff=18.1").code == 0
    assert gate(desk, "--worse", "max_abs_diff=17.9").code == 1


def test_the_spec_says_by_how_much_and_the_option_before_it(desk: Desk) -> None:
    edit_result(desk, set_share(0.9))
    edit(desk.run_folder / "spec.json", lambda data: data["spec"]["promote"].update(against={"max_abs_diff": 100}))

    assert gate(desk).code == 0
    assert gate(desk, "--worse", "max_abs_diff=2").code == 1


def test_a_looser_limit_makes_nothing_better(desk: Desk) -> None:
    def change(result: dict[str, Any]) -> None:
        set_share(0.9)(result)
        result["tolerance"]["max_abs_diff"] = 10.0
        for check in result["checks"]:
            if check["name"] == "max_abs_diff":
                check["limit"] = 10.0

    edit_result(desk, change)

    called = gate(desk)

    assert called.code == 1
    assert "note: onnx-fp32 had other limits then" in called.out


def test_what_is_no_longer_looked_at_is_said(desk: Desk) -> None:
    edit_result(desk, lambda result: result["decisions"].clear())

    called = gate(desk)

    assert called.code == 0
    assert "note: onnx-fp32 was held to decisions then that it is not held to now: logits" in called.out


def test_a_larger_file_is_worse(desk: Desk) -> None:
    desk.onnx(width=12)
    assert desk.call("run", "spec.yaml", "--no-promote").code == 0

    called = gate(desk, run=desk.runs[-1])

    assert called.code == 1
    assert [item["figure"] for item in called.data["figures"] if item["is_worse"]] == ["size_mb"]


def test_a_variant_that_fails_now_is_worse(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp16"])
    assert desk.call("run", "spec.yaml").code == 0
    desk.spec(targets=["onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 1e-9}})
    assert desk.call("run", "spec.yaml").code == 1

    called = gate(desk, run=desk.runs[-1])

    assert called.code == 1
    assert called.data["figures"][0]["verdict"] == "fail"
    assert "worse    onnx-fp16  verdict " in called.out


def test_a_variant_that_could_not_be_judged_has_its_own_code(desk: Desk) -> None:
    def change(data: dict[str, Any]) -> None:
        data["variants"][0] = changed_entry(data["variants"][0], verdict="inconclusive", exit_code=3)

    edit(desk.run_folder / "evidence.json", change)

    called = gate(desk)

    assert called.code == 3
    assert "inconclusive  onnx-fp32  verdict " in called.out
    assert "verdict: error: tiny: onnx-fp32 did not pass, but is in version 1" in " ".join(called.out.split())


def test_a_variant_that_the_run_lacks_fails_unless_it_is_allowed(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", "onnx-fp16"], probes="none")
    assert desk.call("run", "spec.yaml").code == 0
    part = ("--target", "onnx-fp16", "--no-promote", "--probes", "none")
    assert desk.call("run", "spec.yaml", *part).code == 0

    called = gate(desk, run=desk.runs[-1])
    assert (called.code, called.data["missing"]) == (1, ["onnx-fp32"])
    assert not any(item["is_worse"] for item in called.data["figures"])

    allowed = gate(desk, "--allow", "fewer-variants", run=desk.runs[-1])
    assert (allowed.code, allowed.data["missing"]) == (0, [])
    assert any(words.startswith("onnx-fp32: ") for words in allowed.data["not_compared"])


def test_a_run_without_any_released_variant_fails(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp16"], probes="none")
    assert desk.call("run", "spec.yaml", "--no-promote").code == 0

    assert gate(desk, run=desk.runs[-1]).data["missing"] == ["onnx-fp32"]
    assert gate(desk, "--allow", "fewer-variants", run=desk.runs[-1]).code == 5


def set_interface(desk: Desk, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what the artifact of the run takes and returns, which is not a file that its digest is over."""
    edit(desk.run_folder / "onnx-fp32/artifact.json", lambda data: change(data["signature"]))


def rename(signature: dict[str, Any]) -> None:
    """Give the input and the output another name."""
    signature["inputs"][0]["name"] = "features"
    signature["outputs"][0]["name"] = "score"


def test_another_name_of_an_output_or_input_breaks_a_client(desk: Desk) -> None:
    np.savez(desk.folder / "inputs.npz", features=np.load(desk.folder / "inputs.npz")["x"])
    model = {"name": "tiny", "source": "model.onnx", "rename": {"output_0": "score", "x": "features"}}
    desk.spec(model=model, decisions={"score": {"argmax": True}})
    assert desk.call("run", "spec.yaml", "--no-promote").code == 0

    called = gate(desk, run=desk.runs[-1])

    assert called.code == 1
    (worse,) = (item for item in called.data["figures"] if item["is_worse"])
    assert (worse["figure"], worse["was"], worse["now"], worse["allowed"]) == ("interface", 0, 3, 0)
    assert worse["changes"] == ["output logits is gone", "input x is gone", "input features is new and required"]
    assert (
        "worse: onnx-fp32: a client of version 1, alias prod breaks: output logits is gone; input x is gone; input "
        "features is new and required (model.rename of the spec keeps names; --allow interface lets it pass)"
    ) in " ".join(called.out.split())
    assert "verdict: fail: tiny: 1 figure is worse than in version 1, alias prod" in called.out


def test_another_interface_may_be_allowed(desk: Desk) -> None:
    set_interface(desk, rename)

    assert gate(desk).code == 1
    called = gate(desk, "--allow", "interface")

    assert called.code == 0
    said = " ".join(called.out.split())
    assert "note: onnx-fp32: a client of version 1, alias prod breaks: output logits is gone;" in said
    assert "new and required; allowed by --allow interface" in said
    assert called.out.endswith("verdict: pass: tiny: nothing is worse than in version 1, alias prod\n")


def test_an_output_that_is_new_breaks_no_client(desk: Desk) -> None:
    new = {"name": "score", "dtype": "float32", "shape": ["batch"]}
    set_interface(desk, lambda signature: signature["outputs"].append(new))

    assert gate(desk).code == 0


def test_an_input_that_is_new_and_another_dtype_break_a_client(desk: Desk) -> None:
    def change(signature: dict[str, Any]) -> None:
        signature["inputs"].append({"name": "mask", "dtype": "int64", "shape": ["batch"]})
        signature["outputs"][0]["dtype"] = "float64"

    set_interface(desk, change)

    called = gate(desk, "--quiet")

    assert called.code == 1
    assert "breaks: input mask is new and required; output logits is float64, and was float32" in " ".join(
        called.out.split()
    )


def test_a_released_record_that_was_changed_is_no_measure_of_the_interface(desk: Desk) -> None:
    path = desk.folder / "artifacts/repository/store/tiny/1/onnx-fp32/artifact.json"
    path.chmod(0o644)
    edit(path, lambda data: rename(data["signature"]))

    called = gate(desk)

    assert called.code == 5
    assert "artifact.json is corrupt" in called.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--worse", "speed=2"], "'speed' is not known"),
        (["--worse", "size_mb=0.5"], "not a finite number of at least 1"),
        (["--worse", "size_mb=nan"], "not a finite number of at least 1"),
        (["--worse", "size_mb"], "not of the form NAME=VALUE"),
        (["--worse", "size_mb=big"], "'big' is not a number"),
        (["--worse", "size_mb=2", "--worse", "size_mb=3"], "occurs twice"),
        (["--repository", "elsewhere"], "no repository exists at elsewhere"),
    ],
)
def test_wrong_usage_is_said(desk: Desk, options: list[str], words: str) -> None:
    called = gate(desk, *options)

    assert called.code == 2
    assert words in called.err
    assert "hint: " in called.err


def test_a_release_that_is_not_there_is_wrong_usage(desk: Desk) -> None:
    called = gate(desk, against="canary")

    assert called.code == 2
    assert "model 'tiny' has no release 'canary' (versions: 1; aliases: prod)" in called.err


def test_a_release_that_was_changed_is_no_measure(desk: Desk) -> None:
    path = desk.folder / "artifacts/repository/store/tiny/1/evidence.json"
    path.chmod(0o644)
    edit(path, lambda data: set_share(0.99)(data["variants"][0]["result"]))

    called = gate(desk)

    assert called.code == 5
    assert "is corrupt" in called.err


def test_evidence_of_other_files_is_no_measure(desk: Desk) -> None:
    path = desk.run_folder / "onnx-fp32/model.onnx"
    path.write_bytes(path.read_bytes().replace(b"linear", b"lineal"))

    assert gate(desk).code == 5


def pair_with_gold(desk: Desk, was: float, now: float) -> _Pair:
    """Return the variant with a metric of gold on both sides."""
    entry = from_data(Evidence, desk.evidence()).variants[0]
    assert entry.result is not None
    gold = GoldStatistics(
        metric="accuracy",
        output="logits",
        rows=120,
        rows_without=0,
        reference=was,
        candidate=was,
        difference=0.0,
        difference_low_95=None,
        difference_high_95=None,
        limit=None,
        margin_low_95=None,
        margin_high_95=None,
        ratio=None,
        max_drop=None,
        gold_above=None,
        digest="",
    )
    sides = [
        replace(entry, result=replace(entry.result, gold={"accuracy": replace(gold, candidate=value)}))
        for value in (now, was)
    ]
    return _Pair(variant="onnx-fp32", now=sides[0], was=sides[1])


@pytest.mark.parametrize(
    ("was", "now", "is_worse"),
    [(0.9, 0.895, False), (0.9, 0.88, True), (0.9, 0.95, False), (-0.1, -0.1, False), (-0.1, -0.2, True)],
)
def test_less_of_a_metric_is_worse(desk: Desk, was: float, now: float, is_worse: bool) -> None:  # noqa: FBT001 - a parameter
    (found,) = (item for item in _of_results(pair_with_gold(desk, was, now), FACTORS) if item.figure == "gold")

    assert found.is_worse is is_worse


@pytest.mark.thorough
def test_speed_counts_where_both_were_measured_on_one_machine(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever else this machine does: what was timed beside other work is not compared.
    monkeypatch.setattr("paritygate.pipelines.run.benchmark.others_cores", lambda *_: 0.0)
    desk.spec(benchmark={"rounds": 2, "seconds": 0.01})
    assert desk.call("run", "spec.yaml").code == 0
    # The same artifact, judged in the same way, is not a new version: it is released again under the same number.
    run = desk.runs[-1]
    desk.onnx(fill=2.0)
    assert desk.call("run", "spec.yaml", "--alias", "next").code == 0

    def latency(run: Path, against: str) -> dict[str, Any] | None:
        called = gate(desk, "--worse", "latency_p50_ms=1000", run=run, against=against)
        return next((item for item in called.data["figures"] if item["figure"] == "latency_p50_ms"), None)

    assert latency(desk.runs[-1], "next") is not None

    def slower(data: dict[str, Any]) -> None:
        for variant in data["variants"]:
            for point in variant["points"]:
                point["latency_ms"]["p50"] *= 1000
                point["round_medians_ms"] = [value * 1000 for value in point["round_medians_ms"]]

    edit(desk.runs[-1] / "benchmark.json", slower)
    called = gate(desk, run=desk.runs[-1], against="next")
    assert called.code == 1
    assert [item["figure"] for item in called.data["figures"] if item["is_worse"]] == ["latency_p50_ms"]

    edit(desk.runs[-1] / "benchmark.json", lambda data: data["machine"].update(others_cores=100.0))
    beside_work = [
        gate(desk, *options, run=desk.runs[-1], against="next") for options in ((), ("--worse", "latency_p50_ms=2"))
    ]
    # A factor that the user declares fails where the speed cannot be trusted.
    assert [called.code for called in beside_work] == [0, 5]

    edit(desk.runs[-1] / "benchmark.json", lambda data: data["machine"]["cpu"].update(model="another"))
    called = gate(desk, run=desk.runs[-1], against="next")
    assert called.code == 0
    assert any("latency_p50_ms: it was measured on cpu of another" in words for words in called.data["not_compared"])
    assert run.is_dir()


@pytest.mark.parametrize(("difference", "is_worse"), [(1e-5, False), (9e-5, True)])
def test_across_rules_of_limits_the_differences_themselves_are_compared(
    desk: Desk, difference: float, *, is_worse: bool
) -> None:
    # By the limits of today it takes nearly all of them: that is not a measure.
    edit_result(desk, set_share(0.99))
    edit_result(desk, lambda result: result["outputs"]["logits"].update(max_abs_diff=difference))
    (now,) = from_data(Evidence, desk.evidence()).variants
    edit_result(desk, lambda result: result["outputs"]["logits"].update(max_abs_diff=1e-5))

    def of_rule_1(result: dict[str, Any]) -> None:
        del result["limit_rule"], result["tolerance"]["outputs"]
        for check in result["checks"]:
            if check["name"] == "max_abs_diff":
                check.update(measured=1e-5, limit=1e-4)

    edit_result(desk, of_rule_1)
    (was,) = from_data(Evidence, desk.evidence()).variants
    assert now.result is not None
    assert was.result is not None
    pair = _Pair(variant="onnx-fp32", now=now, was=was)

    found = next(item for item in _of_results(pair, FACTORS) if item.figure == "max_abs_diff")

    assert (now.result.limit_rule, was.result.limit_rule) == (2, 1)
    assert (found.was, found.now) == pytest.approx((0.1, difference / 1e-4))
    assert found.is_worse is is_worse
    assert len(list(_notes(pair))) == 1
