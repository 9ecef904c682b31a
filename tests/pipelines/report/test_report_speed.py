"""Speed in the report: the tables, and the chart of speed against difference with the tolerance in it."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.pipelines.report.conftest import add_artifact, measure, new_model_run
from tests.pipelines.report.test_report_html import read_page

from paritygate.codec import to_data
from paritygate.files import write_json_atomically
from paritygate.pipelines.benchmark.result import (
    SOURCE,
    BenchmarkPoint,
    BenchmarkResult,
    Speedup,
    VariantBenchmark,
)
from paritygate.pipelines.report.html_report import render_html
from paritygate.pipelines.report.markdown_report import render_markdown
from paritygate.pipelines.report.report_data import ReportData, collect_report
from paritygate.pipelines.report.tables.speed import footprint_table, speed_notes, speed_table
from paritygate.pipelines.report.tables.table import Table
from paritygate.pipelines.report.tradeoff.layout import HEIGHT, LINE, WIDTH, layout_of
from paritygate.pipelines.report.tradeoff.tradeoff import Tradeoff, TradeoffPoint, tradeoff_of
from paritygate.pipelines.run.workspace import RunFolder, open_run

_SOURCE_P50 = 30.0
_RELEASE = {"model": "sts", "version": 1, "alias": "prod", "variants": ["onnx-fp32"], "reason": "", "folder": "store"}


def _point(p50: float, size: int) -> BenchmarkPoint:
    ratio = _SOURCE_P50 / p50
    return BenchmarkPoint(
        batch_size=size, concurrency=1, rounds=5, calls=50,
        latency_ms={"p50": p50, "p95": p50 * 2, "p99": p50 * 3, "mean": p50, "min": p50, "max": p50 * 4},
        rows_per_s=12345.6, cpu_cores=1.5, speedup=Speedup(ratio=ratio, low=ratio * 0.9, high=ratio * 1.1),
        cost_per_million=0.25, round_medians_ms=(p50,) * 5,
    )  # fmt: skip


def _benchmark(run: RunFolder, medians: Mapping[str, float], *, price: float | None = None) -> BenchmarkResult:
    source = VariantBenchmark(
        name=SOURCE, runtime="onnxruntime", version="1.2", device="cpu", size_bytes=None, load_s=0.5,
        first_call_ms=40.0, peak_memory_bytes=300_000_000,
        points=tuple(replace(_point(_SOURCE_P50, size), speedup=None) for size in (8, 1)),
    )  # fmt: skip
    variants = [
        VariantBenchmark(
            name=name, artifact=run.artifact(name).digest, runtime="onnxruntime", version="1.2", device="cpu",
            size_bytes=2_500_000, load_s=0.25, first_call_ms=20.0, peak_memory_bytes=150_000_000,
            points=tuple(_point(p50, size) for size in (8, 1)),
        )
        for name, p50 in medians.items()
    ]  # fmt: skip
    machine = {"cpu": {"model": "a processor"}, "cores": 2}
    return BenchmarkResult(
        batch_sizes=(8, 1), concurrency=(1,), variants=(source, *variants), samples_digest="sha256:" + "0" * 64,
        price_per_hour=price, machine=machine,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a run that was benchmarked: onnx-fp32 passed, onnx-fp16 failed, onnx-tf32 was not made."""
    found = new_model_run(
        tmp_path_factory.mktemp("speed"),
        ["onnx-fp32", "onnx-fp16", "onnx-tf32"],
        tolerance={"onnx-fp32": {"max_abs_diff": 1e-5}},
    )
    add_artifact(found, "onnx-fp32", error=1e-6)
    add_artifact(found, "onnx-fp16", error=0.5)
    measure(found)
    result = _benchmark(found, {"onnx-fp32": 10.0, "onnx-fp16": 6.0}, price=3.0)
    write_json_atomically(found.benchmark_file, to_data(result))
    return found


@pytest.fixture(scope="module")
def report(run: RunFolder) -> ReportData:
    return collect_report(run, release={**_RELEASE, "manifest": "sha256:" + "0" * 64})


def _rows(table: Table) -> list[dict[str, str]]:
    titles = [column.title for column in table.columns]
    return [dict(zip(titles, [cell.text for cell in row], strict=True)) for row in table.rows]


def _read(report: ReportData) -> BenchmarkResult:
    assert report.benchmark is not None
    return report.benchmark


def _tradeoff(report: ReportData) -> Tradeoff:
    return tradeoff_of(report, _read(report))


def test_the_source_comes_first_and_then_the_variants_at_each_batch_size(report: ReportData) -> None:
    rows = _rows(speed_table(report, _read(report)))

    assert [(row["variant"], row["batch size"]) for row in rows] == [
        ("source", "8"), ("source", "1"), ("onnx-fp32", "8"), ("onnx-fp32", "1"), ("onnx-fp16", "8"),
        ("onnx-fp16", "1"), ("onnx-tf32", "-"),
    ]  # fmt: skip
    assert rows[2] == {
        "variant": "onnx-fp32", "batch size": "8", "concurrency": "1", "p50 ms": "10", "p95 ms": "20", "p99 ms": "30",
        "calls": "50", "rows per s": "12,346", "speed-up": "3x", "95 % interval": "2.7 to 3.3", "busy cores": "1.5",
        "cost per million rows": "0.25",
    }  # fmt: skip
    assert (rows[0]["speed-up"], rows[0]["95 % interval"]) == ("1x", "-")


def test_what_was_not_measured_is_said_in_every_cell_and_why_below(report: ReportData) -> None:
    benchmark = _read(report)
    row = next(row for row in _rows(speed_table(report, benchmark)) if row["variant"] == "onnx-tf32")
    footprint = next(row for row in _rows(footprint_table(report, benchmark)) if row["variant"] == "onnx-tf32")

    assert set(list(row.values())[3:]) == {"not measured"}
    assert {footprint[title] for title in ("load s", "first call ms", "peak memory", "ran on")} == {"not measured"}
    assert "onnx-tf32: not measured: the benchmark is without it" in speed_notes(report, benchmark)


def test_loading_memory_and_size_have_a_table(report: ReportData) -> None:
    rows = _rows(footprint_table(report, _read(report)))

    assert rows[0] == {
        "variant": "source", "load s": "0.5", "first call ms": "40", "peak memory": "300 MB",
        "size of files": "not known", "ran on": "onnxruntime 1.2, cpu",
    }  # fmt: skip
    assert rows[1]["size of files"] == "2.5 MB"


def test_without_a_price_there_is_no_cost(report: ReportData) -> None:
    without = replace(_read(report), price_per_hour=None)

    assert "cost per million rows" not in _rows(speed_table(report, without))[0]


def test_a_benchmark_of_another_file_is_not_shown(report: ReportData) -> None:
    benchmark = _read(report)
    changed = replace(
        benchmark,
        variants=tuple(
            replace(item, artifact="sha256:" + "1" * 64) if item.name == "onnx-fp32" else item
            for item in benchmark.variants
        ),
    )
    stale = replace(report, benchmark=changed)

    row = next(row for row in _rows(speed_table(stale, changed)) if row["variant"] == "onnx-fp32")
    assert row["p50 ms"] == "not measured"
    why = "it was made again after the benchmark, which measured a different file"
    assert f"onnx-fp32: not measured: {why}" in speed_notes(stale, changed)
    assert [point.name for point in _tradeoff(stale).points] == ["onnx-fp16"]
    assert f"onnx-fp32: its speed was not measured ({why})." in _tradeoff(stale).left_out


def test_the_chart_holds_what_was_compared_and_benchmarked_and_says_what_it_leaves_out(report: ReportData) -> None:
    found = _tradeoff(report)

    assert [(point.name, point.verdict, point.mark) for point in found.points] == [
        ("onnx-fp32", "pass", "released"),
        ("onnx-fp16", "fail", ""),
    ]
    assert found.points[0].share < 1 < found.points[1].share
    assert "onnx-tf32: its difference was not measured." in found.left_out


def test_the_emulated_rows_are_left_out_and_that_is_said(report: ReportData) -> None:
    variants = [replace(item, emulated=item.result if item.name == "onnx-fp16" else None) for item in report.variants]

    left_out = _tradeoff(replace(report, variants=tuple(variants))).left_out

    assert "The emulated row of onnx-fp16: the device is absent, so its speed there is unknown." in left_out


def test_the_chart_in_words_gives_verdict_difference_and_speed(report: ReportData) -> None:
    first, second = _tradeoff(report).words

    assert re.fullmatch(
        r"onnx-fp32: pass, difference (< 1|\d+) % of the nearest limit, 3x \(2\.7 to 3\.3\) the source, released\.",
        first,
    )
    assert re.fullmatch(
        r"onnx-fp16: fail, difference \d+.* the nearest limit, 5x \(4\.5 to 5\.5\) the source\.", second
    )


@pytest.fixture(scope="module")
def svg(report: ReportData) -> ET.Element:
    found = re.search(r'<svg class="tradeoff".*?</svg>', render_html(report), flags=re.DOTALL)
    assert found is not None
    return ET.fromstring(found[0])  # noqa: S314 - made here


def test_the_drawing_is_one_picture_with_a_text_alternative(svg: ET.Element, report: ReportData) -> None:
    assert svg.attrib["role"] == "img"
    for words in _tradeoff(report).words:
        assert words in svg.attrib["aria-label"]
    inner = [name for element in list(svg.iter())[1:] for name in element.attrib]
    assert not [name for name in inner if name == "role" or name.startswith("aria-")]


def test_the_drawing_loads_and_executes_nothing_and_has_no_colours_but_the_pages(svg: ET.Element) -> None:
    assert {element.tag for element in svg.iter()} <= {"svg", "circle", "line", "path", "rect", "text"}
    for element in svg.iter():
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            assert name not in {"href", "style", "fill", "stroke"}
            assert "url(" not in value


def test_each_variant_is_labelled_and_its_verdict_is_told_by_shape_and_symbol(svg: ET.Element) -> None:
    texts = [element.text for element in svg.iter("text")]

    assert {"\N{CHECK MARK} onnx-fp32, released", "\N{BALLOT X} onnx-fp16", "tolerance", "source"} <= set(texts)
    shapes = {element.attrib["class"]: element.tag for element in svg.iter() if "mark " in element.get("class", "")}
    assert shapes == {"mark pass": "circle", "mark fail": "path"}
    assert [element.tag for element in svg.iter() if element.get("class") == "ring"] == ["circle"]


def test_the_page_holds_the_drawing_and_stays_sound(report: ReportData) -> None:
    html = render_html(report)

    page = read_page(html)
    drawings = [item for item in page.of("svg") if item.attributes.get("class") == "tradeoff"]
    assert len(drawings) == 1
    assert "Speed" in [item.text for item in page.of("h2")]
    captions = [item.text for item in page.of("caption")]
    assert captions[2:4] == ["Latency, throughput and speed-up", "Loading, memory and size"]
    assert "<script" not in html
    assert not re.search(r"(?:src|href)=\"(?!#)", html)
    assert any("the ring is what was released" in item.text for item in page.of("figcaption"))


def test_what_was_released_its_speed_and_its_share_of_the_limit_stand_in_one_sentence(report: ReportData) -> None:
    (released,) = re.findall(r'<p class="released">([^<]*)</p>', render_html(report))

    assert re.fullmatch(
        r"Released as sts 1 \(prod\): onnx-fp32, 3x as fast as the source, "
        r"its difference at (&lt; 1|\d+) % of the nearest limit\.",
        released,
    )


def test_without_a_benchmark_the_report_says_that_speed_was_not_measured(passing_run: RunFolder) -> None:
    plain = collect_report(passing_run)

    assert "Speed was not measured." in [item.text for item in read_page(render_html(plain)).of("p")]
    assert "## Speed\n\nSpeed was not measured.\n" in render_markdown(plain)
    assert any(command.startswith("convert-and-validate benchmark --run ") for _, command in plain.commands)


def test_the_markdown_report_has_the_same_numbers_and_the_chart_in_words(report: ReportData) -> None:
    text = render_markdown(report)

    assert "| variant | batch size | concurrency | p50 ms |" in text
    assert "| onnx-fp32 (released) | 8 | 1 | 10 | 20 | 30 | 50 | 12,346 | 3x | 2.7 to 3.3 | 1.5 | 0.25 |" in text
    assert "- onnx-fp32: pass, difference " in text
    assert "<svg" not in text


def test_a_damaged_benchmark_is_not_reported_as_no_benchmark(run: RunFolder, tmp_path: Path) -> None:
    from paritygate.errors import InputFileError

    shutil.copytree(run.folder, tmp_path / "run")
    (tmp_path / "run/benchmark.json").write_text(json.dumps({"variants": 1}), encoding="utf-8")

    with pytest.raises(InputFileError, match=r"benchmark\.json is corrupt"):
        collect_report(open_run(tmp_path / "run"))


def _variant(name: str = "onnx-fp32", *, share: float = 0.1, ratio: float = 2.0) -> TradeoffPoint:
    speedup = Speedup(ratio=ratio, low=ratio * 0.9, high=ratio * 1.1)
    return TradeoffPoint(name=name, verdict="pass", share=share, speedup=speedup)


_SHARES = st.one_of(st.just(0.0), st.just(math.inf), st.floats(1e-12, 1e12))
_POINTS = st.lists(
    st.builds(_variant, st.sampled_from(["onnx-fp32", "openvino-int8"]), share=_SHARES, ratio=st.floats(0.01, 100)),
    min_size=1,
    max_size=8,
)


@given(points=_POINTS)
@settings(max_examples=25, deadline=None)
def test_a_variant_is_right_of_the_tolerance_exactly_where_its_difference_is_above_the_limit(
    points: list[TradeoffPoint],
) -> None:
    layout = layout_of(points)

    for mark in layout.marks:
        # A rounding of the position may put the limit itself a hair beside the line.
        if abs(mark.x - layout.tolerance) > 1e-6:
            assert (mark.x > layout.tolerance) == (mark.point.share > 1)
        assert 0 <= mark.x <= WIDTH
        assert 0 <= mark.high <= mark.y <= mark.low <= HEIGHT
        if abs(mark.y - layout.source) > 1e-6:
            assert (mark.y < layout.source) == (mark.point.speedup.ratio > 1)


@given(points=_POINTS)
@settings(max_examples=25, deadline=None)
def test_axes_have_ticks_that_are_apart(points: list[TradeoffPoint]) -> None:
    layout = layout_of(points)

    assert len(layout.x_ticks) >= 2
    assert len(layout.y_ticks) >= 2
    positions = sorted(position for position, _ in layout.x_ticks)
    assert min(after - before for before, after in itertools.pairwise(positions)) >= 40
    assert len({f"{position:.2f}" for position, _ in layout.y_ticks}) == len(layout.y_ticks)


def test_no_difference_at_all_has_a_place_of_its_own_left_of_every_other() -> None:
    layout = layout_of([_variant(share=0.0), _variant(share=1e-9), _variant(share=1e-3)])

    exact, tiny, small = (mark.x for mark in layout.marks)
    assert exact < layout.slots[0] < tiny < small < layout.tolerance
    assert (exact, "exactly 0") in layout.x_ticks
    assert layout.x_ticks[1][1] == "\N{LESS-THAN OR EQUAL TO} 0.0001 %"


def test_a_difference_that_is_not_finite_has_a_place_right_of_every_other() -> None:
    layout = layout_of([_variant(share=math.inf), _variant(share=1e9)])

    not_finite, huge = (mark.x for mark in layout.marks)
    assert layout.tolerance < huge < layout.slots[-1] < not_finite
    assert [words for _, words in layout.x_ticks][-2:] == ["\N{GREATER-THAN OR EQUAL TO} 10,000 times", "not finite"]


@given(points=_POINTS.flatmap(lambda few: st.sampled_from([few, few * 4])))
@settings(max_examples=25, deadline=None)
def test_labels_stand_below_each_other_beside_the_plot_in_the_order_of_their_points(
    points: list[TradeoffPoint],
) -> None:
    layout = layout_of(points)

    assert len(layout.labels) == len(points) + 1
    assert {(label.at_x, label.at_y) for label in layout.labels} == {
        *((mark.x, mark.y) for mark in layout.marks),
        (WIDTH, layout.source),
    }
    assert layout.labels_left > WIDTH
    for above, below in itertools.pairwise(layout.labels):
        assert above.at_y <= below.at_y
        assert below.y - above.y >= LINE - 1e-6
    assert layout.labels[0].y >= LINE / 2 - 1e-6
    assert layout.labels[-1].y <= layout.bottom - LINE / 2 + 1e-6


def test_labels_that_have_room_stand_at_the_height_of_their_points() -> None:
    layout = layout_of([_variant(ratio=2.0), _variant(ratio=6.0)])

    assert all(label.y == label.at_y for label in layout.labels)
