"""What a probe finds is kept, and the command that is printed finds the same by that batch alone."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace
from onnx import helper

from paritygate.artifact import ARTIFACT_FILE
from paritygate.files import digest_of_file, digest_of_files
from paritygate.pipelines.compare.reproduction import FailureStore
from paritygate.validate.probes.recording import BatchRecord, StoredProbeBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.pipelines.conftest import Bench, Desk, Outcome

pytestmark = pytest.mark.usefixtures("asks_probes")


def _table(bench: Bench, name: str, *, lost: int | None = None) -> str:
    table = bench.normal(100, 3)
    if lost is not None:
        table[lost] = 0
    return bench.model(
        name,
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("ReduceMean", ["rows"], ["logits"], axes=[1], keepdims=0),
        ],
        inputs={"ids": ("int64", ["batch", "length"])},
        outputs={"logits": ("float", ["batch", 3])},
        weights={"table": table},
    )


def _ids(bench: Bench) -> str:
    # Of a hundred rows of the table the samples reach twenty.
    return bench.npz("ids.npz", {"ids": np.random.default_rng(0).integers(0, 20, (64, 6))})


def _command(out: str, probe: str) -> list[str]:
    found = re.search(rf"probe {probe}: to see this alone: convert-and-validate (.*)", out)
    assert found is not None, out
    return shlex.split(found[1])


def _again(bench: Bench, words: list[str]) -> Outcome:
    assert words[0] == "compare"
    return bench.compare(words[1], words[2], *words[3:])


@pytest.mark.parametrize("lost", [77, 99])
def test_the_command_that_is_printed_fails_by_that_batch_alone(bench: Bench, lost: int) -> None:
    kept = bench.folder / "kept"
    sides = _table(bench, "a"), _table(bench, "b", lost=lost)

    found = bench.compare(*sides, "--samples", _ids(bench), "--failures", str(kept))
    (first, *_) = found.result["probes"]["asked"]["ids"]["failures"]
    alone = _again(bench, _command(found.out, "ids"))

    assert (found.code, "probe_ids" in found.failed) == (1, True)
    assert Path(first["inputs"]).parent == kept
    with np.load(first["inputs"]) as inputs:
        assert lost in inputs["probe/ids"]
    with np.load(first["inputs"].replace(".npz", ".expected.npz")) as expected:
        assert expected["probe/logits"].shape[1:] == (3,)
    with np.load(first["inputs"].replace(".npz", ".actual.npz")) as actual:
        assert actual["probe/logits"].shape[1:] == (3,)
    assert (alone.code, first["check"] in alone.failed) == (1, True), alone.out
    assert alone.result["probes"]["asked"] == {}


class _Recorded(Struct):
    """Batches of one probe, as a recording has them."""

    records: tuple[BatchRecord, ...]
    probes = ("values",)

    def batches(self, _: str) -> Iterator[StoredProbeBatch]:
        varied = {"logits": np.arange(4.0)}
        return (StoredProbeBatch(record=record, inputs={}, outputs=varied) for record in self.records)


def test_rows_that_are_put_beside_a_failed_batch_are_like_the_samples() -> None:
    like = BatchRecord(rows=4, about="real rows", is_beyond_seen=False, is_unlike_seen=False)
    edge: Any = "an empty row of mask"
    others = (replace(like, is_beyond_seen=True), replace(like, is_unlike_seen=True), replace(like, edges=(edge,)))
    store: Any = FailureStore(cast("Any", None), cast("Any", _Recorded((*others, like))))

    assert store._varied_batch().record is like
    # Where no rows are, rows of other values than the samples' are better than none.
    unlike: Any = FailureStore(cast("Any", None), cast("Any", _Recorded(others)))
    assert unlike._varied_batch().record is others[1]


def test_without_a_folder_the_command_asks_the_probe_again_and_names_one(bench: Bench) -> None:
    sides = _table(bench, "a"), _table(bench, "b", lost=77)

    found = bench.compare(*sides, "--samples", _ids(bench), "--probes", "ids,values")
    words = _command(found.out, "ids")
    again = _again(bench, [*words[: words.index("--failures")], "--failures", str(bench.folder / "here")])

    assert found.result["probes"]["asked"]["ids"]["failures"][0]["inputs"] is None
    assert words[words.index("--probes") + 1] == "ids"
    assert (again.code, again.failed) == (1, {"probe_ids"})
    assert list((bench.folder / "here").glob("ids-*.npz"))


def _off_in_other_batches(bench: Bench, name: str, *, off: float) -> str:
    """A model that adds a little in batches of any other size than 64."""
    nodes = [
        helper.make_node("Shape", ["x"], ["size"], start=0, end=1),
        helper.make_node("Equal", ["size", "usual"], ["is_usual"]),
        helper.make_node("Where", ["is_usual", "zero", "off"], ["added"]),
        helper.make_node("Add", ["x", "added"], ["logits"]),
    ]
    return bench.model(
        name,
        nodes,
        inputs={"x": ("float", ["batch", 4])},
        outputs={"logits": ("float", ["batch", 4])},
        weights={"usual": np.array([64]), "zero": np.zeros(1, np.float32), "off": np.array([off], np.float32)},
    )


def test_what_all_batches_together_fail_by_is_in_no_file_and_the_command_names_no_folder(bench: Bench) -> None:
    sides = _off_in_other_batches(bench, "a", off=0), _off_in_other_batches(bench, "b", off=6e-5)
    samples = bench.npz("x.npz", {"x": bench.normal(64, 4)})
    kept = bench.folder / "kept"

    options = ("--batch-size", "64", "--probes", "batches", "--failures", str(kept))
    found = bench.compare(*sides, "--samples", samples, *options)
    (failure,) = found.result["probes"]["asked"]["batches"]["failures"]
    words = _command(found.out, "batches")

    assert found.failed == {"probe_batches"}
    assert (failure["about"], failure["check"]) == ("all batches together", "mean_abs_diff")
    assert not kept.exists()
    assert "--failures" not in words
    assert _again(bench, words).failed == {"probe_batches"}
    screen = bench.compare(*sides, "--samples", samples, *options, "--json", str(bench.folder / "result.json")).out
    assert "hint: to see the failure of probe batches alone:" in screen


def test_a_batch_whose_rows_are_answered_alike_fails_alone_as_well(bench: Bench) -> None:
    def clipped(name: str, least: float) -> str:
        nodes = [
            helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=1),
            helper.make_node("Clip", ["sum", "least"], ["logits"]),
        ]
        return bench.model(
            name,
            nodes,
            inputs={"x": ("float", ["batch", 4])},
            outputs={"logits": ("float", ["batch", 1])},
            weights={"axes": np.array([1]), "least": np.array(least, dtype=np.float32)},
        )

    samples = bench.npz("positive.npz", {"x": np.abs(bench.normal(64, 4)) + np.float32(0.5)})
    sides = clipped("a", -1e6), clipped("b", 0.1)

    options = ("--probes", "values", "--edge", "fail", "--failures", str(bench.folder / "kept"))
    found = bench.compare(*sides, "--samples", samples, *options)
    failures = found.result["probes"]["asked"]["values"]["failures"]
    constant = [failure for failure in failures if "zeros" in failure["about"] and failure["inputs"]]
    words = shlex.split(constant[0]["again"])[1:]
    alone = _again(bench, words)

    assert found.code == 1
    with np.load(constant[0]["inputs"]) as inputs:
        assert set(inputs.files) == {"probe/x", "varied/x"}
    assert (alone.code, constant[0]["check"] in alone.failed) == (1, True), alone.message


def _clip(folder: Path) -> None:
    """Have the artifact in `folder` clip its input where the samples end, and its record say that it was made so."""
    import onnx

    path = folder / "model.onnx"
    model = onnx.load(str(path))
    model.graph.node.insert(0, helper.make_node("Clip", ["x", "", "most"], ["clipped"]))
    for node in list(model.graph.node)[1:]:
        for at, name in enumerate(node.input):
            node.input[at] = "clipped" if name == "x" else name
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(5, dtype=np.float32), "most"))
    onnx.save(model, str(path))
    record = json.loads((folder / ARTIFACT_FILE).read_text(encoding="utf-8"))
    files = {name: digest_of_file(folder / name) for name in record["files"]}
    record |= {"files": files, "digest": digest_of_files(files)}
    (folder / ARTIFACT_FILE).write_text(json.dumps(record), encoding="utf-8")


def test_a_run_keeps_what_a_variant_failed_in_its_folder(desk: Desk) -> None:
    assert desk.call("export", desk.spec(probes=None, edge="fail"), "--verbose").code == 0
    _clip(desk.run_folder / "onnx-fp32")
    assert desk.call("record", "--run", str(desk.run_folder), "--quiet").code == 0

    called = desk.json("validate", "--run", str(desk.run_folder), "--verbose")

    (failed,) = [check for check in desk.evidence()["variants"][0]["result"]["checks"] if check["status"] == "fail"]
    assert (called.code, failed["name"]) == (1, "probe_values"), str(called)
    kept = sorted(path.name for path in (desk.run_folder / "probes" / "onnx-fp32").glob("values-*.npz"))
    assert len(kept) >= 3
    alone = desk.json(*_command(called.out, "values"))
    assert alone.code == 1, str(alone)
    assert {"max_abs_diff"} <= {check["name"] for check in alone.data["checks"] if check["status"] == "fail"}
    report = (desk.run_folder / "report.html").read_text(encoding="utf-8")
    assert "Failed at, the first ones" in report
    assert "convert-and-validate compare" in report
    assert "--probes none" in report


def test_what_is_switched_off_is_in_evidence_manifest_report_and_show(desk: Desk) -> None:
    called = desk.json("run", "spec.yaml", "--verbose", "--probes", "batches,repeats")
    shown = desk.json("show", "tiny")

    assert called.code == 0, str(called)
    (entry,) = desk.evidence()["variants"]
    off = ["shapes", "masks", "ids", "values", "flat", "sensitivity", "concurrent", "optimisation", "fresh"]
    assert entry["result"]["probes"]["switched_off"] == off
    assert list(entry["result"]["probes"]["asked"]) == ["batches", "repeats"]
    assert shown.data["manifest"]["provenance"]["probes_not_asked"] == {"onnx-fp32": off}
    assert f"did not run for onnx-fp32: the probes {', '.join(off)}" in " ".join(shown.out.split())
    for name in ("report.html", "report.md"):
        assert f"Switched off: {', '.join(off)}." in (desk.run_folder / name).read_text(encoding="utf-8")


def test_all_probes_are_asked_by_default_and_the_release_leaves_none_out(desk: Desk) -> None:
    called = desk.call("run", desk.spec(probes=None), "--verbose")
    (entry,) = desk.evidence()["variants"]
    shown = desk.json("show", "tiny")

    assert called.code == 0, str(called)
    assert entry["result"]["probes"]["switched_off"] == []
    assert shown.data["manifest"]["provenance"]["probes_not_asked"] == {}
    assert "did not run for" not in shown.out


def test_validate_may_ask_fewer_and_says_what_was_not_recorded(desk: Desk) -> None:
    called = desk.call("run", "spec.yaml", "--verbose", "--no-promote", "--probes", "batches")
    fewer = desk.json("validate", "--run", str(desk.run_folder), "--verbose", "--probes", "none")
    scratch = json.loads((desk.run_folder / "scratch/evidence.json").read_text(encoding="utf-8"))
    unasked = scratch["variants"][0]["result"]["probes"]
    more = desk.json("validate", "--run", str(desk.run_folder), "--verbose", "--probes", "batches,ids,values")
    asked = desk.evidence()["variants"][0]["result"]["probes"]

    assert (called.code, fewer.code, more.code) == (0, 0, 0)
    assert (unasked["asked"], len(unasked["switched_off"])) == ({}, 11)
    assert asked["not_recorded"] == ["ids", "values"]
    assert "warning: probes: " in more.out
