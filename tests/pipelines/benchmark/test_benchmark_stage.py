"""The benchmark stage: what is measured and written, and workers that crash, hang or refuse."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from msgspec.structs import replace
from tests.pipelines.conftest import make_desk

from paritygate.artifact import file_digests
from paritygate.codec import to_data
from paritygate.errors import BackendError
from paritygate.machine import available_processors
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.benchmark.load import LoadMark, load_note, mark_load, others_cores
from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkResult, Speedup
from paritygate.pipelines.benchmark.rounds import BenchmarkSubject, kind_of
from paritygate.pipelines.benchmark.trust import Contradiction, contradictions
from paritygate.pipelines.benchmark.worker import Worker, WorkerJob
from paritygate.pipelines.compare.models import artifact_model
from paritygate.pipelines.report.report_data import collect_report
from paritygate.pipelines.report.terminal.benchmark import print_benchmark
from paritygate.pipelines.report.terminal.printing import Shown
from paritygate.pipelines.run.benchmark import _contradiction_note, benchmark_stage, exit_code_of_benchmark
from paritygate.pipelines.run.workspace import RunFolder, open_run
from paritygate.pipelines.spec.benchmark_plan import BenchmarkPlan
from paritygate.precision import Variant
from paritygate.validate.reference.recording import Recording

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

    from paritygate.artifact import Artifact


PLAN = BenchmarkPlan(batch_sizes=(1, 8), concurrency=(1,), rounds=2, seconds=0.01, price_per_hour=0.2)


def benchmark(run: RunFolder, plan: BenchmarkPlan = PLAN) -> BenchmarkResult:
    """Return the benchmark of a run, quick rather than exact."""
    return benchmark_stage(run, plan, time_limit_s=600, progress=lambda *_: None)


def processes_of(folder: Path) -> list[int]:
    """Return the processes that still work for a run."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            line = (place / "cmdline").read_bytes().decode(errors="replace")
        except (OSError, ValueError):
            continue
        if place.name.isdigit() and str(folder) in line:
            found.append(int(place.name))
    return found


@pytest.fixture(scope="module")
def measured(finished: Desk) -> tuple[RunFolder, BenchmarkResult]:
    """Return the finished run and its benchmark, at a concurrency of 2 as well."""
    run = open_run(finished.run_folder)
    return run, benchmark(run, replace(PLAN, concurrency=(1, 2)))


@pytest.fixture
def copied(finished: Desk, tmp_path: Path) -> Desk:
    """Return a copy of the finished run that may be changed."""
    return finished.copy(tmp_path / "copied")


def test_the_source_comes_first_and_every_variant_is_measured_at_every_point(
    measured: tuple[RunFolder, BenchmarkResult],
) -> None:
    _, result = measured

    assert [item.name for item in result.variants] == [SOURCE, "onnx-fp32"]
    for item in result.variants:
        assert [(point.batch_size, point.concurrency) for point in item.points] == [(1, 1), (1, 2), (8, 1), (8, 2)]
        assert item.error == ""
        assert item.runtime == "onnxruntime"
        for point in item.points:
            latency = point.latency_ms
            assert 0 < latency["min"] <= latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
            assert point.rounds == len(point.round_medians_ms) == 2
            assert latency["p50"] == np.median(point.round_medians_ms)
            assert point.calls >= 2 * 3 * point.concurrency
            assert point.rows_per_s > 0
            assert point.cpu_cores > 0
            assert point.cost_per_million == pytest.approx(0.2 / 3600 / point.rows_per_s * 1e6)


def test_speed_ups_are_against_the_source_at_the_same_point(measured: tuple[RunFolder, BenchmarkResult]) -> None:
    _, result = measured
    source, variant = result.variants

    assert all(point.speedup is None for point in source.points)
    for ours, theirs in zip(variant.points, source.points, strict=True):
        assert ours.speedup is not None
        assert ours.speedup.ratio == pytest.approx(theirs.latency_ms["p50"] / ours.latency_ms["p50"])
        assert ours.speedup.low <= ours.speedup.ratio <= ours.speedup.high


@pytest.mark.thorough
def test_what_reading_the_samples_took_is_no_memory_of_the_model(desk: Desk) -> None:
    (desk.folder / "rows.py").write_text(
        "import numpy as np\n"
        "from paritygate.batch import Batch\n"
        "def rows():\n"
        "    large = np.ones(50_000_000)\n"
        "    x = (np.random.default_rng(0).standard_normal((120, 4)) * large[0]).astype(np.float32)\n"
        "    del large\n"
        "    yield Batch(inputs={'x': x}, ids=[str(row) for row in range(120)])\n",
        encoding="utf-8",
    )
    desk.onnx()
    desk.spec(samples={"source": "rows:rows"}, benchmark={"rounds": 2, "seconds": 0.01})

    (run,) = desk.json("run", "spec.yaml", "--verbose", "--no-promote").data["runs"]

    for item in run["benchmark"]["variants"]:
        assert 30e6 < item["peak_memory_bytes"] < 400e6


def test_figures_of_the_whole_process_are_there(measured: tuple[RunFolder, BenchmarkResult]) -> None:
    run, result = measured
    source, variant = result.variants

    for item in result.variants:
        assert item.load_s is not None
        assert item.load_s > 0
        assert item.first_call_ms is not None
        assert item.first_call_ms > 0
        assert item.peak_memory_bytes is not None
        # More than Python and a runtime take at least; less than this process, whose peak is not inherited.
        assert 30e6 < item.peak_memory_bytes < 400e6
    assert source.size_bytes == run.resolved.source.path.stat().st_size
    assert variant.size_bytes == run.artifact("onnx-fp32").size_bytes
    assert result.machine["cores"] >= 1


def test_the_result_is_bound_to_the_artifact_and_read_back_as_it_was(
    measured: tuple[RunFolder, BenchmarkResult],
) -> None:
    run, result = measured
    variant = result.of("onnx-fp32")

    assert variant is not None
    assert variant.artifact == run.artifact("onnx-fp32").digest
    assert result.samples_digest.startswith("sha256:")
    assert run.benchmark() == result
    assert BenchmarkResult.read(json.loads(json.dumps(to_data(result), allow_nan=False))) == result


def test_what_others_kept_busy_is_what_is_left_of_the_whole() -> None:
    begin = LoadMark(wall_s=10.0, busy_s=100.0, own_s=5.0)
    end = LoadMark(wall_s=20.0, busy_s=118.0, own_s=14.0)

    assert others_cores(begin, end) == pytest.approx(0.9)
    assert others_cores(begin, replace(end, own_s=99.0)) == 0.0
    assert others_cores(None, end) is None
    assert load_note(0.1, 2) == load_note(None, 2) == ()
    assert load_note(0.9, 2)[0].startswith("other work kept 0.9 of 2 cores busy")


@pytest.mark.parametrize(
    ("others", "ratio", "is_found"), [(1.0, 30.0, True), (1.0, 3.0, False), (0.0, 30.0, False), (None, 30.0, False)]
)
def test_medians_and_throughput_that_disagree_beside_other_work_are_a_contradiction(
    measured: tuple[RunFolder, BenchmarkResult], others: float | None, ratio: float, *, is_found: bool
) -> None:
    _, result = measured
    source, variant = result.variants[:2]
    speedup = Speedup(ratio=ratio, low=17.0, high=34.0)
    slow = replace(source, points=(replace(source.points[0], rows_per_s=100.0),))
    fast = replace(variant, points=(replace(variant.points[0], rows_per_s=190.0, speedup=speedup),))
    noisy = replace(result, variants=(slow, fast), machine={**result.machine, "cores": 2, "others_cores": others})

    found = Contradiction(variant="onnx-fp32", point=(1, 1), by_median=30.0, by_throughput=1.9)
    assert contradictions(noisy) == ((found,) if is_found else ())
    assert len(_contradiction_note(noisy)) == is_found


def test_the_copy_of_a_pytorch_source_is_loaded_as_the_source_is_with_pytorch_imported_already() -> None:
    callable_ = ModelRef(text="net:model", folder=Path(), kind=SourceKind.CALLABLE)
    copy = cast("Artifact", SimpleNamespace(variant=Variant.parse("torch-fp32")))
    recorded = {"kind": "torch"}

    assert kind_of(BenchmarkSubject(name=SOURCE, model=callable_, recorded=recorded)) is SourceKind.TORCH
    assert kind_of(BenchmarkSubject(name="torch-fp32", model=callable_, artifact=copy)) is SourceKind.TORCH


@pytest.mark.parametrize("not_run_here", [(), ("onnx-fp32",)])
def test_that_what_is_not_run_here_has_no_speed_is_no_error(
    measured: tuple[RunFolder, BenchmarkResult], capsys: pytest.CaptureFixture[str], not_run_here: tuple[str, ...]
) -> None:
    run, result = measured
    source, variant = result.variants[:2]
    broken = replace(result, variants=(source, replace(variant, points=(), error="no such operator")))
    report = collect_report(run)
    variants = [
        replace(item, verdict="not run here") if item.name in not_run_here else item for item in report.variants
    ]

    print_benchmark(replace(report, benchmark=broken, variants=tuple(variants)), Shown())

    said = "error: benchmark of onnx-fp32: no such operator" in capsys.readouterr().err
    assert said is not bool(not_run_here)


@pytest.mark.thorough
def test_other_work_on_the_machine_is_said(copied: Desk) -> None:
    if mark_load() is None:
        pytest.skip("this system does not tell what others do")
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(available_processors())]
    try:
        result = benchmark(open_run(copied.run_folder))
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()

    assert result.machine["others_cores"] > 0.1 * available_processors()
    assert result.notes[0].startswith("other work kept ")


def test_no_worker_is_left_behind(measured: tuple[RunFolder, BenchmarkResult]) -> None:
    run, _ = measured

    assert processes_of(run.folder) == []


def _replace_model(run: RunFolder, model: Path) -> None:
    """Put another file in the place of the variant's, recorded as if it had been exported so."""
    artifact = run.artifact("onnx-fp32")
    shutil.copy(model, artifact.path)
    replace(artifact, files=file_digests(artifact.folder)).save()


def _fixed_batch_model(folder: Path, batch: int) -> Path:
    import onnx

    model = onnx.load(str(folder / "model.onnx"))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    model.graph.output[0].name = model.graph.node[0].output[0] = "logits"
    onnx.save(model, str(folder / "fixed.onnx"))
    return folder / "fixed.onnx"


def test_a_variant_that_refuses_a_batch_size_is_measured_at_the_others(copied: Desk) -> None:
    run = open_run(copied.run_folder)
    _replace_model(run, _fixed_batch_model(copied.folder, 8))

    source, variant = benchmark(run).variants

    assert [point.batch_size for point in source.points] == [1, 8]
    assert [point.batch_size for point in variant.points] == [8]
    assert variant.error.startswith("batch size 1, concurrency 1: ")
    assert "x: float32[1, 4]" in variant.error
    assert variant.first_call_ms is not None


def test_a_variant_that_was_changed_since_it_was_made_is_not_run(copied: Desk) -> None:
    run = open_run(copied.run_folder)
    path = run.artifact("onnx-fp32").path
    path.write_bytes(path.read_bytes() + b"\0")

    result = benchmark(run)

    source, variant = result.variants
    assert source.points
    assert "model.onnx was changed" in variant.error
    assert (variant.points, variant.load_s) == ((), None)
    assert exit_code_of_benchmark(run, result) == 5


def test_a_variant_that_validation_could_not_measure_is_not_run(copied: Desk) -> None:
    run = open_run(copied.run_folder)
    data = json.loads(run.evidence_file.read_text(encoding="utf-8"))
    data["variants"][0]["result"]["error"] = {"kind": "BackendError", "message": "it crashed", "hint": ""}
    run.evidence_file.write_text(json.dumps(data), encoding="utf-8")

    variant = benchmark(run).of("onnx-fp32")

    assert variant is not None
    assert variant.error == "validation could not measure it: it crashed"


_SAMPLES = """
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from paritygate.batch import Batch


def _rows(seed):
    x = np.random.default_rng(seed).standard_normal((120, 4)).astype(np.float32)
    yield Batch(inputs={"x": x}, ids=[str(row) for row in range(120)])


def _is_for(name):
    return f"benchmark-{name}/" in sys.argv[1]


def killed():
    if _is_for("onnx-fp32"):
        os.kill(os.getpid(), signal.SIGKILL)
    yield from _rows(0)


def killed_for_the_source():
    if _is_for("source"):
        os.kill(os.getpid(), signal.SIGKILL)
    yield from _rows(0)


def hanging():
    if _is_for("onnx-fp32"):
        Path(__file__).with_name("hangs").touch()
        time.sleep(600)
    yield from _rows(0)


def drawn():
    yield from _rows(None)
"""


@pytest.fixture
def with_samples(copied: Desk) -> Callable[[str], RunFolder]:
    """Return a function that has the finished run take its samples from the module above."""

    def change(name: str) -> RunFolder:
        copied.module("samples_that", _SAMPLES)
        file = copied.run_folder / "spec.json"
        data = json.loads(file.read_text(encoding="utf-8"))
        data["spec"]["samples"]["source"] = f"samples_that:{name}"
        file.write_text(json.dumps(data), encoding="utf-8")
        return open_run(copied.run_folder)

    return change


def test_a_worker_that_crashes_is_the_error_of_its_variant_alone(with_samples: Callable[[str], RunFolder]) -> None:
    run = with_samples("killed")

    source, variant = benchmark(run).variants

    assert source.points
    assert variant.error.startswith("the benchmark of onnx-fp32 was killed by SIGKILL")
    assert "while reading the samples" in variant.error
    assert variant.points == ()


def test_without_a_source_there_are_figures_and_no_speed_up(with_samples: Callable[[str], RunFolder]) -> None:
    run = with_samples("killed_for_the_source")

    result = benchmark(run)

    source, variant = result.variants
    assert "was killed by SIGKILL" in source.error
    assert [point.speedup for point in variant.points] == [None, None]
    assert exit_code_of_benchmark(run, result) == 5


def test_a_worker_that_hangs_is_stopped_at_the_time_limit(
    with_samples: Callable[[str], RunFolder], copied: Desk, time_is_over_once: Callable[[Path], None], tmp_path: Path
) -> None:
    run = with_samples("hanging")
    time_is_over_once(copied.folder / "hangs")
    worker = Worker(replace(_job(run, run.jobs("benchmark-onnx-fp32")), time_limit_s=600))
    try:
        with pytest.raises(BackendError, match=r"did not end within 600 s .* while reading the samples") as caught:
            worker.loaded()
    finally:
        worker.close()
    assert "--time-limit SECONDS" in caught.value.hint
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("line", ["garbage", "1", "[1]"])
def test_garbage_in_the_answers_of_a_worker_is_one_clear_error(
    copied: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str
) -> None:
    script = f"""
import json, os, sys, time
from pathlib import Path
os.write(int(sys.argv[4]), b"{line}\\n")
time.sleep(600)
"""
    monkeypatch.setattr("paritygate.pipelines.process.child._START", script)
    worker = Worker(_job(open_run(copied.run_folder), tmp_path / "job"))
    try:
        with pytest.raises(BackendError, match=r"failed: other code than paritygate wrote '.*' into its pipe"):
            worker.loaded()
    finally:
        worker.close()


@pytest.mark.parametrize("is_bigger", [False, True])
def test_a_source_that_is_not_what_was_recorded_is_not_what_variants_are_faster_than(
    copied: Desk, *, is_bigger: bool
) -> None:
    run = open_run(copied.run_folder)
    copied.onnx(**({"width": 300} if is_bigger else {"fill": 0.5}))

    result = benchmark(run)

    source, variant = result.variants
    assert source.error.startswith("the source differs from that of the recorded reference: model.onnx was changed")
    assert (source.points, source.artifact, source.size_bytes) == ((), None, None)
    assert [point.speedup for point in variant.points] == [None, None]
    assert exit_code_of_benchmark(run, result) == 5


def test_the_source_is_bound_to_the_recording_as_a_variant_is_to_its_artifact(
    measured: tuple[RunFolder, BenchmarkResult],
) -> None:
    run, result = measured

    assert result.variants[0].artifact == Recording.load(run.reference).model["digest"]


_TORCH = """
import torch
from blocks import FACTOR

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        torch.nn.init.constant_(self.linear.weight, 0.5)
        torch.nn.init.constant_(self.linear.bias, 0.5)

    def forward(self, x):
        return self.linear(x) * FACTOR

def net():
    return Net()
"""


@pytest.fixture(scope="module")
def torch_run(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk with a run of the module above. Not to be changed."""
    desk = make_desk(tmp_path_factory.mktemp("torch"))
    desk.module("blocks", "FACTOR = 2.0")
    desk.module("torch_net", _TORCH)
    spec = desk.module_spec("torch_net:net")
    assert desk.call("run", spec, "--no-promote", "--verbose").code == 0
    return desk


@pytest.mark.torch
@pytest.mark.parametrize(
    ("module", "text", "words"),
    [
        ("blocks", "FACTOR = 3.0", "blocks.py was changed"),
        pytest.param(
            *("torch_net", _TORCH.replace("weight, 0.5", "weight, 0.75"), "that differ from those recorded"),
            marks=pytest.mark.thorough,
        ),
        pytest.param("torch_net", _TORCH, "", marks=pytest.mark.thorough),
    ],
)
def test_code_that_is_not_what_was_recorded_is_noticed(
    torch_run: Desk, tmp_path: Path, module: str, text: str, words: str
) -> None:
    desk = torch_run.copy(tmp_path)
    desk.module(module, text)

    source, variant = benchmark(open_run(desk.run_folder), replace(PLAN, batch_sizes=(8,))).variants

    assert words in source.error
    assert bool(source.error) == bool(words) == (variant.points[0].speedup is None)


def test_rows_that_are_drawn_anew_are_no_common_ground(with_samples: Callable[[str], RunFolder]) -> None:
    source, variant = benchmark(with_samples("drawn")).variants

    assert source.points
    assert "different rows than before" in variant.error


def _job(run: RunFolder, folder: Path) -> WorkerJob:
    return WorkerJob(
        model=artifact_model(run.artifact("onnx-fp32")),
        kind=SourceKind.ONNX,
        samples=run.resolved.samples(),
        batch_sizes=(1,),
        device="cpu",
        folder=folder,
        time_limit_s=600,
    )


def test_a_worker_that_dies_between_its_turns_is_an_error(finished: Desk, tmp_path: Path) -> None:
    worker = Worker(_job(open_run(finished.run_folder), tmp_path / "worker"))
    try:
        worker.loaded()
        worker.take_turn((1, 1), start=0, cycle=3, seconds=0.001)
        os.kill(worker.child.process.pid, signal.SIGKILL)

        with pytest.raises(BackendError, match=r"was killed by SIGKILL.* while calling it with batch size 1"):
            worker.take_turn((1, 1), start=0, cycle=3, seconds=0.001)
    finally:
        worker.close()
