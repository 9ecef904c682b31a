"""Releasing the fastest or smallest that passed, within limits; and `choose`, which says so and releases nothing."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.conftest import changed_entry, make_desk

from paritygate.codec import to_data
from paritygate.files import read_json, write_json_atomically
from paritygate.pipelines.benchmark.result import (
    SOURCE,
    BenchmarkPoint,
    BenchmarkResult,
    Speedup,
    VariantBenchmark,
)
from paritygate.pipelines.run.workspace import new_run
from paritygate.pipelines.run_spec import RunOptions, run_spec
from paritygate.pipelines.spec.loading import load_spec

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

    from paritygate.pipelines.run.workspace import RunFolder

_SOURCE_P50 = 12.0


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk with a run that measured its two variants itself and released one. Not to be changed."""
    desk = make_desk(tmp_path_factory.mktemp("released"))
    desk.spec(
        targets=["onnx-fp32", "onnx-fp16"],
        promote={"prefer": "fastest", "limits": {"latency_p95_ms": 10_000}},
        benchmark={"rounds": 2, "seconds": 0.01, "batch_sizes": [8]},
    )
    called = desk.call("run", "spec.yaml", "--verbose")
    assert called.code == 0, str(called)
    (desk.folder / "said.txt").write_text(called.out, encoding="utf-8")
    return desk


@pytest.fixture
def run(released: Desk, tmp_path: Path) -> Desk:
    """Return a desk with a copy of that run, neither benchmarked nor released, of a spec that prefers nothing."""
    desk = released.copy(tmp_path)
    (desk.run_folder / "benchmark.json").unlink()
    shutil.rmtree(desk.folder / "artifacts/repository")
    _prefer(desk, prefer=None, limits={})
    return desk


def _require(desk: Desk, *names: str) -> None:
    """Change what the run's spec requires."""
    path = desk.run_folder / "spec.json"
    data = read_json(path)
    data["spec"]["required"] = list(names)
    write_json_atomically(path, data)


def _point(p50: float, spread: float = 0.0) -> BenchmarkPoint:
    """Return what was measured in five rounds, every other of them slower or faster by `spread`, as a share."""
    ratio = _SOURCE_P50 / p50
    rounds = tuple(p50 * factor for factor in (1 - spread, 1 + spread, 1.0, 1 - spread, 1 + spread))
    latency = {"p50": p50, "p95": p50 * 2, "p99": p50 * 3, "mean": p50, "min": p50, "max": p50 * 4}
    return BenchmarkPoint(
        batch_size=8, concurrency=1, rounds=5, calls=50, latency_ms=latency, rows_per_s=8000 / p50, cpu_cores=1.0,
        speedup=Speedup(ratio=ratio, low=ratio * 0.95, high=ratio * 1.05), round_medians_ms=rounds,
    )  # fmt: skip


def _measure(desk: Desk, medians: dict[str, float], *, spread: float = 0.0, **artifacts: str) -> None:
    """Write the benchmark that the stage would, with median latencies of our own; onnx-fp16 varies by `spread`."""
    _write_benchmark(desk.run_folder, medians, spread=spread, **artifacts)


def _write_benchmark(folder: Path, medians: dict[str, float], *, spread: float, **artifacts: str) -> None:
    evidence = read_json(folder / "evidence.json")
    digests = {entry["variant"]: entry["artifact"] for entry in evidence["variants"]}
    source = VariantBenchmark(
        name=SOURCE, artifact=artifacts.get("source", evidence["reference"]["model"]["digest"]), runtime="onnxruntime",
        version="1", device="cpu", size_bytes=400,
        points=(replace(_point(_SOURCE_P50), speedup=None),),
    )  # fmt: skip
    variants = [
        VariantBenchmark(
            name=name, artifact=artifacts.get(name.replace("-", "_"), digests[name]), runtime="onnxruntime",
            version="1", device="cpu", size_bytes=300,
            points=(_point(p50, spread if name == "onnx-fp16" else 0.0),),
        )
        for name, p50 in medians.items()
    ]  # fmt: skip
    result = BenchmarkResult(
        batch_sizes=(8,), concurrency=(1,), variants=(source, *variants), samples_digest="sha256:" + "0" * 64,
        machine=evidence["machine"],
    )  # fmt: skip
    write_json_atomically(folder / "benchmark.json", to_data(result))


def _prefer(desk: Desk, **promote: object) -> None:
    path = desk.run_folder / "spec.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["spec"]["promote"] |= promote
    path.write_text(json.dumps(data), encoding="utf-8")


def _call(desk: Desk, command: str, *options: str) -> Called:
    return desk.json(command, "--run", str(desk.run_folder), *options)


@pytest.mark.parametrize("fastest", ["onnx-fp32", "onnx-fp16"])
def test_the_fastest_that_passed_is_released_and_the_line_the_log_and_the_manifest_say_why(
    run: Desk, fastest: str
) -> None:
    _prefer(run, prefer="fastest")
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 8.0} | {fastest: 4.0})

    called = _call(run, "promote", "--verbose")

    because = "fastest: 3x the source (2.85-3.15), p50 4 ms, p95 8 ms at batch size 8"
    assert called.code == 0, str(called)
    assert f"released tiny version 1, alias prod: {fastest}, because {because}\n" in called.out
    assert (called.data["variants"], called.data["reason"]) == ([fastest], because)
    folder = run.folder / "artifacts/repository"
    manifest = read_json(folder / "store/tiny/1/manifest.json")
    assert manifest["reason"] == read_json(folder / "log/tiny/000001.json")["reason"] == because
    choice = manifest["choice"]
    assert (choice["prefer"], choice["chosen"], choice["limits"]) == ("fastest", [fastest], {})
    assert [item["figures"]["latency_p50_ms"] for item in choice["candidates"]] == [
        4.0 if fastest == "onnx-fp32" else 8.0,
        4.0 if fastest == "onnx-fp16" else 8.0,
    ]


def test_of_two_that_tie_the_one_that_differs_less_is_released_and_the_line_and_the_manifest_say_so(run: Desk) -> None:
    _prefer(run, prefer="fastest")
    _measure(run, {"onnx-fp32": 4.1, "onnx-fp16": 4.0})

    called = _call(run, "promote", "--verbose")

    because = (
        "among the fastest: 2.93x the source (2.78-3.07), p50 4.1 ms, p95 8.2 ms at batch size 8; "
        "ties with onnx-fp16 (ratio 0.976-0.976); released because its difference is the smaller"
    )
    assert called.code == 0, str(called)
    assert f"released tiny version 1, alias prod: onnx-fp32, because {because}\n" in called.out
    manifest = read_json(run.folder / "artifacts/repository/store/tiny/1/manifest.json")
    assert manifest["reason"] == because
    assert manifest["choice"]["by_speed"]["ties"] == ["onnx-fp32"]


def test_where_the_rounds_do_not_tell_which_is_the_fastest_the_most_accurate_is_released_and_choose_ends_in_3(
    run: Desk,
) -> None:
    _prefer(run, prefer="fastest")
    _measure(run, {"onnx-fp32": 4.0, "onnx-fp16": 3.0}, spread=0.6)

    chosen, promoted = _call(run, "choose"), _call(run, "promote")

    assert (chosen.code, chosen.data["exit_code"], chosen.data["chosen"]) == (3, 3, ["onnx-fp32"])
    by_speed = chosen.data["by_speed"]
    assert (by_speed["fastest"], by_speed["undecided"]) == ("onnx-fp16", ["onnx-fp32"])
    assert "--rounds 20" in chosen.err
    assert (promoted.code, promoted.data["variants"]) == (0, ["onnx-fp32"])
    assert promoted.data["choice"]["by_speed"] == by_speed
    assert promoted.data["reason"] == chosen.data["reason"] != ""


def test_a_run_that_cannot_tell_which_is_the_fastest_releases_the_most_accurate_and_ends_in_0(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.onnx()
    desk.samples()
    desk.spec(
        # The less accurate one comes first, and it is the faster one as well.
        targets=["onnx-fp16", "onnx-fp32"],
        promote={"prefer": "fastest"},
        benchmark={"rounds": 2, "seconds": 0.01, "batch_sizes": [8]},
    )

    def recorded(run: RunFolder, *_: object, **__: object) -> None:
        _write_benchmark(run.folder, {"onnx-fp32": 4.0, "onnx-fp16": 3.0}, spread=0.6)

    monkeypatch.setattr("paritygate.pipelines.run.benchmark.benchmark_stage", recorded)
    resolved = load_spec(str(desk.folder / "spec.yaml"))
    folder = new_run(resolved, root=desk.folder / "artifacts")

    outcome = run_spec(folder, RunOptions(time_limit_s=600, root=desk.folder / "artifacts"), lambda *_: None)

    assert (outcome.exit_code, outcome.not_released, outcome.version) == (0, "", 1)
    assert outcome.release is not None
    assert outcome.release.variants == ("onnx-fp32",)
    assert outcome.release.choice["by_speed"]["undecided"] == ["onnx-fp32"]


def test_what_was_measured_is_kept_with_the_release_byte_for_byte(run: Desk) -> None:
    _prefer(run, prefer="fastest")
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})

    assert _call(run, "promote").code == 0

    kept = run.folder / "artifacts/repository/store/tiny/1/benchmark.json"
    assert kept.read_bytes() == (run.run_folder / "benchmark.json").read_bytes()
    assert run.call("verify", "tiny").code == 0


def test_a_benchmark_of_an_older_file_does_not_make_it_the_fastest(run: Desk) -> None:
    _prefer(run, prefer="fastest")
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 0.1}, onnx_fp16="sha256:" + "1" * 64)

    called = _call(run, "promote")

    assert called.data["variants"] == ["onnx-fp32"]
    assert "onnx-fp16: passed, but its speed was not measured (another file was benchmarked)" in called.data["reason"]


def test_a_variant_that_failed_is_not_the_fastest(run: Desk) -> None:
    _prefer(run, prefer="fastest")
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 0.1})
    evidence = run.evidence()
    evidence["variants"][1] = changed_entry(evidence["variants"][1], verdict="fail")
    write_json_atomically(run.run_folder / "evidence.json", evidence)
    _require(run, "onnx-fp32")

    assert _call(run, "promote").data["variants"] == ["onnx-fp32"]


def test_without_a_benchmark_there_is_no_fastest_and_the_source_is_no_way_out(run: Desk) -> None:
    _prefer(run, prefer="fastest")

    called = _call(run, "promote")

    assert called.code == 5
    assert "onnx-fp32 and onnx-fp16: passed, but its speed was not measured (no benchmark was made)" in called.err
    assert "hint: convert-and-validate benchmark --run" in called.err
    assert run.releases == []


def test_the_smallest_is_told_by_the_files_themselves(run: Desk) -> None:
    _prefer(run, prefer="smallest")
    sizes = {
        name: sum(path.stat().st_size for path in (run.run_folder / name).glob("*.onnx"))
        for name in ("onnx-fp32", "onnx-fp16")
    }

    assert _call(run, "promote").data["variants"] == [min(sizes, key=lambda name: sizes[name])]


def test_a_constraint_stands_above_the_limit_of_the_spec_and_beside_the_others(run: Desk) -> None:
    _prefer(run, prefer="fastest", limits={"latency_p95_ms": 1.0, "size_mb": 1.0})
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})

    assert _call(run, "choose", "--verbose").code == 1
    called = _call(run, "promote", "--constraint", "latency_p95_ms=8")

    assert called.data["variants"] == ["onnx-fp16"]
    assert called.data["choice"]["limits"] == {"latency_p95_ms": 8.0, "size_mb": 1.0}
    assert called.data["reason"].endswith(
        "within latency_p95_ms <= 8, size_mb <= 1; left out: onnx-fp32: passed, but latency_p95_ms 16 > 8"
    )


def test_a_source_that_breaks_the_limits_too_is_not_released_in_place_of_what_does(run: Desk) -> None:
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})

    called = _call(run, "promote", "--constraint", "latency_p95_ms=5")

    assert called.code == 5
    assert (
        "nothing to release: no variant fits for cpu within latency_p95_ms <= 5 (onnx-fp32: passed, "
        "but latency_p95_ms 16 > 5, onnx-fp16: passed, but latency_p95_ms 8 > 5); the source itself: latency_p95_ms "
        "24 > 5"
    ) in called.err
    assert run.releases == []


def test_a_source_within_the_limits_is_released_where_no_variant_passed(run: Desk) -> None:
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})
    evidence = run.evidence()
    evidence["variants"] = [changed_entry(entry, verdict="fail") for entry in evidence["variants"]]
    write_json_atomically(run.run_folder / "evidence.json", evidence)
    _require(run)

    called = _call(run, "promote", "--constraint", "latency_p95_ms=30")

    assert called.data["variants"] == ["source"]
    assert "the source itself: within the limits" in called.data["reason"]


def test_where_nothing_is_within_the_limits_and_no_fallback_is_wanted_nothing_is_released(run: Desk) -> None:
    _prefer(run, fallback="none")
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})

    called = _call(run, "promote", "--constraint", "latency_p95_ms=5")

    assert called.code == 5
    assert "nothing to release: no variant fits for cpu within latency_p95_ms <= 5 " in called.err
    assert run.releases == []


@pytest.mark.parametrize("command", ["promote", "choose"])
def test_a_constraint_that_is_none_is_wrong_usage(run: Desk, command: str) -> None:
    called = _call(run, command, "--constraint", "p95=20")

    assert called.code == 2
    assert "--constraint 'p95=20': 'p95' is not known (allowed names: latency_p50_ms, " in called.err
    assert "hint: write for example --constraint latency_p95_ms=20" in called.err


def test_a_constraint_of_run_is_checked_before_any_work(run: Desk) -> None:
    called = run.call("run", "--verbose", "spec.yaml", "--constraint", "latency_p95_ms=fast")

    assert called.code == 2
    assert "'fast' is not a number" in called.err
    assert len(run.runs) == 1


@pytest.mark.parametrize("command", ["promote", "choose"])
@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"schema_version": 1, "variants": [{}]}'])
def test_a_damaged_benchmark_decides_nothing(run: Desk, command: str, text: str) -> None:
    (run.run_folder / "benchmark.json").write_text(text, encoding="utf-8")

    called = _call(run, command)

    assert called.code == 2, str(called)
    assert "benchmark.json is corrupt" in called.err
    assert f"hint: convert-and-validate benchmark --run {run.run_from_here}" in called.err
    assert run.releases == []


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("p50", 0),
        ("p50", -5.0),
        ("p95", "fast"),
        ("p99", None),
        ("p50", float("nan")),
        ("p50", True),
        ("batch_sizes", []),
        ("batch_sizes", [0]),
        ("concurrency", "1"),
        ("machine", None),
        ("load_s", -1),
        ("rows_per_s", "many"),
        ("speedup", {"ratio": 0, "low": 0, "high": 0}),
    ],
)
def test_a_benchmark_of_what_cannot_have_been_measured_decides_nothing(run: Desk, part: str, value: object) -> None:
    _prefer(run, prefer="fastest")
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})
    path = run.run_folder / "benchmark.json"
    data = read_json(path)
    variant = data["variants"][1]
    places = {"p50": "latency", "p95": "latency", "p99": "latency", "load_s": "variant"}
    holders = {"latency": variant["points"][0]["latency_ms"], "variant": variant, "point": variant["points"][0]}
    holder = data if part in data else holders[places.get(part, "point")]
    holder[part] = value
    path.write_text(json.dumps(data), encoding="utf-8")

    called = _call(run, "promote")

    assert called.code == 2, str(called)
    assert "benchmark.json is corrupt: " in called.err
    # Of what is not JSON the place is not known.
    assert ("NaN is not a finite number" if isinstance(value, float) and math.isnan(value) else part) in called.err
    assert run.releases == []


def test_a_variant_whose_file_was_changed_is_not_recommended(run: Desk) -> None:
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})
    with (run.run_folder / "onnx-fp16/model.onnx").open("ab") as file:
        file.write(b"\0")

    called = _call(run, "choose", "--verbose")

    assert called.code == 5
    assert "model.onnx was changed" in called.err
    assert "choice" not in called.out


def test_a_cost_is_limited_only_where_there_is_a_price(run: Desk) -> None:
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})
    limit = ("--constraint", "cost_per_million=5")

    chosen, ran = _call(run, "choose", "--verbose", *limit), run.call("run", "--verbose", "spec.yaml", *limit)

    assert chosen.code == 5
    assert (
        f"hint: to measure speed: convert-and-validate benchmark --run {run.run_folder} --price-per-hour" in chosen.err
    )
    assert ran.code == 2
    assert "cost_per_million has a limit, but benchmark.price_per_hour is missing" in ran.err
    assert len(run.runs) == 1


def test_a_benchmark_at_other_batch_sizes_than_those_of_the_spec_decides_nothing(run: Desk) -> None:
    _prefer(run, prefer="fastest")
    path = run.run_folder / "spec.json"
    data = read_json(path)
    data["spec"]["benchmark"]["batch_sizes"] = [4]
    path.write_text(json.dumps(data), encoding="utf-8")
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})

    called = _call(run, "promote")

    assert called.code == 5
    assert "its speed was not measured (it was not benchmarked at batch size 4)" in called.err
    assert f"hint: convert-and-validate benchmark --run {run.run_from_here}" in called.err
    assert run.releases == []


def test_the_size_of_a_source_that_is_a_file_needs_no_benchmark_and_is_that_of_the_recorded_one(run: Desk) -> None:
    size = (run.folder / "model.onnx").stat().st_size / 1e6

    assert _call(run, "choose", "--verbose").data["source"]["figures"]["size_mb"] == pytest.approx(size)
    run.onnx(width=300)
    assert _call(run, "choose", "--verbose").data["source"]["figures"]["size_mb"] is None
    (run.folder / "model.onnx").unlink()
    assert _call(run, "choose", "--verbose").data["source"]["figures"]["size_mb"] is None


def test_choose_says_the_fastest_within_the_limits_and_why_and_releases_nothing(run: Desk) -> None:
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})

    called = _call(run, "choose", "--verbose", "--constraint", "latency_p95_ms=20")

    assert called.code == 0, str(called)
    assert (
        "choice: onnx-fp16, because fastest: 3x the source (2.85-3.15), p50 4 ms, p95 8 ms at batch size 8; within"
        in called.out
    )
    assert (called.data["chosen"], called.data["exit_code"]) == (["onnx-fp16"], 0)
    assert called.data["limits"] == {"latency_p95_ms": 20.0}
    cells = [re.split(r" {2,}", line) for line in called.out.splitlines() if line.startswith("onnx-fp")]
    assert [row[0] for row in cells] == ["onnx-fp32", "onnx-fp16"]
    assert [(row[1], row[2], row[5], row[6], row[9]) for row in cells] == [
        ("pass", "verified", "8", "16", "yes"),
        ("pass", "verified", "4", "8", "yes"),
    ]
    assert run.releases == []


def test_choose_prints_a_screen_with_what_each_variant_broke_behind_it(run: Desk) -> None:
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})

    lines = _call(run, "choose", "--constraint", "latency_p95_ms=10").out.splitlines()

    assert max(map(len, lines)) <= 80
    assert re.split(r" {2,}", lines[1]) == [
        "verdict", "variant", "tolerance used", "p50 ms", "p95 ms", "speed-up", "size MB"
    ]  # fmt: skip
    at = next(at for at, line in enumerate(lines) if line.startswith("pass     onnx-fp32 "))
    assert re.split(r" {2,}", lines[at])[3:6] == ["8", "16", "1.5x"]
    assert lines[at + 1].strip() == "not within its limits: latency_p95_ms 16 > 10"
    assert lines[at + 2].startswith("pass     onnx-fp16 ")
    assert lines[at + 3].startswith("choice: onnx-fp16, because ")


def test_choose_ends_with_1_where_nothing_fits_and_says_what_each_variant_broke(run: Desk) -> None:
    _measure(run, {"onnx-fp32": 8.0, "onnx-fp16": 4.0})

    called = _call(run, "choose", "--verbose", "--constraint", "latency_p95_ms=5")

    assert (called.code, called.data["exit_code"], called.data["chosen"]) == (1, 1, [])
    assert "no choice: no variant fits for cpu within latency_p95_ms <= 5 (onnx-fp32: " in called.out
    assert [item["broken"] for item in called.data["candidates"]] == [
        ["latency_p95_ms 16 > 5"],
        ["latency_p95_ms 8 > 5"],
    ]


def test_choose_ends_with_5_where_speed_was_not_measured_and_says_how_to_measure_it(run: Desk) -> None:
    called = _call(run, "choose", "--verbose", "--constraint", "latency_p95_ms=20")

    assert called.code == 5
    assert "latency_p95_ms was not measured (no benchmark was made)" in called.out
    assert f"hint: to measure speed: convert-and-validate benchmark --run {run.run_folder}" in called.err


def test_what_was_not_measured_is_beyond_no_limit_and_is_said_once(run: Desk) -> None:
    called = _call(run, "choose", "--constraint", "latency_p95_ms=20")

    said = " ".join(called.out.split())
    assert "not within its limits" not in said
    assert said.count("was not measured") == 1
    assert "(onnx-fp32 and onnx-fp16: passed, but latency_p95_ms was not measured (no benchmark was made))" in said


def test_a_choice_by_size_needs_no_speed(run: Desk) -> None:
    called = _call(run, "choose", "--prefer", "smallest")

    assert called.code == 0, str(called)
    assert "hint" not in called.err


def test_choose_takes_the_preference_of_the_command_line_before_that_of_the_spec(run: Desk) -> None:
    _prefer(run, prefer="smallest")
    _measure(run, {"onnx-fp32": 4.0, "onnx-fp16": 8.0})

    assert _call(run, "choose", "--verbose").data["prefer"] == "smallest"
    assert _call(run, "choose", "--verbose", "--prefer", "fastest").data["chosen"] == ["onnx-fp32"]


def test_choose_of_a_device_that_nothing_was_verified_on_is_refused(run: Desk) -> None:
    called = _call(run, "choose", "--verbose", "--for", "cuda:sm90")

    assert called.code == 2
    assert "nothing in this run was verified on 'cuda:sm90' (verified on: cpu)" in called.err


def test_choose_needs_a_run(run: Desk) -> None:
    assert run.call("choose").code == 2


def test_a_run_measures_speed_by_itself_and_releases_the_fastest(released: Desk) -> None:
    benchmark = BenchmarkResult.read(read_json(released.run_folder / "benchmark.json"))
    medians = {
        name: point.latency_ms["p50"]
        for name in ("onnx-fp32", "onnx-fp16")
        if (found := benchmark.of(name)) is not None
        and (point := found.at(benchmark.batch_sizes[0], benchmark.concurrency[0])) is not None
    }
    folder = released.folder / "artifacts/repository/store/tiny/1"
    manifest = read_json(folder / "manifest.json")
    by_speed = manifest["choice"]["by_speed"]

    assert len(medians) == 2
    assert by_speed["fastest"] == min(medians, key=lambda name: medians[name])
    (chosen,) = [item["name"] for item in manifest["variants"]]
    # Which of two small models is the faster one, and whether that can be told, is for the machine to say; FP32 is the
    # one that differs less.
    assert chosen == ("onnx-fp32" if by_speed["ties"] else by_speed["fastest"])
    assert manifest["choice"]["chosen"] == [chosen]
    said = (released.folder / "said.txt").read_text(encoding="utf-8")
    assert f"released tiny version 1, alias prod: {chosen}, because {manifest['reason']}" in said
    # The report that the release keeps is written before there is a release; that of the run after.
    reports = {"chosen": folder / "report.html", "released": released.run_folder / "report.html"}
    for mark, path in reports.items():
        assert f'{chosen} <span class="soft">({mark})</span>' in path.read_text(encoding="utf-8")


def test_a_choice_by_speed_that_shall_not_be_measured_is_refused_before_any_work(desk: Desk) -> None:
    desk.onnx()
    desk.samples()
    desk.spec(promote={"prefer": "fastest"})

    called = desk.call("run", "--verbose", "spec.yaml", "--no-benchmark")

    assert called.code == 2
    assert "its release is chosen by speed, which --no-benchmark does not measure" in called.err
    assert not (desk.folder / "artifacts").exists()
