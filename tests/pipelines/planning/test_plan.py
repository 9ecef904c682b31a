"""`plan` says which jobs a run would take over and which it would do, and why; the run then does just that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from tests.pipelines.conftest import Desk

import paritygate as pg

pytestmark = [
    pytest.mark.children,
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="only Linux tells what a process reads"),
]

_TARGETS = ["onnx-fp32", "onnx-fp16"]
_FRAMEWORKS = ("torch", "tensorflow", "onnx", "onnxruntime", "openvino")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A model that was run once."""
    desk = Desk(folder=tmp_path_factory.mktemp("planned"))
    desk.onnx()
    desk.samples()
    desk.spec(targets=_TARGETS)
    first = desk.json("run", "--no-promote", "spec.yaml")
    assert first.code == 0, str(first)
    return desk


@pytest.fixture(autouse=True)
def _cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)


def _planned(desk: Desk, *words: str) -> list[tuple[str, str, str]]:
    called = desk.json("plan", *words, "spec.yaml")
    assert called.code == 0, str(called)
    (plan,) = called.data["plans"]
    for job in plan["jobs"]:
        jsonschema.validate(job, {"required": ["job", "would_be", "taken_from", "made_at", "why"]})
    return [(job["job"].removeprefix("the "), job["would_be"], job["why"]) for job in plan["jobs"]]


def _files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != "said.json"}


def test_nothing_has_changed(desk: Desk) -> None:
    desk.spec(targets=_TARGETS)

    called = desk.call("plan", "spec.yaml")

    assert called.code == 0, str(called)
    assert "tiny: 6 of 6 jobs would be reused" in called.out
    # Said once, of all of them.
    assert called.out.count(f"reused from run {desk.runs[0].name}\n") == 1
    assert "\n  the comparison of onnx-fp16 with tiny\n" in called.out
    assert max(map(len, called.out.splitlines())) <= 80


def test_a_renamed_spec_changes_nothing(desk: Desk) -> None:
    desk.spec(targets=_TARGETS)
    spec = desk.folder / "spec.yaml"
    renamed = spec.rename(desk.folder / "renamed.yaml")
    try:
        called = desk.call("plan", "renamed.yaml")
    finally:
        renamed.rename(spec)

    assert "tiny: 6 of 6 jobs would be reused" in called.out


def test_a_sample_more_is_the_first_difference_and_what_follows_is_unknown(desk: Desk) -> None:
    desk.spec(targets=_TARGETS)
    desk.samples(rows=121)
    try:
        found = _planned(desk)
    finally:
        desk.samples()

    why = "inputs.npz changed"
    assert found[0] == ("conversion of tiny to onnx-fp32", "done", why)
    assert found[1] == (
        "conversion of tiny to onnx-fp16",
        "unknown",
        "onnx-fp32, which it is made from, would be made again",
    )
    assert found[2] == ("recording of tiny", "unknown", "onnx-fp32 would be made again")
    # As many jobs as the run has, the emulated comparison among them.
    assert [name for name, *_ in found[3:]] == [
        "comparison of onnx-fp32 with tiny",
        "comparison of onnx-fp16 with tiny",
        "emulated comparison of onnx-fp16 with tiny",
    ]
    assert {state for _, state, _ in found[3:]} == {"unknown"}


def test_a_limit_is_judged_anew(desk: Desk) -> None:
    desk.spec(targets=_TARGETS, tolerance={"onnx-fp16": {"max_abs_diff": 0.5}})

    found = _planned(desk)

    assert [state for _, state, _ in found] == ["taken over"] * 4 + ["judged anew"] * 2


def test_an_option_of_the_spec_is_named_with_both_values(desk: Desk) -> None:
    desk.spec(targets=_TARGETS, opset=18)

    assert _planned(desk)[0] == ("conversion of tiny to onnx-fp32", "done", "opset changed (nothing -> 18)")


def test_a_file_that_appeared_beside_the_code_is_named_from_here(tmp_path: Path) -> None:
    desk = Desk(folder=tmp_path)
    desk.onnx()
    desk.module(
        "coded",
        """
        import numpy as np

        from paritygate.batch import Batch

        try:
            import another
        except ImportError:
            another = None


        def rows():
            values = np.random.default_rng(3).standard_normal((120, 4)).astype(np.float32)
            yield Batch(inputs={"x": values}, ids=[str(row) for row in range(120)])
        """,
    )
    desk.spec(samples={"source": "coded:rows"})
    assert desk.call("run", "--no-promote", "spec.yaml").code == 0
    desk.module("one_more", "")
    assert {job["would_be"] for job in desk.json("plan", "spec.yaml").data["plans"][0]["jobs"]} == {"taken over"}
    desk.module("another", "")

    called = desk.call("plan", "spec.yaml")

    assert "\nwould be done, because another.py is there now\n" in called.out, str(called)
    assert "\nreused or done, as the run will show: the compared variants would be" in called.out


@pytest.mark.thorough
@pytest.mark.torch
def test_a_changed_file_of_the_model_is_the_reason_for_each_conversion(tmp_path: Path) -> None:
    desk = Desk(folder=tmp_path)
    desk.samples()
    desk.module("weights", "SEED = 3")
    desk.module(
        "net",
        """
        import torch
        import weights


        class Net(torch.nn.Linear):
            def forward(self, x):
                return {"logits": super().forward(x)}


        def load():
            torch.manual_seed(weights.SEED)
            return Net(4, 3).eval()
        """,
    )
    desk.module_spec("net:load", targets=["torchscript-fp32", "pt2-fp32"])
    assert desk.call("run", "--no-promote", "spec.yaml").code == 0
    desk.module("weights", "SEED = 4")

    planned = _planned(desk)

    # The second conversion would not check the samples again, but that is no reason.
    assert [why for _, state, why in planned if state == "done"] == ["weights.py changed"] * 3


def test_a_row_that_fails_by_a_stricter_limit_is_compared_again_as_was_said(desk: Desk) -> None:
    desk.spec(targets=_TARGETS, tolerance={"onnx-fp16": {"max_abs_diff": 1.2e-3}})

    planned = desk.call("plan", "spec.yaml")
    called = desk.call("run", "--no-promote", "spec.yaml", "--json", "run.json")

    assert "a row beyond its limit may run again" in " ".join(planned.out.split())
    jobs = json.loads((desk.folder / "run.json").read_text())["runs"][0]["jobs"]
    assert [job["job"] for job in jobs if job["why"]] == [
        "the comparison of onnx-fp16 with tiny",
        "the emulated comparison of onnx-fp16 with tiny",
    ], str(called)


def test_a_variable_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.spec(targets=_TARGETS)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    assert _planned(desk)[0][1:] == ("done", "the environment variable OMP_NUM_THREADS changed")


def test_where_nothing_is_kept_all_would_be_done(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.spec(targets=_TARGETS)
    monkeypatch.setenv("PARITYGATE_CACHE", "off")

    found = _planned(desk)

    assert found[0][1] == "done"
    assert "the cache is off" in found[0][2]


def test_quiet_prints_the_line_with_the_number_alone(desk: Desk) -> None:
    desk.spec(targets=_TARGETS)

    assert desk.call("plan", "spec.yaml", "-q").out == "tiny: 6 of 6 jobs would be reused\n"


def test_it_writes_nothing(desk: Desk) -> None:
    desk.spec(targets=_TARGETS)
    before = _files(desk.folder)

    _planned(desk)

    # That an entry was used is noted in its time, so that it stays.
    changed = [path for path, written in _files(desk.folder).items() if before.get(path) != written]
    assert [path for path in changed if not path.endswith("/entry.json")] == []


def test_a_benchmark_that_is_asked_for_is_done(desk: Desk) -> None:
    desk.spec(targets=_TARGETS)

    assert _planned(desk, "--benchmark")[-1] == ("benchmark", "done", "requested by name")


def test_it_imports_no_framework_and_starts_no_child(desk: Desk) -> None:
    desk.spec(targets=_TARGETS)
    program = f"""
import sys
from paritygate.__main__ import _run
from paritygate.pipelines.process import child
child.start_child = None
print(_run(["plan", "spec.yaml"]), [name for name in {_FRAMEWORKS!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=desk.folder, capture_output=True, text=True, check=True)

    assert "6 of 6 jobs would be reused" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 []"


def test_python_is_told_the_same(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.spec(targets=_TARGETS)
    monkeypatch.chdir(desk.folder)

    plan = pg.plan("spec.yaml")

    assert {job.would_be for job in plan.jobs} == {"taken over"}
    assert len(plan.jobs) == 6


def test_what_is_wrong_with_the_spec_is_said(desk: Desk) -> None:
    desk.spec(samples={"source": "missing.npz"})

    called = desk.call("plan", "spec.yaml")

    assert called.code == 2
    assert "missing.npz" in called.err


@pytest.mark.thorough
def test_another_model_is_not_one_that_changed(desk: Desk) -> None:
    # The model of the desk was run with the same samples and targets.
    desk.onnx("two.onnx", fill=2.0)
    model = {"name": "two", "source": "two.onnx", "rename": {"output_0": "logits"}}
    # The second variant is made of the first, by the same request whatever the model is.
    desk.spec("two.yaml", model=model, targets=_TARGETS, decisions={})

    called = desk.json("run", "--no-promote", "two.yaml")

    assert called.code == 0, str(called)
    assert [job["why"] for job in called.data["runs"][0]["jobs"]] == [""] * 6


@pytest.mark.thorough
def test_the_difference_is_that_to_what_was_used_last(desk: Desk) -> None:
    desk.spec(targets=_TARGETS)
    model, samples = ((desk.folder / name).read_bytes() for name in ("model.onnx", "inputs.npz"))
    desk.onnx(width=5)
    desk.json("run", "--no-promote", "spec.yaml")
    (desk.folder / "model.onnx").write_bytes(model)
    again = desk.json("run", "--no-promote", "spec.yaml")
    assert all(job["taken_from"] for job in again.data["runs"][0]["jobs"])

    desk.samples(rows=130)
    whys = [why for _, state, why in _planned(desk) if state == "done"]
    (desk.folder / "inputs.npz").write_bytes(samples)

    # Of the newest entry, which is of another model, it would be the model.
    assert whys[0].endswith("inputs.npz changed")
