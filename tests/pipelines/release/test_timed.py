"""Whether a latency is worse than that of a release, on recorded timings: what cannot be trusted shows nothing."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from msgspec.structs import replace

from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkPoint, BenchmarkResult, Speedup, VariantBenchmark
from paritygate.pipelines.release.timed import Timed, timed, why_not_comparable, why_not_trusted
from paritygate.pipelines.run.evidence import EvidenceEntry
from paritygate.pipelines.run.stage import Stage

_LOAD = (8, 1)
_ENTRY = EvidenceEntry(
    variant="onnx-fp32", artifact="digest", verdict="error", exit_code=5, evidence="none", reason="not compared here",
    stage=Stage(name="compare onnx-fp32", reads={}, rules="rules"),
)  # fmt: skip


def _point(*rounds_ms: float, rows_per_s: float = 1000.0, ratio: float | None = None) -> BenchmarkPoint:
    p50 = statistics.median(rounds_ms)
    return BenchmarkPoint(
        batch_size=8, concurrency=1, rounds=len(rounds_ms), calls=50, rows_per_s=rows_per_s, cpu_cores=1.0,
        latency_ms=dict.fromkeys(("p50", "p95", "p99", "mean", "min", "max"), p50), round_medians_ms=rounds_ms,
        speedup=None if ratio is None else Speedup(ratio=ratio, low=ratio, high=ratio),
    )  # fmt: skip


def _benchmark(point: BenchmarkPoint, **machine: Any) -> BenchmarkResult:  # noqa: ANN401 - any fact
    variants = (("onnx-fp32", point), (SOURCE, _point(10.0, 10.0)))
    return BenchmarkResult(
        batch_sizes=(8,), concurrency=(1,), samples_digest="digest",
        variants=tuple(
            VariantBenchmark(name=name, artifact="digest", device="cpu", points=(each,)) for name, each in variants
        ),
        machine={"cores": 2, **machine},
    )  # fmt: skip


def _timed(point: BenchmarkPoint, **machine: Any) -> Timed:  # noqa: ANN401 - any fact
    found = timed(_ENTRY, _benchmark(point, **machine), _LOAD)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("rounds_ms", "is_told"),
    [
        # Every round is beyond 12 ms, or the median is within it: that shows.
        ((13.0, 30.0, 20.0), True),
        ((11.0, 30.0, 11.5), True),
        # The median is beyond it and some round is not: other work may be why.
        ((11.0, 30.0, 20.0), False),
    ],
)
def test_a_latency_is_beyond_what_is_allowed_where_every_round_is(
    rounds_ms: tuple[float, ...], *, is_told: bool
) -> None:
    now, was = _timed(_point(*rounds_ms)), _timed(_point(10.0, 10.0))

    assert why_not_comparable(now, was) == ""
    assert (why_not_trusted(now, was, 12.0) == "") is is_told


@pytest.mark.parametrize(
    ("others_cores", "rows_per_s", "is_trusted"),
    [
        (None, 1000.0, True),
        (0.1, 1000.0, True),
        (1.5, 1000.0, False),
        # By its median 5 times as fast as the source, by its throughput as fast as it.
        (1.5, 200.0, False),
    ],
)
def test_other_work_then_leaves_everything_open_and_other_work_now_only_what_is_beyond_the_allowed(
    others_cores: float | None, rows_per_s: float, *, is_trusted: bool
) -> None:
    noisy = _timed(_point(20.0, 20.0, rows_per_s=rows_per_s, ratio=5.0), others_cores=others_cores)
    calm = _timed(_point(20.0, 20.0))

    assert (why_not_trusted(noisy, calm, 12.0) == "") is is_trusted
    assert why_not_trusted(noisy, calm, 24.0) == ""
    assert (why_not_trusted(calm, noisy, 24.0) == "") is is_trusted


def test_what_was_not_measured_alike_is_not_comparable() -> None:
    calm = _timed(_point(10.0, 10.0))
    elsewhere = _timed(_point(10.0, 10.0), cores=64)

    assert timed(replace(_ENTRY, artifact="another digest"), _benchmark(_point(10.0, 10.0)), _LOAD) is None
    assert all(why_not_comparable(*sides) for sides in ((None, calm), (calm, None), (calm, elsewhere)))
    assert why_not_comparable(calm, replace(calm, point=None))
