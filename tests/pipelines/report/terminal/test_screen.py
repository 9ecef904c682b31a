"""What a command prints unasked fits one screen of 80 columns; `-q` leaves the verdict, `-v` shows all there is."""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from paritygate.pipelines.cli.console import progress_of
from paritygate.pipelines.process.stages import stage
from paritygate.pipelines.report.terminal.printing import print_message

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Called, Desk

_MOST_LINES = 24


@pytest.fixture(autouse=True)
def _without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have errors be as wide as users see them in a log."""
    monkeypatch.delenv("COLUMNS")


def _check_screen(called: Called) -> list[str]:
    lines = [*called.out.splitlines(), *called.err.splitlines()]
    wide = [line for line in lines if cell_len(line) > 80]
    assert wide == [], wide
    assert len(called.out.splitlines()) <= _MOST_LINES, called.out
    return called.out.splitlines()


def test_a_run_that_passes_says_its_verdict_the_release_and_what_is_next(desk: Desk) -> None:
    lines = _check_screen(desk.call("run", "spec.yaml"))

    assert lines[0].startswith("tiny against its onnxruntime ")
    assert lines[0].endswith(" source on 120 rows")
    assert lines[1].split("  ")[0] == "verdict"
    assert re.fullmatch(r"pass +onnx-fp32 +0 +(< 1|\d+) %  released", lines[2])
    assert "verdict: pass: tiny: onnx-fp32 answers like the source, within the limits." in lines
    at = lines.index("released tiny version 1, alias prod: onnx-fp32")
    # What was not asked of a release stays in sight.
    assert lines[at + 1].startswith("did not run for onnx-fp32: the probes batches, shapes,")
    assert lines[-2] == f"report: {desk.run_folder.relative_to(desk.folder)}/report.html"
    assert lines[-1] == "next: convert-and-validate show tiny prod"


def test_a_run_that_fails_says_why_and_what_to_do(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", "onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 1e-9}})
    called = desk.call("run", "spec.yaml")
    lines = _check_screen(called)
    at = next(number for number, line in enumerate(lines) if line.startswith("fail  "))

    assert called.code == 1
    assert "onnx-fp16" in lines[at]
    assert re.match(r" +\d+ of 120 rows differ \(worst: row '\d+'\): \S+ against a limit of", lines[at + 1])
    text = " ".join(line.strip() for line in lines)
    assert "verdict: fail: tiny: 1 of 2 required variants passed (fail: onnx-fp16)." in text
    assert "not released: required and not passed: onnx-fp16 (fail); so nothing is released" in text
    assert "would have released: onnx-fp32" in text
    assert "convert-and-validate promote --run" in text


def test_an_error_is_one_sentence_below_its_variant_with_a_hint(desk: Desk) -> None:
    desk.call("run", "spec.yaml")
    with (desk.run_folder / "onnx-fp32/model.onnx").open("ab") as file:
        file.write(b"one byte more")
    called = desk.call("validate", "--run", str(desk.run_folder))
    lines = _check_screen(called)

    assert called.code == 5
    assert any(re.match(r"error +onnx-fp32 +- +-", line) for line in lines)
    assert "is corrupt: model.onnx was changed" in " ".join(line.strip() for line in lines)
    assert any(line.startswith("hint: onnx-fp32: ") for line in lines)


def test_too_few_rows_are_inconclusive_on_one_screen(desk: Desk) -> None:
    desk.samples(99)
    lines = _check_screen(desk.call("run", "spec.yaml"))

    assert any(re.match(r"inconclusive +onnx-fp32", line) for line in lines)
    assert any("99 rows in" in line for line in lines)


def test_what_does_not_run_here_is_said_once_for_all_of_its_variants(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", "onnx-bf16"], required=["onnx-fp32"])
    lines = _check_screen(desk.call("run", "spec.yaml"))

    assert any(re.match(r"not run here +onnx-bf16 +- +- +optional$", line) for line in lines)
    assert any(line.startswith("not run here: onnx-bf16: ONNX Runtime's CPU provider has no BF16") for line in lines)
    assert "emulated: onnx-bf16: pass" in lines


def test_export_validate_and_promote_fit_as_well_and_say_what_is_next(desk: Desk) -> None:
    exported = _check_screen(desk.call("export", "spec.yaml"))
    folder = str(desk.run_folder.relative_to(desk.folder))
    desk.call("record", "--run", folder)
    validated = _check_screen(desk.call("validate", "--run", folder))
    promoted = _check_screen(desk.call("promote", "--run", folder))

    assert re.match(r"exported +onnx-fp32 +\d+ bytes +sha256:", exported[2])
    assert exported[-1] == f"run: {folder}"
    assert (
        " ".join(validated[-2:]).replace("\\ ", "").split()
        == f"next: convert-and-validate promote --run {folder}".split()
    )
    assert promoted[0] == "released tiny version 1, alias prod: onnx-fp32"
    assert promoted[-1] == "next: convert-and-validate show tiny prod"


def test_selftest_names_faults_by_what_came_of_them(desk: Desk) -> None:
    called = desk.call("selftest", "spec.yaml", "--fault", "output-scaled", "--fault", "output-nan-cleared")
    lines = _check_screen(called)

    assert called.code == 0, called.out
    assert "caught by samples (1): output-scaled" in lines
    assert "missed (1): output-nan-cleared" in lines
    assert lines[-1].startswith("page: artifacts/runs/tiny/")


@pytest.mark.parametrize("command", ["run", "validate", "export", "promote", "selftest"])
def test_quiet_prints_one_line(finished: Desk, tmp_path_factory: pytest.TempPathFactory, command: str) -> None:
    desk = finished.copy(tmp_path_factory.mktemp("quiet"))
    folder = ("--run", str(desk.run_folder))
    words = {"validate": folder, "promote": folder, "selftest": ("spec.yaml", "--fault", "output-scaled")}
    called = desk.call(command, *words.get(command, ("spec.yaml",)), "-q")
    said = {
        "run": "verdict: pass: tiny: onnx-fp32 answers like the source, within the limits. "
        "Already released as version 1; alias prod is at 1.\n",
        "validate": "verdict: pass: tiny: onnx-fp32 answers like the source, within the limits.\n",
        "export": "exported: onnx-fp32\n",
        "promote": "tiny version 1 already holds exactly this: no new version was made; alias prod is at 1\n",
        "selftest": "1 fault planted: 1 caught on the samples, 0 more by probes, 0 missed; "
        "0 equivalent rewrites: 0 false alarms\n",
    }

    assert (called.code, called.out, called.err) == (0, said[command], "")


def test_quiet_prints_errors_beside_the_verdict(desk: Desk) -> None:
    assert desk.call("run", "spec.yaml", "-q").out.endswith(" Released version 1, alias prod.\n")
    (desk.run_folder / "onnx-fp32/model.onnx").unlink()
    called = desk.call("validate", "--run", str(desk.run_folder), "-q")

    assert called.out == "verdict: error: tiny: 0 of 1 required variant passed (error: onnx-fp32).\n"
    assert called.err.startswith("error: onnx-fp32: artifact onnx-fp32 in\n  artifacts/runs/tiny/")
    assert "\nhint: " in called.err


def test_verbose_adds_the_wide_table_and_every_note(desk: Desk) -> None:
    called = desk.call("run", "spec.yaml", "-v")

    assert "Parity with the source: statistics of |actual - expected|" in called.out
    assert f"run: {desk.run_folder}\n" in called.out
    assert "repository artifacts/repository\n" in called.out


def test_quiet_and_verbose_at_once_are_wrong_usage(desk: Desk) -> None:
    called = desk.call("run", "spec.yaml", "-q", "-v")

    assert called.code == 2
    assert called.err == "error: --quiet and --verbose contradict each other\nhint: give one of them, or neither\n"


def _compared(bench: Bench, *options: str, error: float = 0.0) -> list[str]:
    output = "유사도 " * 12
    found = bench.compare(
        bench.linear("a", output=output),
        bench.linear("b", output=output, error=error),
        "--samples",
        bench.samples(),
        *options,
    )
    lines = [*found.err.splitlines(), *found.out.splitlines()]
    # A path is as wide as it is.
    return [line for line in lines if not line.lstrip().startswith(str(bench.folder))]


@pytest.mark.parametrize("error", [0.0, 1.0])
def test_compare_fits_with_names_in_wide_characters(bench: Bench, error: float) -> None:
    target = str(bench.folder / "result.json")
    lines = _compared(bench, "--json", target, error=error)

    assert max(map(cell_len, lines)) <= 80
    assert lines[-1] == ("verdict: fail" if error else "verdict: pass")
    assert ("32 of 32 rows differ" in " ".join(lines)) is bool(error)


def test_compare_is_quiet_but_for_its_verdict(bench: Bench) -> None:
    assert _compared(bench, "--quiet") == ["verdict: pass"]
    assert _compared(bench, "--quiet", error=1.0) == ["verdict: fail"]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("is_terminal", "count"), [(True, 3), (False, 1)])
def test_a_message_of_quiet_commands_fits_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, count: int
) -> None:
    stream = _Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)

    print_message(f"verdict: pass: {'onnx-fp32 answers ' * 11}")

    lines = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()
    assert len(lines) == count
    assert (max(map(len, lines)) <= 80) is is_terminal


def _progress(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"onnx-{number}" for number in range(10)]
    with progress_of("tiny") as progress:
        with stage(progress, "exporting", names) as did:
            for name in names:
                progress(f"{name}: converting", 0, 0)
                progress(f"{name}: converting", 50, 100)
            did("exported 10 of 10 variants")
        with stage(progress, "recording the reference") as did:
            progress("running the reference", 10, 40)
            did("recorded the reference")
    return stream.getvalue()


def test_progress_without_a_terminal_is_a_line_a_stage_with_its_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _progress(monkeypatch, io.StringIO()).splitlines()

    assert [re.sub(r"[\d.]+ s$", "T", line) for line in lines] == [
        "tiny: exported 10 of 10 variants in T",
        "tiny: recorded the reference in T",
    ]


def test_progress_on_a_terminal_is_one_line_with_stage_and_share_that_goes_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = _progress(monkeypatch, _Terminal())
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown)

    assert "tiny: recording the reference: running the reference" in plain
    assert "25%" in plain
    # The cursor is back.
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    assert all(cell_len(line.strip("\r")) <= 80 for line in re.split(r"[\r\n]+", plain))


def _broken_off() -> None:
    with progress_of("tiny") as progress, stage(progress, "exporting"):
        progress("onnx-fp32: converting", 0, 0)
        raise KeyboardInterrupt


def test_a_stage_that_is_broken_off_says_nothing_and_gives_the_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), _Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        with pytest.raises(KeyboardInterrupt):
            _broken_off()
        shown = stream.getvalue()
        assert "exported" not in shown
        assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")
