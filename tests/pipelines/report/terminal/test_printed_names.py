"""Names from files and specs in what the commands print: shown, and without power over the terminal."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest

from paritygate.__main__ import _run
from paritygate.pipelines.cli.console import progress_of
from paritygate.pipelines.process.stages import stage
from paritygate.pipelines.report.tables.table import table_of
from paritygate.pipelines.report.terminal.printing import fitting_parts, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Bench

NAME = "lo\x1b[2J\u202egits\nverdict: pass"
SHOWN = r"lo\u001b[2J\u202egits\nverdict: pass"


def test_cells_and_titles_of_a_table_show_what_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(table_of(NAME, ("name", "[red]"), [(NAME, "[bold]markup[/bold]")]))
    shown = capsys.readouterr().out

    assert shown.count(SHOWN) == 2
    assert "[bold]markup[/bold]" in shown
    assert "[red]" in shown
    assert "\x1b" not in shown


def test_a_wide_table_is_several_that_fit() -> None:
    titles = ("variant", "output", ">rows", ">largest difference", ">mean difference", "evidence", "verdict")
    rows = [("onnx-fp16", "logits", *("0.000204",) * 3, "verified", "pass")]
    table = table_of("Parity", titles, rows)

    parts = fitting_parts(table, 50)

    assert fitting_parts(table, 200) == [table]
    assert len(parts) > 1
    names = [[column.title for column in part.columns] for part in parts]
    # The first columns name the rows of each part, and each other column is in one of them.
    assert {tuple(part[:2]) for part in names} == {("variant", "output")}
    assert [title for part in names for title in part[2:]] == [column.title for column in table.columns[2:]]
    assert all([cell.text for cell in part.rows[0]][:2] == ["onnx-fp16", "logits"] for part in parts)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_shows_what_is_hidden(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> None:
    stream = _Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")

    with progress_of("[red]model", is_quiet=False) as progress, stage(progress, "exporting") as did:
        progress(NAME, 0, 0)
        did(NAME)

    assert SHOWN in stream.getvalue()
    assert "[red]model" in stream.getvalue()
    assert "\u202e" not in stream.getvalue()


def test_outputs_with_hostile_names_are_compared_and_shown(bench: Bench) -> None:
    outcome = bench.compare(
        bench.linear("a", output=NAME), bench.linear("b", output=NAME, error=1.0), "--samples", bench.samples()
    )

    assert outcome.code == 1
    assert list(outcome.result["outputs"]) == [NAME]
    assert SHOWN in outcome.out.replace("\n", "")
    assert "\x1b" not in outcome.out + outcome.err
    assert "\u202e" not in outcome.out + outcome.err
    assert outcome.out.count("\nverdict: ") == 1


def test_json_on_standard_output_has_no_hidden_characters_and_says_the_same(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    arguments = [bench.linear("a", output=NAME), bench.linear("b", output=NAME), "--samples", bench.samples()]
    _run(["compare", *arguments, "--verbose", "--json", "-"])
    out = capsys.readouterr().out

    assert list(json.loads(out)["outputs"]) == [NAME]
    assert "\u202e" not in out


def test_an_error_shows_what_is_hidden_in_a_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["run", f"{tmp_path}/spec\x1b[31m\nverdict: pass.yaml"]) == 2
    err = capsys.readouterr().err

    assert err.startswith(f"error: spec {tmp_path}/spec\\u001b[31m\\nverdict: pass.yaml does not exist\nhint: ")


@pytest.mark.parametrize("arguments", [["compare", "--\x1b[31m"], ["\x1b[31m"], ["run", "--time-limit", "\x1b[31m"]])
def test_wrong_usage_shows_what_is_hidden(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(arguments) == 2
    assert "\x1b" not in (err := capsys.readouterr().err)
    assert "x1b" in err or "u001b" in err


def test_the_traceback_of_debug_shows_what_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["--debug", "run", "spec\x1b.yaml"]) == 2
    err = capsys.readouterr().err

    assert "Traceback" in err
    assert "\x1b" not in err
