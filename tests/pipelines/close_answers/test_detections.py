"""Detections beside everything else that the gate does: strata, passes, sessions, and the command that fails again."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from paritygate.artifact import ARTIFACT_FILE
from paritygate.files import digest_of_file, digest_of_files
from paritygate.validate.runners import onnxruntime as onnxruntime_runner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Called, Desk, Outcome

    Arrays = Mapping[str, NDArray[np.generic]]

_MATCH = ("--match", "found:boxes=boxes,scores=scores,classes=labels")
_IGNORE = ("--ignore", "noise=drawn anew on every call")
_MATCHES = {"found": {"boxes": "boxes", "scores": "scores", "classes": "labels"}}


def _detector(path: Path, *, fault: str = "", noise: bool = False, logits: str = "") -> str:
    """Write the detector and return its path.

    Args:
        path: The file.
        fault: `clipped`: x is cut where no sample is. `blind`: the second box is elsewhere where x[0] is below zero.
        noise: Whether there is an output `noise` that no two calls agree in.
        logits: The name of an output of three a row; empty for none.
    """
    node, of = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes: list[onnx.NodeProto] = [
        node("Clip", ["x", "", "most"], ["seen"]) if fault == "clipped" else node("Identity", ["x"], ["seen"]),
        node("Split", ["seen"], ["low", "rest"], axis=1),
        node("Add", ["low", "size"], ["high"]),
        node("Concat", ["low", "high"], ["first"], axis=1),
        node("Add", ["first", "far"], ["other"]),
        node("Unsqueeze", ["first", "one"], ["first_of_two"]),
        node("Unsqueeze", ["second", "one"], ["second_of_two"]),
        node("Concat", ["first_of_two", "second_of_two"], ["boxes"], axis=1),
        node("Sigmoid", ["rest"], ["scores"]),
        node("Mul", ["rest", "zero"], ["zeros"]),
        node("Add", ["zeros", "classes"], ["float_labels"]),
        node("Cast", ["float_labels"], ["labels"], to=onnx.TensorProto.INT64),
    ]
    if fault == "blind":
        nodes[5:5] = [
            node("Slice", ["x", "start", "one", "one"], ["sign"]),
            node("Less", ["sign", "zero"], ["is_below"]),
            node("Add", ["other", "size_of_box"], ["moved"]),
            node("Where", ["is_below", "moved", "other"], ["second"]),
        ]
    else:
        nodes.insert(5, node("Identity", ["other"], ["second"]))
    outputs = [
        of("boxes", onnx.TensorProto.FLOAT, ["batch", 2, 4]),
        of("scores", onnx.TensorProto.FLOAT, ["batch", 2]),
        of("labels", onnx.TensorProto.INT64, ["batch", 2]),
    ]
    if noise:
        nodes.append(node("RandomNormalLike", ["x"], ["noise"]))
        outputs.append(of("noise", onnx.TensorProto.FLOAT, ["batch", 4]))
    if logits:
        nodes.append(node("MatMul", ["seen", "weight"], [logits]))
        outputs.append(of(logits, onnx.TensorProto.FLOAT, ["batch", 3]))
    weights = {
        "most": np.array(5, dtype=np.float32),
        "size": np.full(1, 3, dtype=np.float32),
        "size_of_box": np.full(4, 2, dtype=np.float32),
        "far": np.full(1, 50, dtype=np.float32),
        "zero": np.zeros(1, dtype=np.float32),
        "start": np.zeros(1, dtype=np.int64),
        "one": np.ones(1, dtype=np.int64),
        "classes": np.array([0, 1], dtype=np.float32),
        "weight": np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32),
    }
    used = {name for item in nodes for name in item.input}
    graph = onnx.helper.make_graph(
        nodes,
        # The name is in the bytes: two detectors of one test are never the same file.
        path.stem,
        [of("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        outputs,
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items() if name in used],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return str(path)


def _compare(bench: Bench, *options: str, fault: str = "", noise: bool = False, logits: str = "") -> Outcome:
    reference, candidate = (
        _detector(bench.folder / f"{name}.onnx", fault=planted, noise=noise, logits=logits)
        for name, planted in (("a", ""), ("b", fault))
    )
    return bench.compare(reference, candidate, "--samples", bench.samples(64), *_MATCH, *options)


def _command(out: str, probe: str) -> list[str]:
    found = re.search(rf"probe {probe}: to see this alone: convert-and-validate (.*)", out)
    assert found is not None, out
    return shlex.split(found[1])


def _change(monkeypatch: pytest.MonkeyPatch, change: object) -> None:
    """Have every runner of the file `b.onnx` answer by `change(number, answers)`, the number of the call from 1."""
    own = onnxruntime_runner.open_model

    def open_model(model: object) -> object:
        runner = own(model)  # type: ignore[arg-type]  # what the table of runners calls it with
        if model.ref.path.stem == "b":  # type: ignore[attr-defined]  # a LoadedModel
            answer, calls = runner.run, []

            def run(inputs: Arrays) -> Arrays:
                calls.append(1)
                return change(len(calls), dict(answer(inputs)))  # type: ignore[operator,no-any-return]

            runner.run = run  # type: ignore[method-assign,assignment]
        return runner

    monkeypatch.setattr(onnxruntime_runner, "open_model", open_model)


def _drifting(number: int, found: dict[str, NDArray[np.float32]]) -> Arrays:
    # On either side of the reference within its tolerance of scores, and beyond it between the two.
    return {**found, "scores": found["scores"] + np.float32(0.008 if number % 2 else -0.008)}


def _settling(number: int, found: dict[str, NDArray[np.float32]]) -> Arrays:
    return {**found, "scores": found["scores"] + np.float32(0.008 if number <= 8 else -0.008)}


@pytest.mark.parametrize("probe", ["repeats", "concurrent"])
def test_detections_that_change_from_call_to_call_are_held_to_the_first_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, probe: str
) -> None:
    equivalent = _compare(bench, "--probes", probe)
    _change(monkeypatch, _drifting)
    unasked = _compare(bench, "--probes", "none")
    asked = _compare(bench, "--probes", probe)

    assert (equivalent.code, equivalent.result["probes"]["asked"][probe]["status"]) == (0, "pass"), equivalent.out
    assert unasked.code == 0, unasked.out
    assert (asked.code, asked.failed) == (1, {f"probe_{probe}"})
    (failure, *_) = asked.result["probes"]["asked"][probe]["failures"]
    assert failure["check"] == "repeat_detections"
    assert failure["detail"].endswith("match_score_diff: 0.016 > 0.01")


def test_detections_without_optimisations_are_held_to_those_as_deployed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = onnxruntime_runner.open_model

    def open_model(model: object) -> object:
        runner = own(model)  # type: ignore[arg-type]  # what the table of runners calls it with
        if model.ref.path.stem == "b":  # type: ignore[attr-defined]  # a LoadedModel
            answer, is_plain = runner.run, runner.facts.optimisation == "disable_all"
            runner.run = lambda inputs: _drifting(int(is_plain), dict(answer(inputs)))  # type: ignore[method-assign,assignment]
        return runner

    monkeypatch.setattr(onnxruntime_runner, "open_model", open_model)

    outcome = _compare(bench, "--probes", "repeats,optimisation")

    assert (outcome.code, outcome.failed) == (1, {"probe_optimisation"})
    detail = outcome.check("probe_optimisation")["detail"]
    assert re.search(r"repeat_detections: found: .*: match_score", detail)


def test_a_fresh_process_is_held_to_the_first_detections(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    equivalent = _compare(bench, "--probes", "fresh")
    # The samples are four calls; the batches that are asked again are beyond the eighth only in the session itself.
    _change(monkeypatch, lambda number, found: _settling(number + 4, found))
    outcome = _compare(bench, "--probes", "fresh")

    assert equivalent.code == 0, equivalent.out
    assert equivalent.result["probes"]["asked"]["fresh"]["rows"] > 0
    assert (outcome.code, outcome.failed) == (1, {"probe_fresh"})
    (failure, *_) = outcome.result["probes"]["asked"]["fresh"]["failures"]
    assert failure["check"] == "repeat_detections"


def test_answers_that_failed_already_are_still_held_to_the_first_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(number: int, found: dict[str, NDArray[np.float32]]) -> Arrays:
        # Right on the samples, wrong in every probe, and otherwise wrong from call to call.
        return found if number <= 4 else {**found, "scores": found["scores"] + np.float32(0.2 + 0.1 * (number % 2))}

    _change(monkeypatch, wrong)

    outcome = _compare(bench, "--probes", "batches,repeats")

    asked = outcome.result["probes"]["asked"]
    assert outcome.failed == {"probe_batches", "probe_repeats"}
    assert {failure["check"] for failure in asked["batches"]["failures"]} == {"match_score_diff"}
    assert {failure["check"] for failure in asked["repeats"]["failures"]} == {"repeat_detections"}


def test_passes_are_held_to_the_first_detections(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--probes", "none", "--repeat", "3")

    same = _compare(bench, *options)
    once = _compare(bench, "--probes", "none")
    # Four batches a pass: the third pass differs.
    _change(monkeypatch, _settling)
    drifted = _compare(bench, *options)

    assert (same.code, same.status("repeat_detections", "found")) == (0, "pass")
    assert "repeat_detections" not in {check["name"] for check in once.result["checks"]}
    assert (drifted.code, drifted.failed) == (1, {"repeat_detections"})
    check = drifted.check("repeat_detections")
    assert (check["measured"], check["limit"]) == (4, 0)
    (words,) = check["words"]
    assert (words["key"], words["values"]["changed"], words["values"]["batches"]) == ("match.changed", 4, 8)


def test_passes_in_which_the_detector_answers_something_else_altogether_fail(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flat(number: int, found: dict[str, NDArray[np.float32]]) -> Arrays:
        return {**found, "boxes": found["boxes"].reshape(len(found["boxes"]), -1)[:, : 8 if number > 4 else 7]}

    _change(monkeypatch, flat)

    outcome = _compare(bench, "--probes", "none", "--repeat", "2")

    assert outcome.code == 1
    assert {"contract.match", "repeat_detections"} <= outcome.failed
    assert "match.first_broken" in str(outcome.check("repeat_detections")["words"])


# What clips beyond the samples differs at the edge alone.
_AT_EDGE = ("--probes", "values", "--edge", "fail")


@pytest.mark.parametrize("has_folder", [True, False])
@pytest.mark.parametrize("others", [False, True])
def test_the_command_that_is_printed_of_detections_fails_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, has_folder: bool, others: bool
) -> None:
    monkeypatch.chdir(bench.folder)
    folder = ("--failures", str(bench.folder / "kept"))
    extra = _IGNORE if others else ()

    found = _compare(bench, *_AT_EDGE, *extra, *folder * has_folder, fault="clipped", noise=others)
    words = _command(found.out, "values")
    alone = bench.compare(words[1], words[2], *words[3:])

    (failure, *_) = found.result["probes"]["asked"]["values"]["failures"]
    assert (found.code, found.failed, failure["check"]) == (1, {"probe_values"}, "detections_matched")
    assert (alone.code, alone.failed) == (1, {"detections_matched" if has_folder else "probe_values"}), alone.message
    assert set(alone.result["matches"]) == {"found"}


def test_the_command_of_another_output_leaves_detections_and_what_is_ignored_out(bench: Bench) -> None:
    found = _compare(
        bench,
        *(*_AT_EDGE, *_IGNORE, "--failures", str(bench.folder / "kept")),
        fault="clipped",
        noise=True,
        logits="logits",
    )
    words = _command(found.out, "values")
    alone = bench.compare(words[1], words[2], *words[3:])

    (failure, *_) = found.result["probes"]["asked"]["values"]["failures"]
    assert failure["check"] == "max_abs_diff"
    assert words[words.index("--outputs") + 1] == "logits"
    assert not {"--match", "--ignore"} & set(words)
    assert (alone.code, "max_abs_diff" in alone.failed) == (1, True), alone.message


_ROWS = """
import numpy as np
from paritygate.batch import Batch

def read(path):
    random = np.random.default_rng(0)
    for start in range(0, 120, 12):
        x = random.standard_normal((12, 4)).astype(np.float32)
        x[:3, 0] = -abs(x[:3, 0])
        x[3:, 0] = abs(x[3:, 0])
        yield Batch(inputs={"x": x}, ids=[str(start + at) for at in range(12)],
                    strata={"light": ["dark"] * 3 + ["day"] * 9, "place": ["home"] + ["away"] * 11})
"""


@pytest.fixture
def detecting(desk: Desk) -> Desk:
    """Return a desk whose model is the detector, with an output that is ignored, and whose samples have strata."""
    _detector(desk.folder / "model.onnx", noise=True)
    name = f"rows_{desk.folder.name.replace('-', '_')}"
    desk.module(name, _ROWS)
    sys.path.insert(0, str(desk.folder))
    desk.spec(
        model={"name": "tiny", "source": "model.onnx"},
        samples={"source": f"{name}:read", "strata": ["light", "place"]},
        report={"inputs": "show"},
        matches=_MATCHES,
        outputs={"noise": {"ignore": "drawn anew on every call"}},
        decisions={},
        promote={"prefer": "smallest"},
    )
    return desk


def _validated(desk: Desk, fault: str, *, logits: str = "") -> Called:
    """Export and record, plant the fault in the artifact as if it had been made so, and validate."""
    _detector(desk.folder / "model.onnx", noise=True, logits=logits)
    assert desk.call("export", "spec.yaml", "--verbose").code == 0
    folder = desk.run_folder / "onnx-fp32"
    _detector(folder / "model.onnx", fault=fault, noise=True, logits=logits)
    record = json.loads((folder / ARTIFACT_FILE).read_text(encoding="utf-8"))
    files = {name: digest_of_file(folder / name) for name in record["files"]}
    record |= {"files": files, "digest": digest_of_files(files)}
    (folder / ARTIFACT_FILE).write_text(json.dumps(record), encoding="utf-8")
    assert desk.call("record", "--run", str(desk.run_folder), "--quiet").code == 0
    return desk.json("validate", "--run", str(desk.run_folder), "--verbose")


def test_detections_are_counted_by_stratum_to_the_report(detecting: Desk) -> None:
    called = _validated(detecting, "blind")

    assert called.code == 1, called
    (entry,) = detecting.evidence()["variants"]
    found = entry["result"]["matches"]["found"]
    light = found["strata"]["light"]
    counted = ("rows", "expected", "actual", "matched", "missing", "extra")
    assert [light["dark"][key] for key in counted] == [30, 60, 60, 30, 30, 30]
    assert [light["day"][key] for key in counted] == [90, 180, 180, 180, 0, 0]
    for key in (*counted, "near_floor", "below_floor", "non_finite"):
        assert sum(item[key] for item in found["strata"]["place"].values()) == found[key]
    assert {value: item["rows"] for value, item in found["strata"]["place"].items()} == {"away": 110, "home": 10}
    assert min(item["min_iou"] for item in light.values()) == found["min_iou"]
    assert "detections found: 210 of 240 matched, 30 missing, 30 extra (rows: 120)" in called.out
    by_light = "'dark' 30 of 60 matched (rows: 30), 'day' 180 of 180 matched (rows: 90)"
    assert f"detections found by light: {by_light}" in called.out
    assert "by 'light': 60 of 'dark' (rows: 30)" in called.out
    assert re.search(r"strata_coverage: [^\n]*'place'[^\n]*'home' \(rows: 10\)", called.out)
    _assert_reported(detecting.run_folder)


def _assert_reported(run: Path) -> None:
    for name in ("report.md", "report.html"):
        report = (run / name).read_text(encoding="utf-8")
        assert "found, light dark" in report
        assert "210 of 240 matched" in report.split("Checks")[0]
        assert "below the floor" in report
        # Where no output is compared value by value, there is no table of nothing.
        assert "By light" not in report


def test_of_detections_alone_the_rows_of_strata_are_counted(detecting: Desk) -> None:
    called = detecting.json("run", "spec.yaml", "--verbose")

    assert called.code == 0, called
    (entry,) = detecting.evidence()["variants"]
    assert entry["result"]["outputs"] == {}
    assert {value: item["rows"] for value, item in entry["result"]["strata"]["light"].items()} == {
        "dark": 30,
        "day": 90,
    }
    (place,) = [
        item for item in entry["result"]["checks"] if item["name"] == "strata_coverage" and item["status"] == "warning"
    ]
    assert (place["measured"], place["output"]) == (10, None)


def _ask(desk: Desk, probes: str) -> None:
    spec = (desk.folder / "spec.yaml").read_text(encoding="utf-8")
    (desk.folder / "spec.yaml").write_text(
        spec.replace("probes: none", f"probes: [{probes}]\nedge: fail"), encoding="utf-8"
    )


def test_the_command_that_a_run_prints_of_detections_fails_alone(detecting: Desk) -> None:
    _ask(detecting, "values")

    called = _validated(detecting, "clipped")
    words = _command(called.out, "values")
    alone = detecting.json(*words)

    (failed,) = [item for item in detecting.evidence()["variants"][0]["result"]["checks"] if item["status"] == "fail"]
    assert (called.code, failed["name"]) == (1, "probe_values"), called
    assert words[0] == "compare"
    assert alone.code == 1, alone
    assert {item["name"] for item in alone.data["checks"] if item["status"] == "fail"} == {"detections_matched"}


def test_of_an_output_that_no_file_of_arrays_names_a_run_prints_the_probe(detecting: Desk) -> None:
    _ask(detecting, "values")

    called = _validated(detecting, "clipped", logits="head/logits")
    words = _command(called.out, "values")
    again = detecting.json(*words)

    assert (words[0], words[-2:]) == ("validate", ["--probes", "values"])
    assert (called.code, again.code) == (1, 1), again


def test_the_command_that_a_run_prints_of_a_session_asks_it_again(
    detecting: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ask(detecting, "batches, repeats")
    own = onnxruntime_runner.open_model

    def open_model(model: object) -> object:
        runner = own(model)  # type: ignore[arg-type]  # what the table of runners calls it with
        if "onnx-fp32" in str(model.ref.path):  # type: ignore[attr-defined]  # a LoadedModel
            answer, calls = runner.run, []

            def run(inputs: Arrays) -> Arrays:
                calls.append(1)
                return _drifting(len(calls), dict(answer(inputs)))

            runner.run = run  # type: ignore[method-assign,assignment]
        return runner

    monkeypatch.setattr(onnxruntime_runner, "open_model", open_model)

    called = detecting.json("run", "spec.yaml", "--verbose", "--no-promote")
    words = _command(called.out, "repeats")
    again = detecting.json(*words)

    assert (called.code, words[0]) == (1, "validate"), called
    assert again.code == 1, again
    assert [
        item["name"] for item in detecting.evidence()["variants"][0]["result"]["checks"] if item["status"] == "fail"
    ] == ["probe_repeats"]
