"""The drawings of the report: what they show is what was measured, and the page stays small whatever is drawn."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.pipelines.report.conftest import HOSTILE_OUTPUT
from tests.pipelines.report.test_report_html import read_page

from paritygate.pipelines.compare.redaction import hidden
from paritygate.pipelines.compare.result import LimitRange, OutputResult
from paritygate.pipelines.report.drawings.drawings import drawings_of
from paritygate.pipelines.report.drawings.plot import LEFT, WIDTH, Frame, Plot, nice_steps
from paritygate.pipelines.report.html_report import render_html
from paritygate.pipelines.report.markdown_report import render_markdown
from paritygate.pipelines.report.report_data import ReportData, collect_report
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.validate.measure.figures import Drawing, DrawnGrid, DrawnMaxima


@pytest.fixture(scope="module")
def report(mixed_run: RunFolder) -> ReportData:
    return collect_report(mixed_run)


def output_of(report: ReportData, variant: str) -> OutputResult:
    result = next(item.result for item in report.variants if item.name == variant)
    assert result is not None
    return result.outputs[HOSTILE_OUTPUT]


def drawing_of(output: OutputResult) -> Drawing:
    assert output.drawing is not None
    return output.drawing


def plots_of(output: OutputResult) -> dict[str, Plot]:
    return {plot.title: plot for plot in drawings_of(output)}


def test_a_variant_that_fails_has_a_drawing_of_each_kind(report: ReportData) -> None:
    plots = plots_of(output_of(report, "onnx-fp16"))

    # Its rows have no length.
    assert list(plots) == ["Differences by size", "Actual against expected", "Largest difference by row"]
    assert plots["Differences by size"].words.startswith("128 of 128 are beyond the limit")
    assert "the largest is 0.5. The limit is 0.01." in plots["Differences by size"].words
    assert "50 times its limit" in plots["Largest difference by row"].words
    assert "128 of 128 bars are beyond the limit" in plots["Largest difference by row"].words


def test_the_bars_hold_every_value(report: ReportData) -> None:
    plot = plots_of(output_of(report, "onnx-fp32"))["Differences by size"]

    counts = [int(path.words.rsplit(": ", 1)[1].split()[0].replace(",", "")) for path in plot.paths if path.words]
    assert sum(counts) == 128
    assert {path.kind for path in plot.paths if path.words} == {"column"}


def test_what_is_decided_otherwise_is_marked(report: ReportData) -> None:
    result = next(item.result for item in report.variants if item.name == "onnx-fp16")
    assert result is not None
    flips = result.decisions[HOSTILE_OUTPUT].mismatches
    plot = plots_of(result.outputs[HOSTILE_OUTPUT])["Actual against expected"]

    assert flips > 1
    assert f"Crosses are what is decided otherwise: {flips} values." in plot.words
    assert [path.kind for path in plot.paths].count("flip") == 1
    assert [label.text for label in plot.labels if label.kind == "strong"] == ["boundary 0"]


def test_every_part_of_a_drawing_lies_within_it(report: ReportData) -> None:
    for name in ("onnx-fp32", "onnx-fp16"):
        for plot in drawings_of(output_of(report, name)):
            for label in plot.labels:
                assert 0 <= label.x <= WIDTH, (plot.title, label)
                assert 0 < label.y <= plot.height, (plot.title, label)
            for path in plot.paths:
                for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)", path.d):
                    assert -1 <= float(x) <= WIDTH, (plot.title, path)
                    assert -1 <= float(y) <= plot.height, (plot.title, path)


def test_there_is_no_drawing_where_nothing_differs_or_nothing_was_drawn(report: ReportData) -> None:
    output = output_of(report, "onnx-fp16")

    assert drawings_of(replace(output, max_abs_diff=0.0)) == ()
    assert drawings_of(replace(output, drawing=None)) == ()


def test_a_row_that_is_not_finite_is_beyond_the_limit(report: ReportData) -> None:
    output = output_of(report, "onnx-fp32")
    by_row = DrawnMaxima(width=2, largest=[0.5, None, 0.0], not_finite=[1])

    plot = plots_of(replace(output, drawing=replace(drawing_of(output), by_row=by_row)))["Largest difference by row"]

    assert "not finite at rows 2 to 3" in plot.words
    assert "1 of 3 bars are beyond the limit" in plot.words
    assert [path.kind for path in plot.paths if path.kind.startswith("column")] == ["column", "column beyond"]


@pytest.mark.parametrize("largest", [3e-9, 3e-7, 3e-5, 3e-3, 3e4, 3e9])
def test_labels_beside_the_axis_are_short_enough_for_the_room_there(report: ReportData, largest: float) -> None:
    output = output_of(report, "onnx-fp32")
    by_row = DrawnMaxima(width=2, largest=[largest, largest / 50], not_finite=[])

    plot = plots_of(replace(output, drawing=replace(drawing_of(output), by_row=by_row)))["Largest difference by row"]

    beside = [label.text for label in plot.labels if label.anchor == "end" and label.x < LEFT]
    assert len(beside) > 2
    assert max(map(len, beside)) <= 7


def test_limits_by_channel_are_both_drawn(report: ReportData) -> None:
    output = replace(output_of(report, "onnx-fp16"), limits={"max_abs_diff": LimitRange(lowest=0.01, highest=0.1)})

    plot = plots_of(output)["Differences by size"]

    assert [path.kind for path in plot.paths].count("limit") == 2
    assert "The limits are 0.01 to 0.1, by channel." in plot.words


def test_how_rows_were_answered_is_hidden_with_their_inputs(report: ReportData) -> None:
    output = output_of(report, "onnx-fp16")
    assert drawing_of(output).grid is not None

    withheld = hidden(output)

    assert drawing_of(withheld).grid is None
    assert "Actual against expected" not in plots_of(withheld)
    assert drawing_of(withheld).counts == drawing_of(output).counts


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 128), (-3.2, 4.7), (1e-9, 3e-9), (-1e30, 1e30), (1000, 1001)])
def test_ticks_are_few_and_within(low: float, high: float) -> None:
    steps = nice_steps(low, high, 6)

    assert 2 <= len(steps) <= 6
    assert all(low - 1e-9 * (high - low) <= step <= high + 1e-9 * (high - low) for step in steps)


def test_a_number_beyond_an_axis_lies_at_its_end() -> None:
    frame = Frame(height=100, x_low=0, x_high=10, y_low=0, y_high=1)

    assert frame.x(-5) == frame.x(0) < frame.x(10) == frame.x(11)
    assert frame.y(2) == frame.y(1) < frame.y(0) == frame.bottom


# Eight times as many are beyond what is drawn already; thirty times take half a minute.
@pytest.mark.parametrize("times", [8, pytest.param(30, marks=pytest.mark.thorough)])
def test_the_page_stays_below_2_mb_whatever_is_drawn(report: ReportData, times: int) -> None:
    size = 60
    cells = " ".join(f"{x},{y},7" for x in range(size) for y in range(1, size + 1))
    worst = DrawnGrid(low=-1, high=1, size=size, cells=cells, flips=cells)
    variants = []
    for item in report.variants:
        if item.result is not None and item.result.outputs:
            drawn = {
                name: replace(output, drawing=output.drawing and replace(output.drawing, grid=worst))
                for name, output in item.result.outputs.items()
            }
            variants.append(replace(item, result=replace(item.result, outputs=drawn)))
    many = tuple(replace(item, name=f"{item.name}@d={turn + 1}") for turn in range(times) for item in variants)
    large = replace(report, variants=many)

    html = render_html(large)
    page = read_page(html)

    assert len(html.encode()) <= 2_000_000
    assert len(render_markdown(large)) <= 60_000
    targets = {element.attributes["id"] for element in page.elements if "id" in element.attributes}
    links = {(element.attributes["href"] or "").removeprefix("#") for element in page.of("a")}
    assert len(links) == len(many)
    assert links <= targets
    words = [element.text for element in page.of("p")]
    left_out = sum(text.startswith("Left out here, since this page stays below 2 MB") for text in words)
    without = sum(text.endswith("Without drawings, since this page stays below 2 MB.") for text in words)
    assert without + left_out >= times
    # What passed is left out before what failed.
    assert (left_out == 0) == (times == 8)
