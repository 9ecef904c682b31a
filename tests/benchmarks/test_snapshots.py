"""The script that writes what users and programs see, so that two versions can be compared: what it strikes out."""

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

RUN = "20261122T164525Z-305e"


@pytest.fixture
def snapshots(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(project_root / "benchmarks")
    return importlib.import_module("snapshots")


@pytest.mark.parametrize(
    ("text", "struck_out"),
    [
        (f"run: runs/small/{RUN}", "run: runs/small/<run>"),
        ("Written: 2026-11-22 16:46 UTC by paritygate 0.2.0", "Written: <time> by paritygate 0.2.0"),
        ("since 2026-11-22T16:46:31.148340+00:00", "since <time>"),
        ("| fingerprint.pb | 96 bytes | sha256:12 |", "| fingerprint.pb | <varies> | sha256:12 |"),
        ("judged as fp32, in 4.09 s; exit code 0", "judged as fp32, in <seconds> s; exit code 0"),
        (
            "| all of it, over the samples alone | 103.2 times |",
            "| all of it, over the samples alone | <varies> times |",
        ),
    ],
)
def test_times_and_run_ids_are_struck_out_of_text(snapshots: ModuleType, text: str, struck_out: str) -> None:
    assert snapshots.strike_out_text(text, {}) == struck_out


def test_of_two_names_the_longer_one_is_struck_out_first(snapshots: ModuleType) -> None:
    names = {"/place": "<package>", "/place/desk": "<work>"}

    assert snapshots.strike_out_text("/place/desk/a and /place/b", names) == "<work>/a and <package>/b"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("0.001363189 <= 0.0013631893087", "0.00136319 <= 0.00136319"),
        ("13.6318930874e-05", "0.000136319"),
        ("1 - 1.11e-16, of 0.50 %, in 256 rows", "1 - 1.11e-16, of 0.50 %, in 256 rows"),
        ("torch 2.13.0+cpu, onnxruntime 1.31.1, 1234567 rows", "torch 2.13.0+cpu, onnxruntime 1.31.1, 1234567 rows"),
    ],
)
def test_figures_keep_six_digits_and_all_else_stays(snapshots: ModuleType, text: str, kept: str) -> None:
    assert snapshots.strike_out_text(text, {}) == kept


def test_values_are_struck_out_of_data_by_name(snapshots: ModuleType) -> None:
    data = {
        "verdict": "pass",
        "seconds": 1.5,
        "reference_seconds": None,
        "checks": [{"measured": 0.0013631893087, "rows": 256, "detail": "took 3 s"}],
        "history": [{"time": "2026-11-22T16:46:31+00:00", "host": "somewhere"}],
    }

    assert snapshots.strike_out_data(data, {}) == {
        "verdict": "pass",
        "seconds": "<varies>",
        "reference_seconds": None,
        "checks": [{"measured": 0.00136319, "rows": 256, "detail": "took <seconds> s"}],
        "history": [{"time": "<varies>", "host": "<varies>"}],
    }


def test_columns_of_seconds_are_struck_out_of_markdown_up_to_the_end_of_the_table(snapshots: ModuleType) -> None:
    table = ["| probe | candidate s | rows |", "| --- | ---: | ---: |", "| batches | 0.12 | 293 |", ""]
    other = ["| check | measured | limit |", "| --- | ---: | ---: |", "| rows | 256 | 100 |"]

    struck_out = snapshots.strike_out_columns("\n".join([*table, *other])).splitlines()

    assert struck_out == [*table[:2], "| batches | <varies> | 293 |", "", *other]


def test_digests_of_files_that_vary_are_named_and_those_of_models_stay(snapshots: ModuleType, tmp_path: Path) -> None:
    record = tmp_path / "log/small/000001.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"digest": "sha256:0123"}), encoding="utf-8")
    (tmp_path / "report.md").write_text("written just now", encoding="utf-8")
    (tmp_path / "model.onnx").write_bytes(b"weights")
    report, model = (hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("report.md", "model.onnx"))

    names = snapshots.names_in(tmp_path, tmp_path)

    assert snapshots.strike_out_text(f"sha256:{report} after sha256:0123 of {tmp_path}, {model}", names) == (
        f"sha256:<digest of report.md> after sha256:<digest in 000001.json> of <work>, {model}"
    )


def test_no_digest_is_kept_of_models_that_are_written_in_other_bytes_every_time(
    snapshots: ModuleType, tmp_path: Path
) -> None:
    digest = "0123456789abcdef" * 4
    kept, struck_out = (tmp_path / name for name in ("run-klue-sts", "run-klue-sts-tf"))
    for folder in (kept, struck_out):
        folder.mkdir()
        (folder / "evidence.json").write_text(json.dumps({"artifact": f"sha256:{digest}"}), encoding="utf-8")

    assert digest not in snapshots.names_in(kept, tmp_path)
    assert snapshots.names_in(struck_out, tmp_path)[digest] == "<varies>"


def test_a_case_is_what_its_commands_print_and_write(snapshots: ModuleType, tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()

    snapshots.take("usage", "run CASE/nothing.yaml\nlist --repository CASE --json CASE/list.json", work=work, out=out)

    terminal = (out / "usage/terminal.txt").read_text(encoding="utf-8")
    assert "$ convert-and-validate run usage/nothing.yaml\n" in terminal
    assert "--- exit code 2\n\n$ convert-and-validate list" in terminal
    assert terminal.endswith("--- exit code 0\n\n")
    assert str(work) not in terminal
    assert (out / "usage/files.txt").read_text(encoding="utf-8") == "list.json\n"
    assert json.loads((out / "usage/list.json").read_text(encoding="utf-8"))


def test_a_folder_with_something_else_in_it_is_not_written_to(snapshots: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()

    with pytest.raises(SystemExit, match="holds what this script did not write: name another folder, or remove it"):
        snapshots.main([str(tmp_path)])

    assert (tmp_path / "thesis.txt").exists()
