"""Ids of rows and failing inputs are data of the user: they leave the machine only where the spec says so."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.pipelines.conftest import make_desk

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

# Of letters alone: Markdown writes others otherwise.
_PERSON = "AnnaExample"
_TARGETS = ["onnx-fp32", "onnx-fp16"]
# The FP16 variant fails, and so its rows that differ most, its flips and its probes are told of.
_PARTS = {
    "targets": _TARGETS,
    "required": ["onnx-fp32"],
    "tolerance": {"onnx-fp16": {"max_abs_diff": 1e-9, "max_row_rel_diff": 1e-9}},
    "probes": ["batches"],
}


def _run(desk: Desk, **parts: object) -> str:
    """Run a spec on rows with ids that are nobody's business, and return what it printed."""
    lines = [
        json.dumps({"id": f"{_PERSON}-{row}", "x": values})
        for row, values in enumerate(np.random.default_rng(0).standard_normal((120, 4)).tolist())
    ]
    (desk.folder / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    desk.spec(**{**_PARTS, "samples": {"source": "rows.jsonl"}, **parts})
    called = desk.json("run", "spec.yaml", "--verbose")
    assert called.code == 0, str(called)
    return called.out + called.err + json.dumps(called.data)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, str]:
    """Return a desk with a run of a spec that says nothing of inputs, and what was printed; not to be changed."""
    desk = make_desk(tmp_path_factory.mktemp("shared"))
    return desk, _run(desk)


@pytest.fixture(scope="module")
def hiding(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, str]:
    """Return a desk with a run of a spec that hides inputs, and what was printed; not to be changed."""
    desk = make_desk(tmp_path_factory.mktemp("hiding"))
    return desk, _run(desk, report={"inputs": "hide"})


@pytest.fixture
def ran(shared: tuple[Desk, str], tmp_path: Path) -> Desk:
    """Return a copy of that run."""
    return shared[0].copy(tmp_path)


@pytest.fixture
def ran_hiding(hiding: tuple[Desk, str], tmp_path: Path) -> Desk:
    """Return a copy of that run."""
    return hiding[0].copy(tmp_path)


def _holding(folder: Path) -> set[str]:
    """Return the files that name a row."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and _PERSON.encode() in path.read_bytes()
    }


def _release(desk: Desk) -> Path:
    (found,) = desk.folder.glob("artifacts/repository/store/tiny/*")
    return found


def _packed(desk: Desk, *options: str) -> tuple[set[str], set[str]]:
    """Return the names in a pack of the run, and those of the files that name a row."""
    called = desk.call("pack", "--run", str(desk.run_folder), "--output", "run.tar", *options)
    assert called.code == 0, str(called)
    names, holding = set(), set()
    with tarfile.open(desk.folder / "run.tar") as archive:
        for member in archive:
            stream = archive.extractfile(member)
            assert stream is not None
            names.add(member.name)
            if _PERSON.encode() in stream.read():
                holding.add(member.name)
    return names, holding


def test_rows_are_named_on_this_machine_and_not_in_what_leaves_it(shared: tuple[Desk, str]) -> None:
    desk, said = shared

    assert _PERSON in said
    here = _holding(desk.run_folder)
    assert {"report.html", "evidence.json"} <= here
    assert "report.md" not in here
    assert "Rows that differ most" not in (desk.run_folder / "report.md").read_text(encoding="utf-8")
    assert _holding(_release(desk)) == set()
    # How single rows were answered is seen in the drawing of actual against expected values.
    assert '"cells"' in (desk.run_folder / "evidence.json").read_text(encoding="utf-8")
    assert '"cells"' not in (_release(desk) / "evidence.json").read_text(encoding="utf-8")
    assert "Rows that differ most" not in (_release(desk) / "report.html").read_text(encoding="utf-8")


def test_a_pack_without_inputs_holds_none_and_goes_on_elsewhere(ran: Desk) -> None:
    # As `report --against` names what differs.
    (ran.run_folder / "report-against-another.html").write_text(f"row {_PERSON!r}", encoding="utf-8")

    names, holding = _packed(ran, "--without-inputs")

    assert holding == set()
    assert not [name for name in names if name.startswith(("run/probes/", "run/jobs/", "run/report"))]
    unpacked = ran.json("unpack", "run.tar", "--root", "there", "--folder", str(ran.folder))
    validated = ran.call("validate", "--run", unpacked.data["run"], "--verbose")
    promoted = ran.call("promote", "--verbose", "--run", unpacked.data["run"], "--repository", "other")
    assert (unpacked.code, validated.code, promoted.code) == (0, 0, 0), f"{unpacked}\n{validated}\n{promoted}"


def test_a_pack_with_inputs_was_asked_to_hold_them(ran: Desk) -> None:
    _, holding = _packed(ran)

    assert {"inputs/rows.jsonl", "run/evidence.json", "run/report.html"} <= holding


def test_where_the_spec_hides_inputs_no_report_result_or_print_names_a_row(hiding: tuple[Desk, str]) -> None:
    desk, said = hiding

    assert _PERSON not in said
    assert "probe_" in said
    assert "to see this alone" not in said
    # What jobs wrote and the inputs that a probe failed at stay here, for whoever looks for the cause.
    assert {name for name in _holding(desk.run_folder) if not name.startswith(("jobs/", "probes/"))} == set()
    assert _holding(_release(desk)) == set()


def test_a_pack_of_a_run_that_hides_inputs_holds_none(desk: Desk) -> None:
    _run(desk, report={"inputs": "hide"}, probes="none")

    names, holding = _packed(desk)

    assert holding == set()
    assert not [name for name in names if name.startswith("inputs/")]


def test_a_recording_that_holds_inputs_is_not_packed_where_they_are_hidden(desk: Desk) -> None:
    # A spec whose variants have failed would have to say why it asks less.
    _run(desk, report={"inputs": "hide"}, targets=["onnx-fp32"], tolerance={})

    called = desk.call("pack", "--run", str(desk.run_folder))

    assert called.code == 2, str(called)
    assert "holds inputs that probes made from the samples, which validation needs" in called.err
    command = (
        f"convert-and-validate run {json.loads((desk.run_folder / 'spec.json').read_bytes())['origin']} --probes none"
    )
    assert f"hint: start a run without probes, and pack that run: {command}. Or remove report: " in called.err
    assert desk.call(*command.split()[1:], "--quiet").code == 0
    assert desk.call("pack", "--run", str(desk.runs[-1]), "--output", "alone.tar").code == 0


def test_where_the_spec_shows_inputs_they_are_shown_everywhere(desk: Desk) -> None:
    _run(desk, report={"inputs": "show"})

    assert {"report.html", "report.md", "evidence.json"} <= _holding(desk.run_folder)
    assert {"report.html", "report.md", "evidence.json"} <= _holding(_release(desk))
    _, holding = _packed(desk, "--without-inputs")
    assert {"run/report.html", "run/report.md", "run/evidence.json"} <= holding


def test_figures_stay_where_inputs_are_hidden(shared: tuple[Desk, str]) -> None:
    desk, _ = shared

    shown = json.loads((desk.run_folder / "evidence.json").read_bytes())["variants"][1]["result"]["outputs"]["logits"]
    hidden = json.loads((_release(desk) / "evidence.json").read_bytes())["variants"][1]["result"]["outputs"]["logits"]

    rows = ("worst_rows", "max_row_rel_id", "looks_like", "drawing")
    assert {key: value for key, value in hidden.items() if key not in rows} == {
        key: value for key, value in shown.items() if key not in rows
    }
    assert [row["max_abs_diff"] for row in hidden["worst_rows"]] == [row["max_abs_diff"] for row in shown["worst_rows"]]
    assert {row["row_id"] for row in hidden["worst_rows"]} == {""}
    assert shown["drawing"]["grid"] is not None
    assert hidden["drawing"] == {**shown["drawing"], "grid": None}


def test_another_word_than_show_or_hide_is_wrong_usage(desk: Desk) -> None:
    desk.spec(report={"inputs": "some"})

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert "report.inputs" in called.err
    assert "show" in called.err
    assert "hide" in called.err


def test_an_output_may_be_called_like_what_is_left_out(desk: Desk) -> None:
    desk.onnx(output="examples")
    _run(desk, model={"name": "tiny", "source": "model.onnx", "rename": {"examples": "worst_rows"}}, decisions={})

    evidence = json.loads((_release(desk) / "evidence.json").read_bytes())

    assert evidence["variants"][0]["result"]["outputs"]["worst_rows"]["rows"] == 120
