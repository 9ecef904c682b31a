"""Runs are named by short names, listed as what they are, and removed: never one that is needed, and never half."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.conftest import make_desk
from tests.processes import wait_until

from paritygate.files import MARKER
from paritygate.pipelines.cache.folder import make_cache_folder
from paritygate.pipelines.run.workspace import open_run

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_OTHER = {"name": "other", "source": "model.onnx", "rename": {"output_0": "logits"}}


@pytest.fixture(scope="module")
def _four_once(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk with a released run of `tiny`, a later one that was validated, a failed one, and one of `other`."""
    desk = make_desk(tmp_path_factory.mktemp("four"))
    calls = (
        ({}, ("run", "spec.yaml"), 0),
        ({}, ("run", "spec.yaml", "--no-promote"), 0),
        ({"tolerance": {"onnx-fp16": {"max_abs_diff": 1e-12}}, "targets": ["onnx-fp16"]}, ("run", "spec.yaml"), 1),
        ({"model": _OTHER}, ("export", "spec.yaml"), 0),
    )
    for parts, call, code in calls:
        desk.spec(**parts)
        called = desk.call(*call)
        assert called.code == code, str(called)
        # The id of a run says its second: in a copy, nothing else says which run was the first.
        ended = int(time.time())
        wait_until(lambda: int(time.time()) > ended)  # noqa: B023 - it is called here and now
    return desk


@pytest.fixture
def desk(_four_once: Desk, tmp_path: Path) -> Desk:
    """Return a copy of the desk that may be changed."""
    return _four_once.copy(tmp_path / "desk")


def _runs(desk: Desk) -> list[Path]:
    """Return the runs of `tiny`, the oldest first."""
    return sorted(desk.folder.glob("artifacts/runs/tiny/2*"))


def _only_tiny(desk: Desk) -> None:
    shutil.rmtree(desk.folder / "artifacts/runs/other")


def _listed(desk: Desk, *args: str) -> list[dict[str, object]]:
    called = desk.json("runs", *args)
    assert called.code == 0, str(called)
    runs: list[dict[str, object]] = called.data["runs"]
    return runs


def _names(desk: Desk) -> set[str]:
    return {path.name for path in desk.folder.glob("artifacts/runs/*/*") if not path.name.startswith(".")}


# Named


def test_latest_is_the_newest_run_of_the_one_model_and_is_said(desk: Desk) -> None:
    _only_tiny(desk)

    called = desk.json("choose", "--run", "latest")

    assert called.data["run"] == str(_runs(desk)[-1])
    assert f"run: artifacts/runs/tiny/{_runs(desk)[-1].name}\n" in called.err


def test_latest_of_several_models_names_them_and_takes_none(desk: Desk) -> None:
    called = desk.json("choose", "--run", "latest")

    assert called.code == 2
    assert "error: latest may mean a run of 2 models: other, tiny\n" in called.err
    assert "hint: name the model: --run latest:other" in called.err
    assert called.data == {}


def test_latest_of_a_model_is_its_newest_run(desk: Desk) -> None:
    assert desk.json("choose", "--run", "latest:tiny").data["run"] == str(_runs(desk)[-1])


def test_latest_of_a_model_that_is_not_there_names_those_that_are(desk: Desk) -> None:
    called = desk.call("choose", "--run", "latest:tony")

    assert called.code == 2
    said = "no run of model 'tony' exists below artifacts/runs (models: other, tiny): did you mean 'tiny'?"
    assert said in called.err


def test_latest_without_any_run_says_where_it_looked(tmp_path: Path) -> None:
    called = make_desk(tmp_path).call("validate", "--run", "latest", "--root", "elsewhere")

    assert called.code == 2
    assert "error: no run exists below elsewhere/runs" in called.err


def test_latest_passes_over_what_is_no_run(desk: Desk) -> None:
    newest = _runs(desk)[-1]
    (desk.folder / "artifacts/runs/tiny/20991231T000000Z-ffff").mkdir()

    assert desk.json("choose", "--run", "latest:tiny").data["run"] == str(newest)


def test_the_beginning_of_an_id_is_enough_where_one_run_begins_so(desk: Desk) -> None:
    run = _runs(desk)[0]

    assert desk.json("choose", "--run", run.name[:-1]).data["run"] == str(run)


def test_a_beginning_of_several_ids_names_them(desk: Desk) -> None:
    called = desk.call("choose", "--run", "2")

    assert called.code == 2
    assert "error: '2' is how 4 runs begin: " in called.err
    assert _runs(desk)[0].name in called.err


def test_an_id_that_nothing_has_is_no_run_folder(desk: Desk) -> None:
    called = desk.call("choose", "--run", "19990101")

    assert called.code == 2
    assert "error: 19990101 is not a run folder\n" in called.err
    assert "convert-and-validate runs" in called.err


def test_a_run_folder_of_that_very_name_comes_first(desk: Desk) -> None:
    shutil.copytree(_runs(desk)[0], desk.folder / "latest")

    assert desk.json("choose", "--run", "latest").data["run"] == str(desk.folder / "latest")


@pytest.mark.parametrize("options", [("--root", "moved"), ("--root", "moved", "--quiet")])
def test_the_root_may_stand_behind_the_run(desk: Desk, options: tuple[str, ...]) -> None:
    (desk.folder / "artifacts").rename(desk.folder / "moved")

    called = desk.call("pack", "--run", "latest:other", *options)

    assert called.code == 0, str(called)
    # What is asked to be quiet says nothing of which run it is.
    assert ("run: moved/runs/other/" in called.err) == ("--quiet" not in options)


def test_report_takes_short_names_for_both_runs(desk: Desk) -> None:
    first, second, _ = _runs(desk)

    called = desk.call("report", "--run", second.name, "--against", first.name)

    assert called.code == 0, str(called)
    assert (second / f"report-against-{first.name}.html").is_file()


def test_promote_and_gate_take_short_names(desk: Desk) -> None:
    second = _runs(desk)[1].name

    promoted = desk.call("promote", "--run", second, "--alias", "next")
    held = desk.call("gate", "--run", second, "--against", "prod")

    assert promoted.code == 0, str(promoted)
    assert held.code == 0, str(held)


# Listed


def test_runs_are_listed_with_what_became_of_them_the_newest_first(desk: Desk) -> None:
    found = _listed(desk)

    assert [(run["model"], run["verdict"], run["exit_code"]) for run in found] == [
        ("other", "not validated", None),
        ("tiny", "fail", 1),
        ("tiny", "pass", 0),
        ("tiny", "pass", 0),
    ]
    assert [run["run"] for run in found[1:]] == [path.name for path in reversed(_runs(desk))]
    (release,) = found[3]["releases"]  # type: ignore[misc]
    assert (release["version"], release["aliases"]) == (1, ["prod"])
    assert [run["releases"] for run in found[:3]] == [[], [], []]


def test_the_size_is_what_the_files_take(desk: Desk) -> None:
    before = _listed(desk, "other")[0]["size_bytes"]
    (folder,) = desk.folder.glob("artifacts/runs/other/*")

    (folder / "more.bin").write_bytes(b"x" * 1_000_000)
    (folder / "linked.bin").hardlink_to(folder / "more.bin")

    grown = int(str(_listed(desk, "other")[0]["size_bytes"])) - int(str(before))
    assert 1_000_000 <= grown < 1_100_000


def test_the_list_fits_80_columns_and_has_a_table_a_model(desk: Desk) -> None:
    desk.spec(model={**_OTHER, "name": "a-model-with-a-name-that-is-as-long-as-names-of-models-can-become"})
    assert desk.call("export", "spec.yaml").code == 0

    called = desk.call("runs")

    assert max(map(len, called.out.splitlines())) <= 80
    assert "tiny: 3 runs, " in called.out
    assert "pass (0)" in called.out
    assert "1 (prod)" in called.out
    assert "stage cache" not in called.out


@pytest.mark.parametrize("command", ["run", "export"])
def test_a_run_that_is_refused_before_anything_was_made_leaves_no_folder(desk: Desk, command: str) -> None:
    before = _names(desk)
    desk.spec(model={**_OTHER, "name": "new", "dims": {"btch": {"min": 1, "opt": 2, "max": 4}}})

    called = desk.call(command, "spec.yaml")

    assert called.code == 2, str(called)
    assert "btch" in called.err
    assert _names(desk) == before
    assert not (desk.folder / "artifacts/runs/new").exists()


@pytest.mark.torch
def test_a_run_that_is_refused_later_says_why_and_latest_passes_over_it(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    desk.module(
        "coded",
        """
        import torch


        def load():
            torch.manual_seed(0)
            return torch.nn.Linear(4, 3).eval()
        """,
    )
    desk.module_spec("coded:load", targets=["onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 1e-12}})
    assert desk.call("run", "spec.yaml").code == 1
    (failed,) = _runs(desk)
    # Of a source that is code it shows only once it has answered that less is asked than of what failed.
    desk.module_spec("coded:load", targets=["onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 0.1}})
    assert desk.call("run", "spec.yaml").code == 2

    (refused,) = (run for run in _listed(desk) if run["run"] != failed.name)

    assert (refused["verdict"], refused["exit_code"]) == ("stopped", 2)
    assert f"checks less of onnx-fp16 than run {failed.name} of the same source, which failed" in str(
        refused["problem"]
    )
    assert "stopped (2)" in desk.call("runs").out
    assert f"run: artifacts/runs/tiny/{failed.name}" in desk.call("choose", "--run", "latest").err


def test_what_is_damaged_or_half_made_is_listed_as_that(desk: Desk) -> None:
    first, second, third = _runs(desk)
    (first / "spec.json").write_text("{", encoding="utf-8")
    (second / "evidence.json").write_text('{"schema_version": 2}', encoding="utf-8")
    (third / "spec.json").unlink()
    foreign = first.parent / "mine"
    foreign.mkdir()
    (first.parent / "a-file").touch()

    found = {str(run["run"]): run for run in _listed(desk, "tiny")}
    called = desk.call("runs")

    assert {name: run["verdict"] for name, run in found.items()} == {
        first.name: "damaged",
        second.name: "damaged",
        third.name: "half made",
        "mine": "no run",
    }
    assert "spec.json is corrupt" in str(found[first.name]["problem"])
    assert "evidence.json is corrupt" in str(found[second.name]["problem"])
    assert called.code == 0
    assert "Traceback" not in called.out + called.err
    assert "it holds no spec: it was stopped while it was begun" in called.out


def test_a_model_without_runs_is_wrong_usage_and_no_runs_at_all_are_none(desk: Desk, tmp_path: Path) -> None:
    unknown = desk.call("runs", "tony")
    (tmp_path / "empty").mkdir()
    empty = make_desk(tmp_path / "empty")

    assert unknown.code == 2
    assert "did you mean 'tiny'?" in unknown.err
    assert _listed(empty) == []
    assert empty.call("runs").out == "no run exists below artifacts/runs\nnext: convert-and-validate run SPEC\n"


# Cleaned


def test_clean_keeps_the_newest_runs_of_each_model_and_what_was_released(desk: Desk) -> None:
    first, second, third = (path.name for path in _runs(desk))

    called = desk.json("clean", "--keep", "1", "--yes")

    assert called.code == 0, str(called)
    assert _names(desk) & {first, second, third} == {first, third}
    assert [run["run"] for run in called.data["removed"]] == [second]
    assert [(run["run"], run["why"]) for run in called.data["kept"]] == [(first, "version 1 is released of it")]
    assert f"removed: tiny/{second}: pass (0), " in called.out
    assert len(list(desk.folder.glob("artifacts/runs/other/*"))) == 1


def test_clean_of_a_model_leaves_the_others(desk: Desk) -> None:
    assert desk.call("clean", "other", "--keep", "0", "--yes").code == 0

    assert not (desk.folder / "artifacts/runs/other").exists()
    assert len(_runs(desk)) == 3


def test_a_dry_run_says_what_would_go_and_removes_nothing(desk: Desk) -> None:
    before = _names(desk)

    called = desk.json("clean", "--keep", "0", "--dry-run")

    assert called.code == 0
    assert _names(desk) == before
    assert called.out.count("would remove: ") == 3
    assert "would free: " in called.out
    assert called.data["freed_bytes"] == sum(run["size_bytes"] for run in called.data["removed"])
    assert called.data["is_dry_run"] is True


def test_without_a_terminal_it_asks_for_yes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _names(desk)
    with Path("/dev/null").open(encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        called = desk.call("clean", "--keep", "0")

    assert called.code == 2
    assert "remove it without asking with --yes" in called.err
    assert _names(desk) == before


def test_clean_that_is_not_said_what_to_remove_is_wrong_usage(desk: Desk) -> None:
    assert "clean needs --keep N or --cache" in desk.call("clean", "--yes").err
    assert "clean --cache takes no model" in desk.call("clean", "tiny", "--cache", "--yes").err
    assert desk.call("clean", "tony", "--keep", "0", "--yes").code == 2


def test_a_run_released_to_where_its_spec_says_stays(desk: Desk) -> None:
    desk.spec(model=_OTHER, promote={"to": "releases"})
    assert desk.call("run", "spec.yaml").code == 0

    called = desk.json("clean", "other", "--keep", "0", "--yes")

    assert [run["why"] for run in called.data["kept"]] == ["version 1 is released of it"]
    assert len(called.data["removed"]) == 1


def test_a_run_released_to_a_repository_that_no_spec_names_stays(desk: Desk) -> None:
    desk.spec(model=_OTHER)
    assert desk.call("run", "spec.yaml", "--repository", "far").code == 0
    (note,) = desk.folder.glob("artifacts/runs/other/*/released-to.json")

    noted = desk.json("clean", "other", "--keep", "0", "--dry-run")
    note.rename(desk.folder / "note")
    named = desk.json("clean", "other", "--keep", "0", "--dry-run", "--releases", "far")
    unnamed = desk.json("clean", "other", "--keep", "0", "--dry-run")
    note.write_bytes((desk.folder / "note").read_bytes())
    shutil.rmtree(desk.folder / "far")
    gone = desk.json("clean", "other", "--keep", "0", "--dry-run")

    assert [len(called.data["removed"]) for called in (noted, named, unnamed, gone)] == [1, 1, 2, 1]


def test_only_a_run_that_a_release_rests_on_notes_it(desk: Desk) -> None:
    # The same again: the release that is there rests on the first run.
    desk.spec()
    assert desk.call("run", "spec.yaml").code == 0
    (desk.folder / "broken").mkdir()
    (desk.folder / "broken/staging").write_text("no folder", encoding="utf-8")
    assert desk.call("run", "spec.yaml", "--repository", "broken").code == 5

    assert [path.parent for path in desk.folder.glob("artifacts/runs/tiny/*/released-to.json")] == [_runs(desk)[0]]


def test_where_a_release_cannot_be_read_no_run_of_its_model_goes(desk: Desk) -> None:
    evidence = desk.folder / "artifacts/repository/store/tiny/1/evidence.json"
    evidence.chmod(0o644)
    evidence.write_text(evidence.read_text(encoding="utf-8").replace(_runs(desk)[0].name, _runs(desk)[1].name))

    called = desk.json("clean", "--keep", "0", "--yes")

    assert len(_runs(desk)) == 3
    assert {run["model"] for run in called.data["removed"]} == {"other"}
    assert "it is not known whether it was released" in called.data["kept"][0]["why"]
    assert "note: the releases are unknown" in desk.call("runs").out


def test_a_run_that_is_open_stays(desk: Desk) -> None:
    second = _runs(desk)[1]
    opened = open_run(second)

    called = desk.json("clean", "tiny", "--keep", "0", "--yes")

    assert (second.name, "it is in use") in [(run["run"], run["why"]) for run in called.data["kept"]]
    assert second.is_dir()
    del opened
    assert desk.call("clean", "tiny", "--keep", "0", "--yes").code == 0
    assert not second.exists()


@pytest.mark.parametrize("place", ["notes.txt", "notes/a.txt", "onnx-fp32/mine.onnx", "onnx-fp32/more/mine.onnx"])
def test_a_run_with_a_file_of_the_users_stays_whole_and_says_so(desk: Desk, place: str) -> None:
    second = _runs(desk)[1]
    mine = second / place
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine", encoding="utf-8")
    before = sorted(second.rglob("*"))

    called = desk.json("clean", "tiny", "--keep", "0", "--yes")

    (why,) = (run["why"] for run in called.data["kept"] if run["run"] == second.name)
    assert place.removesuffix("/a.txt") in why
    assert sorted(second.rglob("*")) == before
    mine.unlink()
    for folder in {mine.parent, second / "notes", second / "onnx-fp32/more"} - {second, second / "onnx-fp32"}:
        shutil.rmtree(folder, ignore_errors=True)
    assert desk.call("clean", "tiny", "--keep", "0", "--yes").code == 0
    assert not second.exists()


def test_what_bears_no_marker_is_never_removed(desk: Desk) -> None:
    second, third = _runs(desk)[1:]
    (second / MARKER).unlink()
    link = third.parent / "20200101T000000Z-0000"
    link.symlink_to(third, target_is_directory=True)

    assert desk.call("clean", "tiny", "--keep", "0", "--yes").code == 0

    assert (second / "spec.json").is_file()
    assert link.is_symlink()


def test_ctrl_c_leaves_whole_runs_and_the_next_call_removes_the_rest(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second, third = _runs(desk)
    whole = {path.relative_to(third) for path in third.rglob("*")}

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as planted:
        planted.setattr(shutil, "rmtree", stop)
        called = desk.call("clean", "tiny", "--keep", "0", "--yes")

    assert called.code == 130
    assert not second.exists()
    assert {path.relative_to(third) for path in third.rglob("*")} == whole
    (half,) = third.parent.glob(".removed-*")
    # Where it stopped within a folder, the marker may be gone and other files are left.
    (half / "reference" / MARKER).unlink()
    assert [run["verdict"] for run in _listed(desk, "tiny")] == ["fail", "pass"]
    again = desk.call("clean", "tiny", "--keep", "9", "--yes")
    assert again.code == 0
    assert "left over of an earlier call" in again.out
    assert not list(third.parent.glob(".removed-*"))


def test_the_evidence_of_a_failure_stays_so_that_it_is_not_talked_round(desk: Desk) -> None:
    third = _runs(desk)[2].name
    evidence = f"artifacts/runs/tiny/.failed-{third}/evidence.json"
    would = desk.call("clean", "tiny", "--keep", "0", "--dry-run")
    assert "would stay: the evidence of what failed, since a later spec may not check less" in " ".join(
        would.out.split()
    )
    cleaned = desk.json("clean", "tiny", "--keep", "0", "--yes")
    assert cleaned.code == 0
    assert third not in _names(desk)
    said = (
        "stays: the evidence of what failed, since a later spec may not check less of the same source without a reason"
    )
    assert f"{said}: {evidence}" in " ".join(cleaned.out.split())
    assert set(cleaned.data["evidence"]) == {third}

    desk.spec(targets=["onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 0.1}})
    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == 2
    assert f"checks less of onnx-fp16 than run {third} of the same source, which failed" in called.err
    # The run itself is gone: what is named is there.
    assert f"Its evidence: {evidence}" in called.err
    assert (desk.folder / evidence).is_file()


def test_the_stage_cache_is_removed_where_it_is_ours(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = desk.folder / "elsewhere"
    cache.mkdir()
    (cache / ("a" * 32) / "20260101T000000000000-ab12.5").mkdir(parents=True)
    (cache / ("a" * 32) / "20260101T000000000000-ab12.5" / "entry.json").write_bytes(b"x" * 10_000)
    monkeypatch.setenv("PARITYGATE_CACHE", str(cache))

    refused = desk.call("clean", "--keep", "0", "--cache", "--yes")
    make_cache_folder(cache)
    shown = desk.call("runs")
    called = desk.json("clean", "--cache", "--yes")

    assert refused.code == 5
    assert "stage cache: " in shown.out
    assert called.data["cache"] == str(cache)
    assert not cache.exists()
    assert len(_runs(desk)) == 3


def test_with_nothing_to_remove_it_says_so(desk: Desk) -> None:
    called = desk.call("clean", "--keep", "9", "--cache")

    assert (called.code, called.out) == (0, "there is nothing to remove\n")


def test_json_on_standard_output_is_all_that_is_there(desk: Desk) -> None:
    for call in (("runs",), ("clean", "--keep", "0", "--yes")):
        assert json.loads(desk.call(*call, "--json", "-").out)["schema_version"] == 1
