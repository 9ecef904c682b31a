"""`benchmark` and the stage within `run`: when speed is measured, what is printed, and what is refused."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.conftest import make_desk
from tests.processes import wait_until

from paritygate.pipelines.benchmark.result import SOURCE
from paritygate.pipelines.spec.benchmark_plan import is_benchmark_wanted, plan_of
from paritygate.pipelines.spec.loading import load_spec

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

QUICK = ("--rounds", "2", "--seconds", "0.01")
QUICK_PART = {"rounds": 2, "seconds": 0.01}


@pytest.fixture(scope="module")
def called(finished: Desk) -> Called:
    """Return what the command said of the finished run."""
    folder = str(finished.run_folder)
    return finished.json("benchmark", "--run", folder, *QUICK, "--batch-size", "4", "--price-per-hour", "0.2", "-v")


def test_what_is_printed_unasked_fits_a_screen(finished: Desk) -> None:
    sizes = ("--batch-size", "4", "--batch-size", "1", "--concurrency", "1", "--concurrency", "2")

    called = finished.call("benchmark", "--run", str(finished.run_folder), *QUICK, *sizes, "--price-per-hour", "0.2")

    assert called.code == 0, str(called)
    title, head, *rows = called.out.splitlines()
    assert title == "tiny: speed beside its source"
    assert re.split(r" {2,}", head.strip()) == [
        "speed-up", "variant", "batch", "instances", "p50 ms", "cost/million", "95 % interval",
    ]  # fmt: skip
    points = [tuple(row.split()[1:4]) for row in rows[:8]]
    assert points == list(itertools.product((SOURCE, "onnx-fp32"), ("4", "1"), ("1", "2")))
    assert all(float(row.split()[5]) > 0 for row in rows[:8])
    assert max(map(len, called.out.splitlines())) <= 80


def test_the_table_has_a_row_a_variant(called: Called) -> None:
    assert called.code == 0, str(called)
    tables = called.out.partition("Loading, memory and size")
    assert "Latency, throughput and speed-up" in tables[0]
    for table, name in itertools.product((tables[0], tables[2]), (SOURCE, "onnx-fp32")):
        assert sum(line.split("  ")[0] == name for line in table.splitlines()) == 1


def test_the_report_has_the_speed_from_then_on(called: Called, finished: Desk) -> None:
    assert called.code == 0, str(called)
    for name in ("report.md", "report.html"):
        assert "Speed" in (finished.run_folder / name).read_text(encoding="utf-8")


def test_progress_says_what_is_done(called: Called) -> None:
    assert re.search(r"^tiny: measured the speed of 1 of 1 variant in [\d.]+ s$", called.err, re.MULTILINE)


def test_options_stand_in_for_the_spec(called: Called) -> None:
    points = [point for variant in called.data["variants"] for point in variant["points"]]

    assert [point["batch_size"] for point in points] == [4, 4]
    assert called.data["exit_code"] == 0
    assert called.data["price_per_hour"] == 0.2
    note = "a release is chosen at batch size 1, concurrency 1, the spec's first, and that was not measured"
    assert note in called.data["notes"]
    assert f"note: {note}" in called.out
    assert all(point["cost_per_million"] > 0 for point in points)


def test_json_on_standard_output_is_alone_there(finished: Desk) -> None:
    called = finished.call("benchmark", "--run", str(finished.run_folder), *QUICK, "--quiet", "--json", "-")

    assert called.code == 0
    assert called.out.startswith("{")
    assert "speed beside its source" not in called.out
    # All that may be said besides is what a busy machine does to the figures.
    assert all(line.startswith(("note: ", "  ")) for line in called.err.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "benchmark needs --run DIR"),
        (("--run", "nowhere"), "nowhere is not a run folder"),
        (("--rounds", "1"), "1 is not in the range x>=2"),
        (("--batch-size", "0"), "0 is not in the range x>=1"),
        (("--seconds", "0"), "0.0 is not in the range x>0"),
    ],
)
def test_what_cannot_be_measured_is_refused(desk: Desk, arguments: tuple[str, ...], message: str) -> None:
    called = desk.call("benchmark", *arguments)

    assert called.code == 2
    assert message in called.err


@pytest.mark.parametrize("command", ["run", "export", "record", "validate", "compare", "benchmark"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_time_limit_that_is_no_time_is_wrong_usage(desk: Desk, command: str, value: str) -> None:
    called = desk.call(command, "--time-limit", value)

    assert called.code == 2
    assert f"'{value}' is not a finite number." in called.err


def _spec(desk: Desk, **parts: object) -> str:
    model = {
        "name": "tiny",
        "source": "model.onnx",
        "rename": {"output_0": "logits"},
        "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
        "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 3]}},
        "dims": {"batch": {"min": 1, "opt": 8, "max": 64}},
    }
    return str(desk.folder / desk.spec("with-dims.yaml", model=model, **parts))


def test_a_batch_size_outside_of_the_dims_is_refused_before_anything_is_done(desk: Desk) -> None:
    called = desk.call("run", "--verbose", _spec(desk, benchmark={"batch_sizes": [1, 65]}))

    assert called.code == 2
    assert "batch size 65 of the benchmark is outside of model.dims.batch (1 to 64)" in called.err
    assert "hint: name sizes within it" in called.err
    assert desk.runs == []


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"rounds": 1}, "benchmark.rounds"),
        ({"seconds": 0}, "benchmark.seconds"),
        ({"seconds": float("inf")}, "benchmark.seconds"),
        ({"concurrency": []}, "benchmark.concurrency"),
        ({"batch_sizes": [0]}, "benchmark.batch_sizes.0"),
        ({"price_per_hour": -1}, "benchmark.price_per_hour"),
        ({"batch_size": [1]}, "did you mean 'batch_sizes'"),
    ],
)
def test_a_wrong_value_in_the_spec_is_said_where_it_stands(desk: Desk, part: dict[str, Any], message: str) -> None:
    called = desk.call("run", "--verbose", desk.spec(benchmark=part))

    assert called.code == 2
    assert message in called.err


@pytest.mark.parametrize(
    ("parts", "is_wanted"),
    [
        ({}, False),
        ({"benchmark": {}}, True),
        ({"promote": {"prefer": "fastest"}}, True),
        ({"promote": {"prefer": "smallest"}}, False),
        ({"promote": {"prefer": ["onnx-fp32"]}}, False),
        ({"promote": {"limits": {"latency_p95_ms": 20}}}, True),
        ({"promote": {"limits": {"size_mb": 20}}}, False),
    ],
)
def test_speed_is_measured_where_the_spec_asks_or_its_choice_needs_it(
    desk: Desk, parts: dict[str, Any], *, is_wanted: bool
) -> None:
    resolved = load_spec(str(desk.folder / desk.spec(**parts)))

    assert is_benchmark_wanted(resolved) is is_wanted
    assert is_benchmark_wanted(resolved, ["latency_p95_ms"])


def test_without_a_word_one_row_and_the_best_batch_are_measured(desk: Desk) -> None:
    with_dims = plan_of(load_spec(_spec(desk)))

    assert with_dims.points == ((1, 1), (8, 1))
    assert (with_dims.rounds, with_dims.seconds, with_dims.price_per_hour) == (7, 0.25, None)
    assert plan_of(load_spec(str(desk.folder / "spec.yaml"))).points == ((1, 1),)


def test_a_time_without_end_is_refused(finished: Desk) -> None:
    called = finished.call("benchmark", "--run", str(finished.run_folder), "--seconds", "inf")

    assert called.code == 2
    assert "'inf' is not a finite number." in called.err


def test_what_stands_twice_is_measured_once(desk: Desk) -> None:
    plan = plan_of(load_spec(_spec(desk, benchmark={"batch_sizes": [8, 1, 8], "concurrency": [2, 2]})))

    assert plan.points == ((8, 2), (1, 2))


@pytest.fixture(scope="module")
def run_with_section(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, Called]:
    """Return a desk whose spec asks for a benchmark, and what its run said."""
    desk = make_desk(tmp_path_factory.mktemp("benchmarked"))
    return desk, desk.json("run", desk.spec(benchmark=QUICK_PART), "--verbose")


def test_run_measures_speed_and_shows_it(run_with_section: tuple[Desk, Called]) -> None:
    desk, called = run_with_section

    assert called.code == 0, str(called)
    assert "Latency, throughput and speed-up" in called.out
    (entry,) = called.data["runs"]
    assert [item["name"] for item in entry["benchmark"]["variants"]] == [SOURCE, "onnx-fp32"]
    assert (desk.run_folder / "benchmark.json").is_file()


def test_run_measures_nothing_where_it_is_told_not_to(desk: Desk) -> None:
    called = desk.json("run", desk.spec(benchmark=QUICK_PART), "--no-benchmark", "--no-promote", "--verbose")

    assert called.code == 0
    assert called.data["runs"][0]["benchmark"] is None
    assert not (desk.run_folder / "benchmark.json").exists()
    assert "Latency, throughput and speed-up" not in called.out


def _command_line(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().decode(errors="replace")
    return ""


def _workers(folder: Path) -> list[int]:
    """Return the workers of a benchmark; the command itself names the folder alone."""
    return [
        int(place.name) for place in Path("/proc").glob("[0-9]*") if f"{folder}/jobs/benchmark-" in _command_line(place)
    ]


def test_ctrl_c_leaves_no_worker_and_no_half_result(finished: Desk, tmp_path: Path, tool: list[str]) -> None:
    folder = finished.copy(tmp_path / "copied").run_folder
    (folder / "benchmark.json").unlink(missing_ok=True)
    process = subprocess.Popen(
        [*tool, "benchmark", "--run", str(folder), "--rounds", "1000000"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        wait_until(lambda: len(_workers(folder)) >= 2)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(timeout=600) == 130
    finally:
        process.kill()
        process.wait()
    assert "interrupted: nothing was published in part" in rest
    assert "Traceback" not in rest
    wait_until(lambda: _workers(folder) == [])
    assert list(folder.glob("benchmark.json*")) == []
