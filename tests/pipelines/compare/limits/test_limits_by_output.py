"""Limits that are declared for one output, or for each of its columns: by option, in Python, and in a spec."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

import paritygate as pg
from paritygate.errors import UsageError

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Desk, Outcome

_ROWS = 100
_ERROR = 0.01


def _answers() -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(0)
    return {
        "y": random.standard_normal((_ROWS, 2)).astype(np.float32),
        "z": random.standard_normal((_ROWS, 3)).astype(np.float32),
    }


def _off(output: str, column: int) -> dict[str, NDArray[np.float32]]:
    """Return the answers with one column off by 0.01 in one row."""
    answers = _answers()
    answers[output][5, column] += _ERROR
    return answers


def _given(bench: Bench, actual: dict[str, NDArray[np.float32]], *tolerances: str) -> Outcome:
    # One value that is off by so much fails its row and the mean as well: these tests are about the value.
    options = [
        part for text in ("max_row_rel_diff=1", "mean_abs_diff=1", *tolerances) for part in ("--tolerance", text)
    ]
    return bench.given(_answers(), actual, *options)


@pytest.mark.parametrize(
    ("tolerance", "fails"),
    [
        ("max_abs_diff=0.02", set()),
        ("y:max_abs_diff=0.02", set()),
        ("y:max_abs_diff=0.005", {("max_abs_diff", "y")}),
        ("z:max_abs_diff=0.02", {("max_abs_diff", "y")}),
        ("y:max_abs_diff=default,0.02", set()),
        ("y:max_abs_diff=0.02,default", {("max_abs_diff", "y")}),
        ("y:max_abs_diff=1e-9,0.02", set()),
    ],
)
def test_a_limit_of_one_output_holds_for_it_alone(bench: Bench, tolerance: str, fails: set[tuple[str, str]]) -> None:
    found = _given(bench, _off("y", 1), tolerance)

    assert {(check["name"], check["output"]) for check in found.result["checks"] if check["status"] == "fail"} == fails
    assert found.code == (1 if fails else 0)


def test_it_holds_in_place_of_the_limit_of_all_outputs(bench: Bench) -> None:
    assert _given(bench, _off("y", 1), "max_abs_diff=0.001", "y:max_abs_diff=0.02").code == 0
    assert _given(bench, _off("z", 1), "max_abs_diff=0.001", "y:max_abs_diff=0.02").failed == {"max_abs_diff"}
    assert _given(bench, _off("y", 1), "max_abs_diff=1", "y:max_abs_diff=0.001").failed == {"max_abs_diff"}


def test_a_tight_limit_of_a_column_holds_as_written(bench: Bench) -> None:
    actual = _answers()
    actual["y"][:, 0] += np.float32(1e-6)

    assert _given(bench, actual).code == 0
    found = _given(bench, actual, "y:max_abs_diff=1e-7,default")
    assert found.failed == {"max_abs_diff"}
    assert found.check("max_abs_diff", "y")["limit"] == 1e-7


@pytest.mark.parametrize("shape", [(_ROWS,), (_ROWS, 1)])
@pytest.mark.parametrize("name", ["max_abs_diff", "y:max_abs_diff"])
def test_a_declared_limit_may_be_of_an_output_of_one_value_a_row(
    bench: Bench, name: str, shape: tuple[int, ...]
) -> None:
    expected = _answers()["y"][:, :1].reshape(shape)

    for error, code in ((0.0, 0), (0.005, 0), (0.02, 1)):
        options = ("--tolerance", f"{name}=0.01", "--tolerance", "mean_abs_diff=1")
        assert bench.given({"y": expected}, {"y": expected + np.float32(error)}, *options).code == code


@pytest.mark.parametrize("name", ["mean_abs_diff", "max_row_rel_diff"])
def test_other_limits_may_be_of_one_output_too(bench: Bench, name: str) -> None:
    actual = _answers()
    actual["y"][:, 0] += np.float32(1e-6)

    assert _given(bench, actual, f"y:{name}=1e-9").failed == {name}
    assert _given(bench, actual, f"z:{name}=1e-9").code == 0


def test_the_result_holds_what_was_declared(bench: Bench) -> None:
    found = _given(bench, _off("y", 1), "y:max_abs_diff=default,0.02", "z:mean_abs_diff=1e-6")

    assert found.result["tolerance"]["outputs"] == {
        "y": {"max_abs_diff": [None, 0.02]},
        "z": {"mean_abs_diff": [1e-6]},
    }
    assert set(found.result["looser_than_default"]) == {"max_row_rel_diff", "mean_abs_diff", "y:max_abs_diff"}


@pytest.mark.parametrize(
    ("tolerance", "words"),
    [
        ("y:max_abs_diff=1,2,3", ["3 numbers", "expected 2 or 1"]),
        ("w:max_abs_diff=1", ["'w'", "y", "z"]),
        ("y:max_abs_dif=1", ["max_abs_dif'", "max_abs_diff"]),
        ("y:decision_mismatches=1", ["decision_mismatches"]),
        ("y:max_abs_diff=-1", ["-1"]),
        ("y:max_abs_diff=nan", ["nan"]),
        ("y:max_abs_diff=1,,2", ["--tolerance"]),
        ("y:max_row_rel_diff=1,2", ["2 numbers"]),
    ],
)
def test_what_cannot_be_meant_is_refused(bench: Bench, tolerance: str, words: list[str]) -> None:
    found = _given(bench, _answers(), tolerance)

    assert found.code == 2, found.err or found.out
    text = found.err + (found.message if found.result else "")
    assert [word for word in words if word not in text] == [], text


def test_the_hint_of_an_unknown_limit_of_one_output_holds_an_option_that_is_taken(bench: Bench) -> None:
    refused = _given(bench, _answers(), "y:max_abs_dif=1")
    hint = " ".join(refused.err.split())
    found = re.search(r"--tolerance OUTPUT:(\S+)", hint)

    assert found is not None, hint
    taken = _given(bench, _answers(), f"y:{found[1]}")

    assert (refused.code, taken.code) == (2, 0)
    assert taken.result["tolerance"]["outputs"] == {"y": {"max_abs_diff": [1e-3]}}


def test_python_takes_lists_and_both_forms(bench: Bench) -> None:
    expected, actual = bench.npz("a.npz", _answers()), bench.npz("b.npz", _off("y", 1))
    samples = {"x": np.zeros((_ROWS, 1), np.float32)}

    def verdict(tolerance: dict[str, Any]) -> str:
        given = {"max_row_rel_diff": 1.0, "mean_abs_diff": 1.0, **tolerance}
        return str(pg.compare(expected, actual, samples=samples, tolerance=given, probes=[]).verdict)

    assert verdict({}) == "fail"
    assert verdict({"y:max_abs_diff": 0.02}) == "pass"
    assert verdict({"y:max_abs_diff": [None, 0.02]}) == "pass"
    assert verdict({"outputs": {"y": {"max_abs_diff": [None, 0.02]}}}) == "pass"
    assert verdict({"outputs": {"y": {"max_abs_diff": [0.02, None]}}}) == "fail"
    for wrong in ([1.0, 2.0, 3.0], "much", [True, None], {"p_click": 1.0}, []):
        with pytest.raises(UsageError):
            verdict({"y:max_abs_diff": wrong})
    with pytest.raises(UsageError):
        verdict({"outputs": 3})
    with pytest.raises(UsageError):
        verdict({"outputs": {"y": 3}})


def test_the_printed_command_keeps_them(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.folder)
    weight = bench.normal(4, 3, seed=7)
    reference, candidate = bench.linear("a", weight=weight), bench.linear("b", weight=weight * 1.01)
    options = ("--tolerance", "logits:max_abs_diff=default,1,2.5", "--tolerance", "logits:mean_abs_diff=0.5")

    found = bench.compare(reference, candidate, "--samples", bench.samples(rows=64), "--probes", "values", *options)

    printed = [line.strip() for line in (found.out + found.err).splitlines() if "convert-and-validate compare" in line]
    commands = {command for line in printed for command in re.findall(r"convert-and-validate compare .*", line)}
    assert found.code == 1, found.out
    assert commands
    for command in commands:
        assert {"logits:max_abs_diff=default,1.0,2.5", "logits:mean_abs_diff=0.5"} <= set(shlex.split(command))


def test_a_spec_names_columns(desk: Desk) -> None:
    tolerance = {"max_row_rel_diff": 1, "mean_abs_diff": 1, "outputs": {"logits": {"max_abs_diff": {"c": 1.0}}}}
    named = {"logits": {"columns": ["a", "b", "c"]}}
    desk.spec(**_targets(tolerance), outputs=named)

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 0, str(called)
    result = desk.evidence()["variants"][0]["result"]
    assert result["tolerance"]["outputs"] == {"logits": {"max_abs_diff": [None, None, 1.0]}}
    assert "logits:max_abs_diff" in result["looser_than_default"]
    assert "logits:max_abs_diff" in (desk.run_folder / "report.md").read_text(encoding="utf-8")
    # What was released is held to it too, and its page says so.
    (release,) = (desk.json("show", "tiny").data,)
    (loose,) = release["manifest"]["provenance"]["looser_tolerances"].values()
    assert "logits:max_abs_diff" in loose


def _targets(tolerance: dict[str, Any]) -> dict[str, Any]:
    return {"targets": ["onnx-fp32"], "tolerance": {"onnx-fp32": tolerance}}


@pytest.mark.parametrize(
    ("limits", "outputs", "words"),
    [
        ({"max_abs_diff": {"d": 1.0}}, {"logits": {"columns": ["a", "b", "c"]}}, ["'d'", "a, b, c"]),
        ({"max_abs_diff": {"a": 1.0}}, {}, ["'a'", "columns"]),
        ({"max_abs_diff": [1.0, 2.0]}, {}, ["2 numbers", "3 c"]),
        ({"max_abs_diff": {"a": 1.0}}, {"logits": {"columns": ["a", "b"]}}, ["2 n", "3 c"]),
        ({"max_abs_diff": "much"}, {}, ["tolerance"]),
    ],
)
def test_a_spec_that_cannot_be_meant_is_refused(
    desk: Desk, limits: dict[str, Any], outputs: dict[str, Any], words: list[str]
) -> None:
    desk.spec(**_targets({"outputs": {"logits": limits}}), outputs=outputs)

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert [word for word in words if word not in called.err + called.out] == [], str(called)


def test_a_limit_of_an_output_that_is_not_there_is_refused(desk: Desk) -> None:
    desk.spec(**_targets({"outputs": {"scores": {"max_abs_diff": 1.0}}}))

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert "scores" in called.err + called.out


def test_columns_of_an_output_that_is_not_there_are_refused(desk: Desk) -> None:
    desk.spec(outputs={"scores": {"columns": ["a", "b"]}})

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert "scores" in called.err + called.out


def test_after_a_failure_a_limit_of_one_column_may_not_be_raised_without_a_reason(desk: Desk) -> None:
    def spec(limit: object) -> None:
        desk.spec(
            targets=["onnx-fp32", "onnx-fp16"],
            tolerance={"onnx-fp16": {"outputs": {"logits": {"max_abs_diff": limit}}}},
        )

    spec([None, 1e-12, None])
    assert desk.call("run", "spec.yaml", "--verbose").code == 1

    for raised in ([None, 0.1, None], 0.1, [None, None, 1e-12], None):
        if raised is None:
            desk.spec(targets=["onnx-fp32", "onnx-fp16"])
        else:
            spec(raised)
        called = desk.call("run", "spec.yaml", "--verbose")
        assert called.code == 2, f"{raised}: {called}"
        assert "logits:max_abs_diff" in called.err

    # As strict, or stricter, needs none, whichever way it is written.
    spec([1e-3, 1e-12, None])
    assert desk.call("plan", "spec.yaml").code == 0
    desk.spec(targets=["onnx-fp32", "onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 1e-12}})
    assert desk.call("plan", "spec.yaml").code == 0


def test_a_looser_limit_of_one_output_does_not_go_round_that_of_all(desk: Desk) -> None:
    def spec(**outputs: object) -> None:
        limits = {"max_abs_diff": 1e-12, **({"outputs": outputs} if outputs else {})}
        desk.spec(targets=["onnx-fp32", "onnx-fp16"], tolerance={"onnx-fp16": limits})

    spec()
    assert desk.call("run", "spec.yaml", "--verbose").code == 1
    spec(logits={"max_abs_diff": [None, 0.1, None]})

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert "logits:max_abs_diff" in called.err
