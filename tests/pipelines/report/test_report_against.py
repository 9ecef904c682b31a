"""`report --against`: two runs side by side, as data, pages and command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt
from msgspec.structs import replace
from tests.pipelines.report.conftest import HOSTILE_ROW, add_artifact, measure, new_model_run
from tests.pipelines.report.test_report_html import read_page

from paritygate.errors import ParitygateError
from paritygate.pipelines.benchmark.result import BenchmarkPoint, BenchmarkResult, Speedup, VariantBenchmark
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.report.against.side_by_side import Side, SideBySide, side_by_side
from paritygate.pipelines.report.html_report import render_html_against
from paritygate.pipelines.report.markdown_report import render_markdown_against
from paritygate.pipelines.report.report_data import collect_report
from paritygate.pipelines.report.tables.table import Table
from paritygate.pipelines.run.workspace import RunFolder, open_run


@pytest.fixture(scope="module")
def later_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a run whose FP32 variant passes, held to other limits than in the mixed run, and that has no other."""
    run = new_model_run(
        tmp_path_factory.mktemp("later"), ["onnx-fp32", "onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 2.0}}
    )
    add_artifact(run, "onnx-fp32", error=1e-6)
    add_artifact(run, "onnx-fp16", error=1e-4)
    measure(run)
    return run


def side(run: RunFolder) -> Side:
    return Side(report=collect_report(run), spec=run.resolved.spec.model_dump(mode="json"))


@pytest.fixture(scope="module")
def both(mixed_run: RunFolder, later_run: RunFolder) -> SideBySide:
    return side_by_side(side(later_run), side(mixed_run))


def rows_of(table: Table | None) -> dict[str, dict[str, str]]:
    assert table is not None
    titles = [column.title for column in table.columns]
    return {row[0].text: dict(zip(titles, (cell.text for cell in row), strict=True)) for row in table.rows}


def test_the_headline_says_which_verdicts_changed(both: SideBySide, mixed_run: RunFolder) -> None:
    assert both.headline == "1 of 2 variants has another verdict: onnx-fp16 (fail, now pass)."
    assert both.reasons == ()
    same = side_by_side(side(mixed_run), side(mixed_run))
    assert same.headline == "All 5 variants in both runs have the same verdict."
    assert same.changes is None


def test_what_is_worse_now_is_explained(mixed_run: RunFolder, later_run: RunFolder) -> None:
    worse = side_by_side(side(mixed_run), side(later_run))

    assert worse.headline == "1 of 2 variants has another verdict: onnx-fp16 (pass, now fail)."
    verdict, name, why = worse.reasons[0]
    assert (verdict, name) == ("fail", "onnx-fp16")
    assert "128 of 128 rows differ" in why


def test_each_variant_of_either_run_has_a_row(both: SideBySide) -> None:
    rows = rows_of(both.parity)

    assert list(rows) == ["onnx-fp32", "onnx-fp16", "onnx-bf16", "onnx-int8", "onnx-tf32"]
    fp16 = rows["onnx-fp16"]
    assert (fp16["verdict, against"], fp16["verdict, run"]) == ("fail", "pass")
    assert fp16["difference of its limit, against"].endswith(" times")
    assert rows["onnx-bf16"]["verdict, run"] == "not a target"


def test_what_was_changed_is_named_with_both_values(both: SideBySide) -> None:
    changes = rows_of(both.changes)

    assert changes["spec: tolerance.onnx-fp16.max_abs_diff"]["run"] == "2.0"
    assert changes["spec: tolerance.onnx-fp16.max_abs_diff"]["against"] == "-"
    assert "spec: targets" in changes
    assert "digest of the source" not in changes
    assert "digest of the source" in both.unchanged


def _benchmark(digest: str, model: str) -> BenchmarkResult:
    point = BenchmarkPoint(
        batch_size=1, concurrency=1, rounds=3, calls=30, latency_ms={"p50": 2.0, "p95": 3.0, "p99": 4.0},
        rows_per_s=500.0, cpu_cores=1.0, speedup=Speedup(ratio=1.5, low=1.4, high=1.6),
    )  # fmt: skip
    found = VariantBenchmark(
        name="onnx-fp32", artifact=digest, runtime="onnxruntime", version="1.2", device="cpu", size_bytes=2_500_000,
        load_s=0.25, first_call_ms=20.0, peak_memory_bytes=150_000_000, points=(point,),
    )  # fmt: skip
    return BenchmarkResult(
        batch_sizes=(1,), concurrency=(1,), variants=(found,), samples_digest="sha256:" + "0" * 64,
        price_per_hour=None, machine={"cpu": {"model": model}, "cores": 8},
    )  # fmt: skip


@pytest.mark.parametrize("model", ["one processor", "another processor"])
def test_times_of_other_machines_are_not_compared(mixed_run: RunFolder, later_run: RunFolder, model: str) -> None:
    sides = []
    for run, processor in ((later_run, model), (mixed_run, "one processor")):
        found = side(run)
        artifact = found.report.variants[0].artifact
        assert artifact is not None
        sides.append(replace(found, report=replace(found.report, benchmark=_benchmark(artifact.digest, processor))))

    words = side_by_side(*sides)

    assert rows_of(words.speed)["onnx-fp32"]["speed-up, run"] == "1.5x"
    assert words.speed_words.startswith(
        "Both were measured on cpu, one processor" if model == "one processor" else "The times cannot be compared"
    )


def test_the_pages_say_the_same_and_load_nothing(both: SideBySide) -> None:
    page = read_page(render_html_against(both))
    text = render_markdown_against(both)

    assert not {"script", "img", "link"} & {element.tag for element in page.elements}
    assert both.headline in page.of("p")[1].text
    assert not [token for token in MarkdownIt("commonmark").enable("table").parse(text) if token.type == "html_block"]
    assert "onnx-fp16 (fail, now pass)" in text


def test_the_command_writes_both_pages_and_says_where(
    mixed_run: RunFolder, later_run: RunFolder, tmp_path: Path
) -> None:
    shutil.copytree(later_run.folder, tmp_path / "run")

    found = CliRunner().invoke(
        cli, ["report", "--run", str(tmp_path / "run"), "--against", str(mixed_run.folder)], standalone_mode=False
    )

    assert found.return_value == 0
    assert found.output.startswith("1 of 2 variants has another verdict: onnx-fp16 (fail, now pass).\n")
    name = f"report-against-{open_run(mixed_run.folder).run_id}"
    html, markdown = (tmp_path / "run" / f"{name}{end}" for end in (".html", ".md"))
    assert html.stat().st_size < 100_000
    assert HOSTILE_ROW not in markdown.read_text(encoding="utf-8")


def test_the_command_needs_two_runs_that_are_not_the_same(mixed_run: RunFolder) -> None:
    folder = str(mixed_run.folder)
    for args, message in (
        (["--run", folder], "report needs --against DIR"),
        (["--against", folder], "report needs --run DIR"),
        (["--run", folder, "--against", folder], "--run and --against are the same run"),
    ):
        found = CliRunner().invoke(cli, ["report", *args], standalone_mode=False)

        assert isinstance(found.exception, ParitygateError)
        assert message in str(found.exception)
        assert found.exception.exit_code == 2
