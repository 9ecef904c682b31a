"""The reports as files in the run's folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from paritygate.errors import StorageError
from paritygate.pipelines.report.write import write_reports
from paritygate.pipelines.run.workspace import RunFolder

RELEASE = {
    "model": "sts",
    "version": 3,
    "folder": "repository/store/sts/3",
    "alias": "prod",
    "record": 4,
    "manifest": "sha256:0123",
    "variants": ["onnx-fp32"],
    "reason": "fallback: <b>source</b>",
}


def test_both_reports_are_written_into_the_run(passing_run: RunFolder) -> None:
    paths = write_reports(passing_run)

    assert paths == (passing_run.folder / "report.html", passing_run.folder / "report.md")
    assert paths[0].read_text(encoding="utf-8").startswith("<!DOCTYPE html>\n")
    assert paths[1].read_text(encoding="utf-8").startswith("# Parity report: sts\n")
    assert not list(passing_run.folder.glob(".report*"))


def test_a_report_with_the_release_replaces_the_one_without(passing_run: RunFolder) -> None:
    write_reports(passing_run)
    html, markdown = write_reports(passing_run, release=RELEASE)

    assert "fallback: &lt;b&gt;source&lt;/b&gt;" in html.read_text(encoding="utf-8")
    assert "| version | sts 3 |" in markdown.read_text(encoding="utf-8")


def test_a_report_without_a_release_says_nothing_of_one(passing_run: RunFolder) -> None:
    html, markdown = write_reports(passing_run)

    assert "digest of its manifest" not in html.read_text(encoding="utf-8")
    assert "digest of its manifest" not in markdown.read_text(encoding="utf-8")


def test_a_name_that_is_not_unicode_can_be_written(passing_run: RunFolder) -> None:
    name = os.fsdecode(b"caf\xe9.yaml")
    run = replace(passing_run, resolved=replace(passing_run.resolved, origin=name))

    html, _ = write_reports(run)

    assert "caf\\udce9.yaml" in html.read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_written_is_a_storage_error(passing_run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file stands in the way", encoding="utf-8")

    with pytest.raises(StorageError, match="could not be written"):
        write_reports(replace(passing_run, folder=tmp_path / "run" / "below"))
