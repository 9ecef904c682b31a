"""list, show and verify: what a repository holds, and whether it is what was released."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.conftest import make_desk

from paritygate.pipelines.release.repository.inspect import ReleaseDetails, show
from paritygate.pipelines.release.repository.record import Record, RecordKind
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.report.terminal.printing import Shown
from paritygate.pipelines.report.terminal.release import print_next_of_release, print_release, print_release_details
from paritygate.validate.measure.bounds import upper_bound_text

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_STORE = "artifacts/repository/store/tiny/1"


def test_list_names_models_versions_and_aliases(finished: Desk) -> None:
    called = finished.json("list")

    assert called.code == 0
    (model,) = called.data["models"]
    assert (model["model"], model["versions"], model["aliases"]) == ("tiny", [1], {"prod": 1})
    title, head, row = called.out.splitlines()
    assert title == "repository artifacts/repository"
    assert re.split(r" {2,}", head) == ["changed (UTC)", "model", "versions", "aliases"]
    minute = model["changed"][:16].replace("T", " ")
    assert re.split(r" {2,}", row) == [minute, "tiny", "1", "prod -> 1"]


def test_an_empty_repository_is_said_to_be_empty(desk: Desk) -> None:
    (desk.folder / "models").mkdir()

    called = desk.json("list", "--repository", "models")

    assert called.code == 0
    assert called.out == "repository models holds no releases\n"
    assert called.data["models"] == []


def test_the_repository_of_a_root_is_found_by_the_root_unless_another_one_is_named(finished: Desk) -> None:
    assert finished.json("show", "tiny", "--root", "artifacts").data["model"] == "tiny"
    assert finished.call("list", "--root", "artifacts").out == finished.call("list").out
    assert "no repository exists at other/repository" in finished.call("verify", "tiny", "--root", "other").err
    named = finished.call("list", "--root", "other", "--repository", "artifacts/repository")
    assert (named.code, named.out) == (0, finished.call("list").out)
    assert "--root" not in finished.call("list", "--help").out


_COMMANDS = [
    ("list",),
    ("show", "tiny"),
    ("history", "tiny"),
    ("diff", "tiny@1", "1"),
    ("verify", "tiny"),
    ("rollback", "tiny"),
    ("alias", "tiny", "prod", "1"),
    ("gc", "--keep", "1"),
]


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_repository_that_is_not_there_is_wrong_usage(desk: Desk, command: tuple[str, ...]) -> None:
    called = desk.json(*command)

    assert called.code == 2
    assert called.err == (
        "error: no repository exists at artifacts/repository\nhint: name the folder of the releases with --repository, "
        "or make the first release:\n  convert-and-validate run SPEC\n"
    )
    assert not (desk.folder / "said.json").exists()


@pytest.mark.parametrize("command", ["show", "verify"])
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("tinny",), "has no release of model 'tinny' (models: tiny): did you mean 'tiny'?"),
        (("tiny", "prdo"), "(versions: 1; aliases: prod): did you mean 'prod'?"),
        (("tiny", "2"), "model 'tiny' has no release '2' (versions: 1; aliases: prod)"),
        (("tiny", "canary"), "model 'tiny' has no release 'canary' (versions: 1; aliases: prod)"),
        (("../tiny",), "model name '../tiny' is not allowed"),
    ],
)
def test_what_the_repository_lacks_is_said_with_what_it_has(
    finished: Desk, command: str, args: tuple[str, ...], words: str
) -> None:
    called = finished.call(command, *args)

    assert called.code == 2
    assert words in called.err
    assert "\nhint: " in called.err


@pytest.mark.parametrize("which", [(), ("1",), ("prod",)])
def test_show_prints_variants_evidence_and_history(finished: Desk, which: tuple[str, ...]) -> None:
    called = finished.json("show", "tiny", *which)

    assert called.code == 0
    assert called.out.startswith("tiny version 1, aliases: prod\nfolder: artifacts/repository/store/tiny/1\n")
    assert "verified on cpu by onnxruntime" in called.out
    assert "prod -> 1" in called.out
    (variant,) = called.data["manifest"]["variants"]
    assert variant["digest"] == finished.evidence()["variants"][0]["artifact"]
    assert variant["digest"][:19] in called.out
    assert variant["digest"] in finished.call("show", "tiny", *which, "-v").out
    assert (called.data["version"], called.data["aliases"]) == (1, ["prod"])
    assert [record["kind"] for record in called.data["history"]] == ["released"]


def test_show_prints_the_numbers_that_the_run_measured(finished: Desk) -> None:
    called = finished.json("show", "tiny", "--verbose")

    (entry,) = finished.evidence()["variants"]
    (numbers,) = called.data["numbers"]
    assert (numbers["variant"], numbers["output"], numbers["rows"]) == ("onnx-fp32", "logits", 120)
    assert numbers["max_abs_diff"] == entry["result"]["outputs"]["logits"]["max_abs_diff"]
    assert numbers["mismatches"] == entry["result"]["decisions"]["logits"]["mismatches"] == 0
    (row,) = (line for line in called.out.splitlines() if "onnx-fp32" in line and "logits" in line)
    bound = f"< {upper_bound_text(numbers['mismatch_rate_upper_95'])}"
    shown = re.split(r" {2,}", row)
    assert shown[:6] == ["onnx-fp32", "logits", "120", "0", bound, f"{numbers['max_abs_diff']:.3g}"]
    assert shown[-2:] == ["verified", "pass"]
    (short,) = (line for line in finished.call("show", "tiny").out.splitlines() if " logits " in line)
    assert short.split()[:4] == ["pass", "onnx-fp32", "logits", "0"]
    assert f"  {bound}  " in short


def test_a_long_name_and_a_long_history_fit_a_screen(finished: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    shown = show(finished.folder / "artifacts/repository", "tiny", None)
    (numbers,) = shown.numbers
    (record,) = shown.history
    wide = replace(
        shown,
        numbers=[{**numbers, "variant": "n" * 60, "output": "o" * 60, "device": "cuda:sm89"}],
        history=[replace(record, reason=f"the reason of {number}") for number in range(1, 10)],
    )

    print_release_details(wide, Shown())

    lines = capsys.readouterr().out.splitlines()
    # The path of a folder elsewhere is copied in one piece.
    assert max(len(line) for line in lines if str(finished.folder) not in line) <= 80
    table = lines[: lines.index("variants, and what they were judged by")]
    for letter in "no":
        assert "".join(part for line in table for part in re.findall(f"{letter}{{5,}}", line)) == letter * 60
    assert any("verified on cuda:sm89" in line for line in lines)
    assert "history: the newest 5 of 9; -v shows all" in lines
    assert [line for line in lines if "the reason of 4" in line] == []
    assert any(line.endswith("the reason of 5") for line in lines)


@pytest.mark.parametrize("is_there", [True, False])
def test_show_prints_no_numbers_from_evidence_that_is_not_what_was_released(
    finished: Desk, tmp_path: Path, *, is_there: bool
) -> None:
    desk = finished.copy(tmp_path)
    path = desk.folder / _STORE / "evidence.json"
    content = path.read_text(encoding="utf-8")
    path.unlink()
    if is_there:
        path.write_text(content.replace('"rows": 120', '"rows": 9120'), encoding="utf-8")

    called = desk.call("show", "tiny")

    assert called.code == 5
    assert f"evidence.json {'is corrupt' if is_there else 'is missing'}" in called.err
    assert "hint: see all differences: convert-and-validate verify tiny 1" in called.err


def test_verify_reads_every_file(finished: Desk) -> None:
    called = finished.json("verify", "tiny", "prod")
    files = [path for path in (finished.folder / _STORE).rglob("*") if path.is_file()]

    assert called.code == 0
    assert called.out == f"tiny version 1 is intact: {len(files)} files match its manifest\n"
    assert called.data["is_intact"] is True
    assert called.data["files_checked"] == len(files)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("onnx-fp32/model.onnx", "changed"),
        ("evidence.json", "changed"),
        ("manifest.json", "changed"),
        ("report.html", "missing"),
        ("onnx-fp32/extra.bin", "added"),
    ],
)
def test_verify_names_what_is_not_what_was_released(finished: Desk, tmp_path: Path, name: str, how: str) -> None:
    desk = finished.copy(tmp_path)
    path = desk.folder / _STORE / name
    if how == "missing":
        path.unlink()
    else:
        content = path.read_bytes() if path.exists() else b""
        path.unlink(missing_ok=True)
        path.write_bytes(content + b" ")

    called = desk.json("verify", "tiny")

    assert called.code == 5
    assert called.data["is_intact"] is False
    assert called.data[how] == [name]
    said = {"changed": "was changed", "missing": "is missing", "added": "was added"}[how]
    assert called.out == f"tiny version 1 is corrupt: {name} {said}\n"


def test_a_source_that_was_released_says_why(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 1e-12}}, required=[])
    assert desk.call("run", "--verbose", "spec.yaml").code == 0

    called = desk.json("show", "tiny")

    assert "reason: fallback: source, because no converted variant passed" in called.out
    assert "source, not compared" in called.out
    assert called.data["manifest"]["variants"][0]["role"] == "source"
    assert desk.call("verify", "tiny").code == 0


@pytest.mark.parametrize("command", [*_COMMANDS[:5], _COMMANDS[6]])
def test_json_to_standard_output_has_nothing_beside_it(finished: Desk, command: tuple[str, ...]) -> None:
    called = finished.call(*command, "--json", "-")

    assert called.code == 0
    assert json.loads(called.out)["schema_version"] == 1


@pytest.fixture(scope="module")
def _three_releases(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = make_desk(tmp_path_factory.mktemp("three"))
    for fill in (None, 1.0, 2.0):
        desk.onnx(fill=fill)
        assert desk.call("run", "spec.yaml", "--verbose").code == 0
    return desk


@pytest.fixture
def three(_three_releases: Desk, tmp_path: Path) -> Desk:
    """Return a desk with three releases, to each of which prod was moved."""
    return _three_releases.copy(tmp_path)


def test_rollback_goes_back_and_again_further_back_and_says_where_it_is(three: Desk) -> None:
    first = three.json("rollback", "tiny", "--reason", "answers too slowly")
    second = three.json("rollback", "tiny", "--alias", "prod")
    third = three.call("rollback", "tiny")

    assert (first.code, second.code, third.code) == (0, 0, 2)
    assert first.out == (
        "tiny: alias prod was moved back from version 3 to 2, whose files are intact\n"
        "versions before it, to which rollback goes next: 1\n"
        "run and promote do not move it to version 3 again; to do so:\n  convert-and-validate alias tiny prod 3\n"
    )
    assert "from version 2 to 1, whose files are intact\nversions before it, to which rollback goes next: none\n" in (
        second.out
    )
    assert first.data == {
        "schema_version": 1,
        "model": "tiny",
        "alias": "prod",
        "version": 2,
        "previous": 3,
        "past": [1],
        "record": 4,
        "is_rollback": True,
        "also": [],
        "views": [],
    }
    assert third.err == (
        "error: alias 'prod' of 'tiny' is at version 1, and there is no version before it to go back to\n"
        "hint: move it to any version with: convert-and-validate alias tiny prod VERSION\n"
    )
    history = three.json("show", "tiny", "prod").data["history"]
    assert [entry["kind"] for entry in history] == ["released"] * 3 + ["rolled_back"] * 2
    assert history[3]["reason"] == "answers too slowly"
    assert history[3]["host"]


def test_rollback_and_alias_refuse_what_is_not_in_the_past_not_there_or_not_intact(three: Desk) -> None:
    assert three.call("alias", "tiny", "prod", "1").code == 0
    path = three.folder / "artifacts/repository/store/tiny/2/onnx-fp32/model.onnx"
    path.chmod(0o644)
    path.write_bytes(b"")

    refused = {
        ("rollback", "tiny", "--to", "1"): (
            2,
            "version 1 is not a past version of alias 'prod' of 'tiny' (now: 1; ",
        ),
        ("rollback", "tiny", "--to", "9"): (2, "model 'tiny' has no release '9' (versions: 1, 2, 3; aliases: prod)"),
        ("rollback", "tiny", "--to", "0"): (2, "0 is not in the range"),
        ("rollback", "tiny", "--alias", "live"): (2, "model 'tiny' has no alias 'live' (aliases: prod)"),
        ("rollback", "other"): (2, "has no release of model 'other' (models: tiny)"),
        ("rollback", "tiny", "--to", "2"): (5, "was not moved: onnx-fp32/model.onnx was changed"),
        ("alias", "tiny", "live", "2"): (5, "alias 'live' was not moved: onnx-fp32/model.onnx was changed"),
        ("alias", "tiny", "live", "4"): (2, "model 'tiny' has no release '4' (versions: 1, 2, 3; aliases: prod)"),
        ("alias", "other", "live", "1"): (2, "has no release of model 'other' (models: tiny)"),
        ("alias", "tiny", "4", "1"): (2, "alias name '4' is a number"),
    }
    for command, (code, words) in refused.items():
        called = three.call(*command)
        assert (called.code, words in called.err) == (code, True), str(called)
    assert three.json("list").data["models"][0]["aliases"] == {"prod": 1}


def test_alias_makes_moves_and_leaves(three: Desk) -> None:
    made = three.json("alias", "tiny", "canary", "1")
    moved = three.call("alias", "tiny", "prod", "canary", "--reason", "a week without complaints")
    again = three.json("alias", "tiny", "prod", "1")

    assert made.out == "tiny: alias canary was set to version 1, whose files are intact\n"
    assert (made.data["previous"], made.data["version"], made.data["record"]) == (None, 1, 4)
    assert moved.out == "tiny: alias prod was moved from version 3 to 1, whose files are intact\n"
    assert again.out == "tiny: alias prod is at version 1 already, whose files are intact\n"
    assert again.data["record"] is None
    assert three.json("list").data["models"][0]["aliases"] == {"canary": 1, "prod": 1}


def test_one_record_moves_two_aliases_only_from_where_they_are_expected(three: Desk) -> None:
    moved = three.json("alias", "tiny", "prod", "2", "--also", "before=prod", "--if-current", "3")
    late = three.call("alias", "tiny", "prod", "1", "--if-current", "3")
    wrong = three.call("alias", "tiny", "prod", "1", "--also", "before")

    assert (moved.code, late.code, wrong.code) == (0, 5, 2)
    assert moved.data["also"] == [{"alias": "before", "version": 3, "previous": None}]
    history = three.json("history", "tiny", "--alias", "before")
    assert [(record["number"], record["aliases"]) for record in history.data["history"]] == [
        (4, {"prod": 2, "before": 3})
    ]
    assert [record["number"] for record in three.json("history", "tiny").data["history"]] == [1, 2, 3, 4]
    assert "prod -> 2" in history.out


def test_gc_deletes_what_nothing_names_and_reports_it(three: Desk) -> None:
    dry = three.json("gc", "--keep", "1", "--dry-run")
    done = three.json("gc", "tiny", "--keep", "1", "--reason", "disk space")

    (planned,), (deleted,) = dry.data["models"], done.data["models"]
    assert [release["version"] for release in planned["collected"]] == [1, 2]
    assert (dry.data["is_dry_run"], planned["kept"]) == (True, [3])
    assert [(release["version"], release["record"]) for release in deleted["collected"]] == [(1, 4), (2, 5)]
    assert [path.name for path in (three.folder / "artifacts/repository/store/tiny").iterdir()] == ["3"]
    assert three.json("list").data["models"][0]["collected"] == [1, 2]
    assert three.call("verify", "tiny", "1").code == 2
    assert three.call("verify", "tiny", "prod").code == 0
    assert three.call("gc", "tiny").code == 2


def test_diff_compares_two_releases(three: Desk) -> None:
    same = three.json("diff", "tiny@1", "tiny@prod", "-v")
    short = three.call("diff", "tiny@1", "3")

    assert (same.code, short.code) == (0, 0)
    assert (same.data["was"]["version"], same.data["now"]["version"]) == (1, 3)
    assert same.data["now"]["aliases"] == ["prod"]
    assert same.data["signature"] == []
    rows = {(row["variant"], row["figure"], row["about"]): row for row in same.data["rows"]}
    size = rows["onnx-fp32", "size_bytes", ""]
    assert size["was"] == size["now"] > 0
    assert rows["onnx-fp32", "max_abs_diff", "logits"]["is_changed"] is False
    assert rows["onnx-fp32", "tolerance", "max_abs_diff"]["was"] is not None
    assert same.data["not_compared"] == ["speed: versions 1 and 3 have no benchmark"]
    assert three.json("diff", "tiny", "1", "prod", "-v").data == same.data
    assert three.call("diff", "tiny@1", "2", "3").code == 2


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("diff tiny 3", "diff tiny 3 VERSION"),
        ("diff 1 2", "diff MODEL 1 2"),
        ("diff 1", "diff MODEL 1 VERSION"),
        ("diff a.onnx b.onnx", "graph-diff a.onnx b.onnx --samples FILE"),
        ("verify tiny@prod", "tiny prod"),
        ("show tiny@2", "tiny 2"),
    ],
)
def test_a_release_in_another_form_is_refused_with_the_right_one(three: Desk, words: str, meant: str) -> None:
    refused = three.call(*words.split())

    assert refused.code == 2
    assert " ".join(refused.err.split()).endswith(f" {meant}")


def test_diff_fails_where_inputs_or_outputs_changed(three: Desk) -> None:
    three.onnx(width=5)
    assert three.call("run", "spec.yaml", "--quiet").code == 0

    called = three.json("diff", "tiny@3", "prod")

    assert called.code == called.data["exit_code"] == 1
    assert called.data["signature"] == [
        "onnx-fp32: output logits: float32[batch, 5], and was logits: float32[batch, 3]"
    ]


def test_promoting_a_run_again_makes_no_version_and_says_so(desk: Desk) -> None:
    assert desk.call("run", "spec.yaml", "--verbose").code == 0

    again = desk.json("promote", "--verbose", "--run", str(desk.run_folder))
    elsewhere = desk.json("promote", "--verbose", "--run", str(desk.run_folder), "--alias", "canary")
    rerun = desk.json("run", "spec.yaml", "--verbose")

    assert again.out.startswith(
        "tiny version 1 already holds exactly this: no new version was made; alias prod is at 1\n"
    )
    assert (again.data["is_new"], again.data["version"], again.data["record"]) == (False, 1, None)
    assert "no new version was made; alias canary was moved to 1\n" in elsewhere.out
    assert "tiny version 1 already holds exactly this" in rerun.out
    assert rerun.data["runs"][0]["release"]["is_new"] is False
    assert desk.releases == ["tiny/1"]


def test_promoting_what_was_judged_by_other_rules_makes_a_version(desk: Desk) -> None:
    assert desk.call("run", "spec.yaml", "--verbose").code == 0
    rules = {
        "decisions": {"logits": {"threshold": 0.0}},
        "roles": {"x": {"nan": False}},
        "reason": "asked by the users",
    }
    desk.spec(tolerance={"onnx-fp32": {"max_abs_diff": 1e-6}}, **rules)

    assert desk.call("run", "spec.yaml", "--verbose").code == 0
    assert desk.releases == ["tiny/1", "tiny/2"]
    called = desk.json("diff", "tiny", "1", "2")
    changed = {row["about"]: (row["was"], row["now"]) for row in called.data["rows"] if row["is_changed"]}
    assert changed["decisions.logits.threshold"] == (None, 0.0)
    assert changed["roles.x.nan"] == (None, False)
    assert changed["max_abs_diff"][1] == 1e-6
    now = called.data["now"]
    assert (called.data["was"]["reason"], now["reason"]) == (None, "asked by the users")
    assert now["who"] == called.data["was"]["who"] != ""
    assert now["asked_less"] == []


def test_a_run_of_an_older_state_moves_the_alias_back_as_promote_does_and_reports_it(desk: Desk) -> None:
    fields = ("version", "is_new", "moved_from", "alias", "record")
    assert desk.call("run", "spec.yaml", "--quiet").code == 0
    first = str(desk.run_folder)
    desk.spec(tolerance={"onnx-fp32": {"max_abs_diff": 1e-6}})
    second = desk.json("run", "spec.yaml", "--quiet").data["runs"][0]
    desk.spec()

    back = desk.json("run", "spec.yaml")

    assert [second["release"][name] for name in fields] == [2, True, 1, "prod", 2]
    assert [back.data["runs"][0]["release"][name] for name in fields] == [1, False, 2, "prod", 3]
    assert "alias prod was moved back from 2 to 1" in " ".join(back.out.split())
    assert desk.json("promote", "--run", second["run"]).data["moved_from"] == 1
    promoted = desk.json("promote", "--run", first).data
    assert [promoted[name] for name in fields] == [1, False, 2, "prod", 5]
    assert desk.json("run", "spec.yaml").data["runs"][0]["release"]["moved_from"] is None


def test_an_unchanged_run_does_not_undo_a_rollback(desk: Desk) -> None:
    assert desk.call("run", "spec.yaml", "--quiet").code == 0
    desk.spec(tolerance={"onnx-fp32": {"max_abs_diff": 1e-6}})
    second = desk.json("run", "spec.yaml", "--quiet").data["runs"][0]["run"]
    assert desk.call("rollback", "tiny", "--reason", "answers badly").code == 0

    rerun = desk.json("run", "spec.yaml")
    promoted = desk.json("promote", "--run", second)

    assert (rerun.code, promoted.code) == (5, 5)
    run = rerun.data["runs"][0]
    assert (run["exit_code"], run["release"]) == (5, None)
    for rollback in (run["rolled_back"], promoted.data["rolled_back"]):
        fields = ("alias", "version", "record", "reason")
        assert [rollback[name] for name in fields] == ["prod", 2, 3, "answers badly"]
    assert promoted.data["error"]["command"] == "convert-and-validate alias tiny prod 2"
    assert len(desk.json("history", "tiny").data["history"]) == 3
    assert desk.call("alias", "tiny", "prod", "2").code == 0
    assert desk.json("run", "spec.yaml").data["runs"][0]["release"]["version"] == 2


@pytest.mark.parametrize("words", [("rollback", "tiny", "prod"), ("alias", "tiny", "2")])
def test_other_arguments_than_those_of_a_move_are_wrong_usage_with_the_right_form(
    desk: Desk, words: tuple[str, ...]
) -> None:
    called = desk.call(*words)

    assert called.code == 2
    assert f"convert-and-validate {words[0]} MODEL" in " ".join(called.err.split())


def test_a_record_that_was_edited_stops_every_command_that_reads_the_log(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    path = desk.folder / "artifacts/repository/log/tiny/000001.json"
    data = json.loads(path.read_bytes())
    path.unlink()
    path.write_text(json.dumps({**data, "who": "somebody else"}), encoding="utf-8")

    for command in _COMMANDS:
        called = desk.call(*command)
        assert called.code == 5, str(called)
        assert "000001.json was edited: its digest is sha256:" in called.err
        assert called.err.endswith("hint: restore it from a backup: records are never edited\n")


def test_a_release_despite_a_failed_run_is_shown_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variant = {"name": "onnx-fp32", "digest": "sha256:0", "evidence": None}
    record = Record(
        kind=RecordKind.RELEASED, time="2026", version=1, aliases={"prod": 1}, reason="fastest", despite="the demo"
    )
    details = ReleaseDetails(
        model="tiny",
        version=1,
        folder=tmp_path,
        aliases=("prod",),
        record=record,
        numbers=(),
        manifest={"variants": [variant]},
        history=(record,),
    )
    release = StoredRelease(
        model="tiny",
        version=1,
        folder=tmp_path,
        alias="prod",
        record=1,
        manifest="sha256:0",
        variants=("onnx-fp32",),
        reason="",
        despite="the demo",
    )

    (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")

    print_release_details(details, Shown())
    print_release(release, Path("artifacts/repository"), Shown())
    print_next_of_release(release, Path("artifacts/repository"), Shown())

    out = capsys.readouterr().out
    assert "\nreleased despite: the demo\n" in out
    assert "fastest; released despite: the demo" in out
    released = "released tiny version 1, alias prod: onnx-fp32\nreleased despite: the demo\n"
    assert out.endswith(f"{released}next: convert-and-validate show tiny prod\n")
