from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pytest

from paritygate.codec import to_data

if TYPE_CHECKING:
    import onnx

Zoo = Callable[[str], ModuleType]


class Named(Protocol):
    """What is used of a case here."""

    name: str
    family: str


@pytest.fixture
def zoo(zoo_on_path: None) -> Zoo:
    del zoo_on_path
    return importlib.import_module


def test_there_are_sixty_architectures_of_fifteen_families(zoo: Zoo) -> None:
    cases = zoo("cases")
    listed = [case for part in cases.PARTS for case in part]
    assert len({case.name for case in listed}) == len(listed) >= 60
    assert len({case.family for case in listed}) >= 15


def test_the_script_that_says_what_is_right_uses_nothing_of_paritygate(project_root: Path) -> None:
    folder = project_root / "benchmarks" / "zoo"
    seen, waiting = set(), {"check", "faults"}
    while waiting:
        name = waiting.pop()
        seen.add(name)
        tree = ast.parse((folder / f"{name}.py").read_text())
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert not [module for module in imported if module.startswith("paritygate")]
        waiting |= {module for module in imported if (folder / f"{module}.py").exists()} - seen
    assert {"case", "cases", "source", "lively"} <= seen


@pytest.mark.parametrize("name", ["bert", "dlrm", "gpt2-cache"])
def test_the_script_draws_other_rows_than_paritygate_is_given(zoo: Zoo, name: str) -> None:
    check, case = zoo("check"), zoo("cases").CASES[name]
    given = {row.tobytes() for arrays in check.samples(case) for row in next(iter(arrays.values()))}
    own = [row.tobytes() for arrays in check.own_inputs(case) for row in next(iter(arrays.values()))]
    # Of ids there are few, so that a short row may be drawn twice.
    assert sum(row in given for row in own) <= len(own) // 5


@pytest.mark.parametrize(
    ("verdict", "state", "worth"),
    [
        ("pass", "right", "right"),
        ("pass", "wrong", "MISS"),
        ("fail", "right", "FALSE REFUSAL"),
        ("inconclusive", "right", "FALSE REFUSAL"),
        ("error", "right", "FALSE REFUSAL"),
        ("fail", "wrong", "refused"),
        ("pass", "unclear", "unclear"),
        ("not converted", None, "not converted"),
        ("pass", None, "not checked"),
    ],
)
def test_a_verdict_is_worth_what_the_script_says(zoo: Zoo, verdict: str, state: str | None, worth: str) -> None:
    variant = {"verdict": verdict, **({"checked": {"state": state}} if state else {})}
    assert zoo("table").classify(variant) == worth


@pytest.mark.parametrize(("given", "worth"), [("wrong", "refused"), ("unclear", "FALSE REFUSAL")])
def test_a_file_that_is_off_on_the_rows_it_was_refused_for_is_refused_rightly(zoo: Zoo, given: str, worth: str) -> None:
    checked = {"state": "right", "given": given}
    assert zoo("table").classify({"verdict": "fail", "checked": checked}) == worth
    assert zoo("table").classify({"verdict": "pass", "checked": checked}) == "right"


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ({"verdict": "fail", "edge": []}, "caught"),
        ({"verdict": "pass", "edge": ["values of x beyond those seen"]}, "explained"),
        ({"verdict": "pass", "not_covered": ["values of x beyond those seen are not compared"]}, "explained"),
        ({"verdict": "pass", "not_covered": ["ids 8 to 9 of x are not asked"]}, "MISS"),
        ({"verdict": "pass", "edge": []}, "MISS"),
        ({"verdict": "not planted"}, "not planted"),
        ({"verdict": "error", "edge": []}, "error"),
    ],
)
def test_a_fault_that_passes_without_a_word_is_a_miss(zoo: Zoo, fault: dict[str, Any], outcome: str) -> None:
    assert zoo("table").found(fault) == outcome


def test_the_page_says_what_was_run_and_what_was_not(zoo: Zoo) -> None:
    passed = {"verdict": "pass", "why": "", "edge": [], "checked": {"state": "right", "off": 1e-7}}
    failed = {"verdict": "fail", "why": "max_abs_diff: 1 > 0.1", "edge": [], "checked": {"state": "right", "off": 1e-7}}
    lines = [
        {
            "case": name,
            "family": "recommender",
            "variants": {"onnx-fp32": variant},
            "operators": ["Add"],
            "probes": "all",
            "seconds": 1800,
        }
        for name, variant in (("dlrm", passed), ("deepfm", failed))
    ]
    page = zoo("table").page(lines, "a machine")
    assert "Run: 2 cases of 1 families, 2 variants, in 1.0 hours, on a machine." in page
    assert "| FALSE REFUSAL | 1 |" in page
    assert "- deepfm, onnx-fp32: FALSE REFUSAL: max_abs_diff: 1 > 0.1" in page
    assert "Cases with the same operators: deepfm, dlrm." in page
    assert "bert" in page.partition("## Not run")[2]


def test_cases_that_were_not_run_again_keep_what_the_page_says_of_them(zoo: Zoo) -> None:
    def line(name: str, verdict: str) -> dict[str, Any]:
        checked = {"state": "right", "off": 1e-7}
        variants = {"onnx-fp32": {"verdict": verdict, "why": "1 > 0.1 (far)", "edge": [], "checked": checked}}
        faults = {"rare": {"verdict": "pass", "edge": [], "what": "a row"}}
        family = zoo("cases").CASES[name].family
        return {
            "case": name,
            "family": family,
            "variants": variants,
            "faults": faults,
            "probes": "all",
            "seconds": 1800,
        }

    table = zoo("table")
    before = table.page([line("dlrm", "fail"), line("deepfm", "fail")], "a machine")
    page = table.page([line("deepfm", "pass")], "a machine", before)

    assert "| dlrm* | recommender |" in page
    assert "| FALSE REFUSAL | 1 |\n| right | 1 |" in page
    assert "| MISS | 2 |" in page
    assert "Run: 2 cases of 1 families, 2 variants, in 1.0 hours" in page
    assert "- dlrm, onnx-fp32: FALSE REFUSAL: 1 > 0.1 (far)" in page
    assert "- deepfm, onnx-fp32" not in page
    # Once more changes nothing: a mark stays one mark.
    assert table.page([line("deepfm", "pass")], "a machine", page) == page


def test_the_page_says_how_much_of_what_can_be_converted_is(zoo: Zoo) -> None:
    passed = {"verdict": "pass", "why": "", "edge": [], "checked": {"state": "right", "off": 1e-7}}
    failed = {"verdict": "not converted", "why": "no"}
    rest = {"family": "any", "probes": "all", "seconds": 1}
    lines = [
        {"case": "dlrm", "variants": {"onnx-fp32": passed, "onnx-fp16": failed}, **rest},
        {"case": "deepfm", "variants": {"onnx-fp32": passed, "onnx-fp16": passed}, **rest},
        {"case": "longformer", "variants": {"onnx-fp32": failed}, **rest},
    ]
    page = zoo("table").page(lines, "a machine")
    assert "Of the 4 variants" in page
    assert "3 (75.0%)" in page
    assert "converts 1 more" in page
    assert "\n- longformer: no exporter of PyTorch writes it right: " in page
    # What is kept of an earlier page counts in the same way.
    assert "3 (75.0%)" in zoo("table").page([], "a machine", page)


def test_shards_share_the_cases_out(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, cases = zoo("zoo"), zoo("cases").CASES
    parts = []
    for part in (1, 2, 3):
        monkeypatch.setenv("SHARD", f"{part}/3")
        parts.append([case.name for case in runner.chosen([])])
    assert sorted(name for part in parts for name in part) == sorted(cases)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_cases_that_have_a_line_are_not_run_again(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner, ran = zoo("zoo"), []

    def run_case(case: Named, folder: Path, *_: object) -> dict[str, Any]:
        ran.append(case.name)
        folder.mkdir()
        return {"case": case.name, "family": case.family, "variants": {}, "seconds": 1}

    monkeypatch.setattr(runner, "run_case", run_case)
    monkeypatch.setattr("sys.argv", ["zoo.py", "dlrm", "deepfm", "--out", str(tmp_path)])
    monkeypatch.delenv("SHARD", raising=False)
    (tmp_path / "results.jsonl").write_text(json.dumps({"case": "dlrm"}) + "\n")
    runner.main()
    assert ran == ["deepfm"]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2
    assert capsys.readouterr().out.startswith("deepfm")


def _linear() -> onnx.ModelProto:
    import onnx

    make = onnx.helper.make_node
    weight = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "weight")
    graph = onnx.helper.make_graph(
        [make("MatMul", ["x", "weight"], ["product"]), make("Tanh", ["product"], ["y"])],
        "linear",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])],
        [weight],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


def _rows_changed(
    faults: ModuleType, before: onnx.ModelProto, after: onnx.ModelProto, inputs: list[dict[str, Any]]
) -> int:
    pairs = zip(faults.run_all(before, inputs), faults.run_all(after, inputs), strict=True)
    return sum(int((first["y"] != second["y"]).any(1).sum()) for first, second in pairs)


@pytest.mark.parametrize("outside", [False, True])
def test_a_planted_fault_hits_few_rows_or_none_of_the_samples(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, outside: bool
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    faults = zoo("faults")
    random = np.random.default_rng(0)
    inputs = [{"x": random.standard_normal((16, 4)).astype(np.float32)} for _ in range(7)]
    model = _linear()
    what = faults.conditional(model, inputs, outside=outside)
    assert what.startswith("y is 1.5 times as large and 0.5 more where x exceeds")
    changed = _rows_changed(faults, _linear(), model, inputs)
    assert changed == 0 if outside else 0 < changed <= 0.05 * 112
    assert _rows_changed(faults, _linear(), model, [{"x": np.full((1, 4), 100, np.float32)}]) == 1


def test_a_structural_fault_changes_an_operator_and_the_answers(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    faults = zoo("faults")
    inputs = [{"x": np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)}]
    model = _linear()
    assert faults.structural(model, "any", inputs).startswith("Tanh -> Erf")
    assert faults.operators(model) == ["Erf", "MatMul"]
    assert _rows_changed(faults, _linear(), model, inputs) > 0


def test_what_was_not_converted_stands_in_the_line_with_its_reason(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner = zoo("zoo")
    failures = {"onnx-fp32": {"message": "ONNX does not have this operator"}}
    run = {"exit_code": 4, "run": "r", "variants": {"onnx-fp32": None}, "emulated": {}, "failures": failures}
    (tmp_path / "run.json").write_text(json.dumps({"runs": [run]}))
    monkeypatch.setattr(runner, "paritygate", lambda *_: None)
    judged = runner.judge(tmp_path, runner.Asked(targets=(), probes="all", faults=(), device="cpu"))
    assert judged["variants"] == {"onnx-fp32": {"verdict": "not converted", "why": "ONNX does not have this operator"}}


def test_what_a_comparison_found_stands_in_the_line(zoo: Zoo) -> None:
    check = {"name": "max_abs_diff", "output": "y", "status": "fail", "detail": "1 > 0.1"}
    result = to_data(
        {
            "verdict": "fail",
            "checks": [check],
            "error": None,
            "edge_findings": [{"edge": "an empty row"}],
            "probes": {"asked": {"values": {"notes": ["values of x beyond those seen are not compared"]}}},
        }
    )
    assert zoo("zoo").verdict_of(result) == {
        "verdict": "fail",
        "why": "max_abs_diff of y: 1 > 0.1",
        "edge": ["an empty row"],
        "not_covered": ["values of x beyond those seen are not compared"],
    }
