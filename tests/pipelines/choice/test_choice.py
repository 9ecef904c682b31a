"""Which variant is released: by evidence first, then limits, then speed or size; and what is said of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from paritygate.errors import UsageError
from paritygate.pipelines.benchmark.result import (
    SOURCE,
    BenchmarkPoint,
    BenchmarkResult,
    Speedup,
    VariantBenchmark,
)
from paritygate.pipelines.choice.choice import Choice, choose
from paritygate.pipelines.choice.options import ChoiceRules
from paritygate.pipelines.choice.tolerance_used import tolerance_used
from paritygate.pipelines.compare.result import ComparisonResult, OutputResult, SideResult
from paritygate.pipelines.report.terminal.choice import exit_code_of_choice
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry, ReferenceFacts, SamplesFacts
from paritygate.pipelines.run.stage import Stage
from paritygate.pipelines.spec.limits import CONSTRAINTS, broken_constraints, check_limits, parse_constraints

_SOURCE_P50 = 12.0
_MACHINE = {"cpu": {"model": "a processor"}, "cores": 4, "gpu": None}


def _point(
    p50: float, *, size: int = 8, instances: int = 1, spread: float = 0.05, rounds_ms: tuple[float, ...] = ()
) -> BenchmarkPoint:
    ratio = _SOURCE_P50 / p50
    return BenchmarkPoint(
        batch_size=size,
        concurrency=instances,
        rounds=5,
        calls=50,
        latency_ms={"p50": p50, "p95": p50 * 2, "p99": p50 * 3, "mean": p50, "min": p50, "max": p50 * 4},
        rows_per_s=8000 / p50,
        cpu_cores=1.0,
        speedup=Speedup(ratio=ratio, low=ratio * (1 - spread), high=ratio * (1 + spread)),
        round_medians_ms=rounds_ms or (p50,) * 5,
    )


def _speed(name: str, *points: BenchmarkPoint, **changes: Any) -> VariantBenchmark:  # noqa: ANN401 - any field
    found = VariantBenchmark(
        name=name, artifact=f"digest of {name}", runtime="onnxruntime", version="1", device="cpu",
        size_bytes=3_000_000, load_s=0.1, first_call_ms=30.0, peak_memory_bytes=200_000_000, points=points,
    )  # fmt: skip
    return replace(found, **changes)


def _benchmark(*variants: VariantBenchmark) -> BenchmarkResult:
    source = _speed(SOURCE, replace(_point(_SOURCE_P50), speedup=None))
    return BenchmarkResult(
        batch_sizes=(8, 1), concurrency=(1, 4), variants=(source, *variants), samples_digest="digest of samples",
        machine=_MACHINE,
    )  # fmt: skip


def _entry(
    name: str,
    *,
    verdict: str = "pass",
    evidence: str = "verified",
    device: str | None = "cpu",
    outputs: Mapping[str, OutputResult] | None = None,
) -> EvidenceEntry:
    result = ComparisonResult(
        verdict=verdict,
        exit_code=0,
        rows=100,
        precision="fp32",
        reference=SideResult(name="source", kind="onnx"),
        candidate=SideResult(name=name, kind="onnx", device=device),
        samples="samples.npz",
        outputs=dict(outputs or {}),
    )
    return EvidenceEntry(
        variant=name,
        artifact=f"digest of {name}",
        verdict=verdict,
        exit_code=0,
        evidence=evidence,
        stage=Stage(name=f"compare {name}", reads={}, rules="rules"),
        result=result,
    )


def _evidence(*entries: EvidenceEntry, emulated: tuple[EvidenceEntry, ...] = ()) -> Evidence:
    model = {"digest": "digest of source", "files": {}}
    return Evidence(
        paritygate="0.2.0",
        model="model",
        run="run",
        device="cpu",
        machine=_MACHINE,
        samples=SamplesFacts(digest="digest of samples", rows=100),
        reference=ReferenceFacts(model=model, digest="digest of outputs", runtime={}),
        variants=entries,
        emulated=emulated,
    )


def _chosen(choice: Choice) -> list[str]:
    return [candidate.name for candidate in choice.chosen]


def _rules(**parts: Any) -> ChoiceRules:  # noqa: ANN401 - any field
    return ChoiceRules(**{"devices": ("cpu",), "points": ((8, 1),), "prefer": "fastest", **parts})


_TWO = _evidence(_entry("onnx-fp32"), _entry("onnx-int8"))
_SIZES = {"onnx-fp32": 3_000_000, "onnx-int8": 1_000_000}


def test_the_fastest_is_the_one_with_the_lowest_median_at_the_first_batch_size_and_concurrency() -> None:
    # At batch size 1 and with four side by side it would be the other one.
    slow_elsewhere = (_point(5.0), _point(9.0, size=1), _point(9.0, instances=4))
    fast_elsewhere = (_point(6.0), _point(1.0, size=1), _point(1.0, instances=4))
    benchmark = _benchmark(_speed("onnx-fp32", *fast_elsewhere), _speed("onnx-int8", *slow_elsewhere))

    choice = choose(_TWO, benchmark, _SIZES, _rules())

    assert _chosen(choice) == ["onnx-int8"]
    assert choice.reason == "fastest: 2.4x the source (2.28-2.52), p50 5 ms, p95 10 ms at batch size 8"
    assert (choice.batch_size, choice.concurrency) == (8, 1)


@pytest.mark.parametrize("verdict", ["fail", "error", "inconclusive"])
def test_what_did_not_pass_is_not_chosen_however_fast_it_is(verdict: str) -> None:
    evidence = _evidence(_entry("onnx-fp32"), _entry("onnx-int8", verdict=verdict))
    benchmark = _benchmark(_speed("onnx-fp32", _point(6.0)), _speed("onnx-int8", _point(0.1)))

    choice = choose(evidence, benchmark, _SIZES, _rules())

    assert _chosen(choice) == ["onnx-fp32"]
    assert "onnx-int8" not in choice.reason


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"artifact": "digest of older bytes"}, "another file was benchmarked"),
        ({"artifact": None, "error": "it crashed"}, "it crashed"),
        ({"device": "cuda:sm90"}, "benchmarked on cuda:sm90 only"),
        ({"points": ()}, "it was not benchmarked at batch size 8"),
        ({"points": (), "error": "it hung"}, "it hung"),
    ],
)
def test_what_was_not_measured_of_these_bytes_on_this_device_is_not_the_fastest(
    changes: Mapping[str, Any], why: str
) -> None:
    benchmark = _benchmark(_speed("onnx-fp32", _point(6.0)), replace(_speed("onnx-int8", _point(0.1)), **dict(changes)))

    choice = choose(_TWO, benchmark, _SIZES, _rules())

    assert _chosen(choice) == ["onnx-fp32"]
    assert f"left out: onnx-int8: passed, but its speed was not measured ({why})" in choice.reason


def test_without_a_benchmark_nothing_is_the_fastest() -> None:
    choice = choose(_TWO, None, _SIZES, _rules())

    assert _chosen(choice) == []
    assert choice.reason == (
        "no variant fits for cpu (onnx-fp32 and onnx-int8: passed, but its speed was not measured (no benchmark was "
        "made))"
    )


def _differing(name: str, *differences: tuple[float | None, float | None]) -> EvidenceEntry:
    """Return the entry of a variant whose outputs have these largest differences and stds of the reference."""
    return _entry(
        name,
        outputs={
            f"output {number}": _output("float32", max_abs_diff=difference, reference_spread=std)
            for number, (difference, std) in enumerate(differences)
        },
    )


def _output(dtype: str, **figures: float | None) -> OutputResult:
    """Return the result of an output of which nothing else was measured."""
    needed = (field.name for field in fields(OutputResult) if field.required)
    return OutputResult(**{**dict.fromkeys(needed), "dtype": dtype, **figures})


# Two that were timed in the same seven rounds, the second slower by 1 %, with as much noise of its own.
_ROUNDS = (6.0, 6.1, 5.9, 6.0, 6.2, 5.8, 6.0)
_ALSO = (6.06, 6.0, 6.1, 6.06, 6.06, 6.2, 5.9)


def _two_ties() -> BenchmarkResult:
    return _benchmark(
        _speed("onnx-fp32", _point(6.06, rounds_ms=_ALSO)), _speed("onnx-int8", _point(6.0, rounds_ms=_ROUNDS))
    )


def test_of_those_that_tie_with_the_fastest_the_one_that_differs_least_is_chosen_and_the_reason_says_so() -> None:
    evidence = _evidence(_differing("onnx-fp32", (1e-6, 2.0)), _differing("onnx-int8", (1e-2, 2.0)))

    choice = choose(evidence, _two_ties(), _SIZES, _rules())

    assert _chosen(choice) == ["onnx-fp32"]
    assert re.fullmatch(
        r"among the fastest: 1\.98x the source \(1\.88-2\.08\), p50 6\.06 ms, p95 12\.1 ms at batch size 8; "
        r"ties with onnx-int8 \(ratio 0\.9\d*-1\.0\d*\); released because its difference is the smaller",
        choice.reason,
    )
    ratio = choice.to_json()["by_speed"]["ratios"]["onnx-fp32"]
    assert ratio["low"] <= 1 <= ratio["high"]
    assert ratio["ratio"] == pytest.approx(6.0 / 6.06)
    assert choice.to_json()["by_speed"] == {
        "fastest": "onnx-int8", "ties": ["onnx-fp32"], "undecided": [], "ratios": {"onnx-fp32": ratio},
    }  # fmt: skip
    assert [item["difference"] for item in choice.to_json()["candidates"]] == [5e-7, 5e-3]


def test_the_fastest_of_those_that_tie_is_chosen_where_it_differs_least() -> None:
    evidence = _evidence(_differing("onnx-fp32", (1e-2, 2.0)), _differing("onnx-int8", (1e-6, 2.0)))

    choice = choose(evidence, _two_ties(), _SIZES, _rules())

    assert _chosen(choice) == ["onnx-int8"]
    assert re.search(
        r"^fastest: 2x .*; ties with onnx-fp32 \(ratio .*\); released because its difference is the smaller$",
        choice.reason,
    )


def test_a_difference_is_told_by_the_output_whose_part_of_the_std_is_largest() -> None:
    # 0.5 and 0.001 of the std, against 0.01 and 0.02: in numbers, the first is the smaller one.
    first = _differing("onnx-fp32", (5e-4, 1e-3), (1e-3, 1.0))
    second = _differing("onnx-int8", (1e-5, 1e-3), (2e-2, 1.0))

    choice = choose(_evidence(first, second), _two_ties(), _SIZES, _rules())

    assert _chosen(choice) == ["onnx-int8"]
    assert [item.difference for item in choice.candidates] == [0.5, 0.02]


@pytest.mark.parametrize(
    ("outputs", "difference"),
    [
        ([(0.0, 0.0)], 0.0),
        ([(1e-3, None)], None),
        ([(1e-3, 0.0)], None),
        ([(1e-3, 1.0), (None, 1.0)], None),
        ([], None),
    ],
)
def test_a_difference_that_was_not_measured_is_not_small(
    outputs: list[tuple[float | None, float | None]], difference: float | None
) -> None:
    evidence = _evidence(_differing("onnx-fp32", (1e-2, 1.0)), _differing("onnx-int8", *outputs))

    choice = choose(evidence, _two_ties(), _SIZES, _rules())

    assert choice.candidates[1].difference == difference
    assert _chosen(choice) == ["onnx-int8" if difference == 0 else "onnx-fp32"]


def test_integers_are_equal_in_what_passed_and_labels_count_by_their_scores() -> None:
    scores = _output("float32", max_abs_diff=1e-3, reference_spread=1.0)
    label = _output("int64", mismatches=0, max_abs_diff=7.0, reference_spread=1.0)
    entry = _entry("onnx-fp32", outputs={"scores": scores, "label": label})

    choice = choose(_evidence(entry), None, _SIZES, _rules())

    assert choice.candidates[0].difference == 1e-3


@pytest.mark.parametrize("difference", [(1e-3, 1.0), (1e-3, None)])
def test_of_ties_whose_differences_are_equal_or_unknown_the_most_precise_is_chosen_and_not_the_fastest(
    difference: tuple[float, float | None],
) -> None:
    # In the spec the less precise one comes first, and it is the fastest as well.
    same = _evidence(_differing("onnx-int8", difference), _differing("onnx-fp32", difference))

    choice = choose(same, _two_ties(), _SIZES, _rules())

    assert choice.to_json()["by_speed"]["fastest"] == "onnx-int8"
    assert _chosen(choice) == ["onnx-fp32"]


@pytest.mark.parametrize("names", [("onnx-fp32", "openvino-fp32"), ("openvino-fp32", "onnx-fp32")])
def test_of_ties_that_are_equally_accurate_the_first_of_the_spec_is_chosen_whichever_is_the_faster(
    names: tuple[str, str],
) -> None:
    evidence = _evidence(*(_differing(name, (1e-3, 1.0)) for name in names))
    quick, slow = _point(6.0, rounds_ms=_ROUNDS), _point(6.06, rounds_ms=_ALSO)

    found = [
        _chosen(choose(evidence, _benchmark(_speed(names[0], one), _speed(names[1], other)), {}, _rules()))
        for one, other in ((quick, slow), (slow, quick))
    ]

    assert found == [[names[0]]] * 2


def test_of_three_that_tie_each_is_named_with_its_ratio_and_what_is_slower_is_not() -> None:
    evidence = _evidence(
        _differing("onnx-fp32", (1e-6, 1.0)),
        _differing("onnx-int8", (1e-2, 1.0)),
        _differing("onnx-fp16", (1e-3, 1.0)),
        _differing("onnx-tf32", (0.0, 1.0)),
    )
    benchmark = _two_ties()
    more = (
        _speed("onnx-fp16", _point(6.06, rounds_ms=_ALSO)),
        _speed("onnx-tf32", _point(8.0, rounds_ms=tuple(value * 8 / 6 for value in _ROUNDS))),
    )

    choice = choose(evidence, replace(benchmark, variants=(*benchmark.variants, *more)), _SIZES, _rules())

    assert _chosen(choice) == ["onnx-fp32"]
    assert re.search(
        r"; ties with onnx-int8 \(ratio [^)]*\), and so does onnx-fp16 \(ratio [^)]*\); released because its "
        r"difference is the smallest$",
        choice.reason,
    )
    assert "onnx-tf32" not in choice.reason
    assert choice.to_json()["by_speed"]["ties"] == ["onnx-fp32", "onnx-fp16"]


_WILD = (6.0, 0.1, 300.0, 5.0, 0.02, 9.0, 7.0)


def test_variants_whose_interval_spans_a_factor_of_2_tie_and_choose_alone_ends_in_3() -> None:
    benchmark = _benchmark(
        _speed("onnx-fp32", _point(6.0, rounds_ms=_WILD)), _speed("onnx-int8", _point(6.0, rounds_ms=_ROUNDS))
    )

    choice = choose(_TWO, benchmark, _SIZES, _rules())

    assert (_chosen(choice), choice.is_undecided, choice.is_open) == (["onnx-fp32"], True, False)
    assert exit_code_of_choice(choice) == 3
    command = "convert-and-validate benchmark --run DIR --rounds 28"
    assert choice.how_to_measure(Path("DIR"), has_price=False) == command
    assert choice.to_json()["by_speed"]["ties"] == choice.to_json()["by_speed"]["undecided"] == ["onnx-int8"]


def test_of_a_tie_that_cannot_be_told_the_most_accurate_is_chosen_whichever_has_the_lower_median() -> None:
    evidence = _evidence(_differing("onnx-int8", (1e-2, 1.0)), _differing("onnx-fp32", (1e-6, 1.0)))
    chosen = []
    for int8_ms, fp32_ms in ((5.0, 6.0), (6.0, 5.0)):
        wild = tuple(value * int8_ms / 6 for value in _WILD)
        benchmark = _benchmark(
            _speed("onnx-fp32", _point(fp32_ms)), _speed("onnx-int8", _point(int8_ms, rounds_ms=wild))
        )
        chosen.append(_chosen(choose(evidence, benchmark, _SIZES, _rules())))

    assert chosen == [["onnx-fp32"]] * 2


@pytest.mark.parametrize("rounds", [(6.0,), (6.0,) * 4])
def test_variants_that_were_not_timed_in_the_same_rounds_tie(rounds: tuple[float, ...]) -> None:
    benchmark = _benchmark(_speed("onnx-fp32", _point(6.0, rounds_ms=rounds)), _speed("onnx-int8", _point(5.0)))

    choice = choose(_TWO, benchmark, _SIZES, _rules())

    assert choice.is_undecided
    assert (choice.to_json()["by_speed"]["fastest"], _chosen(choice)) == ("onnx-int8", ["onnx-fp32"])


def _beside_other_work(*variants: VariantBenchmark, others_cores: float | None = 2.0) -> BenchmarkResult:
    return replace(_benchmark(*variants), machine={**_MACHINE, "others_cores": others_cores})


@pytest.mark.parametrize(
    ("rows_per_s", "others_cores", "chosen"),
    [
        # 4 times as fast as the source by its median, and as fast as it by its throughput.
        (8000 / 12, 2.0, "onnx-fp32"),
        # As noisy, and both figures agree.
        (8000 / 3, 2.0, "onnx-int8"),
        # The same contradiction follows from the rows where nothing else ran.
        (8000 / 12, 0.0, "onnx-int8"),
        (8000 / 12, None, "onnx-int8"),
    ],
)
def test_a_speed_that_its_own_note_does_not_trust_is_a_tie(
    rows_per_s: float, others_cores: float | None, chosen: str
) -> None:
    evidence = _evidence(_differing("onnx-fp32", (1e-6, 1.0)), _differing("onnx-int8", (1e-2, 1.0)))
    quick = _speed("onnx-int8", replace(_point(3.0), rows_per_s=rows_per_s))

    choice = choose(
        evidence, _beside_other_work(_speed("onnx-fp32", _point(9.0)), quick, others_cores=others_cores), {}, _rules()
    )

    assert _chosen(choice) == [chosen]
    assert choice.is_undecided is (chosen == "onnx-fp32")
    assert [bool(item["distrust"]) for item in choice.to_json()["candidates"]] == [False, chosen == "onnx-fp32"]


def test_two_variants_whose_medians_and_throughput_disagree_tie_though_neither_disagrees_with_the_source() -> None:
    evidence = _evidence(_differing("onnx-fp32", (1e-6, 1.0)), _differing("onnx-int8", (1e-2, 1.0)))
    # By medians the second is 2.5 times as fast as the first, by throughput 1.1 times; the source is between them.
    first = _speed("onnx-fp32", replace(_point(10.0), rows_per_s=8000 / 10 * 1.5))
    second = _speed("onnx-int8", replace(_point(4.0), rows_per_s=8000 / 4 / 1.5))

    choice = choose(evidence, _beside_other_work(first, second), {}, _rules())

    assert not any(item["distrust"] for item in choice.to_json()["candidates"])
    assert (_chosen(choice), choice.to_json()["by_speed"]["undecided"]) == (["onnx-fp32"], ["onnx-fp32"])


@pytest.mark.parametrize(("limit", "is_met"), [(100.0, True), (2.0, False)])
def test_a_limit_holds_for_a_speed_that_is_not_to_be_compared_because_other_work_makes_it_worse(
    limit: float, *, is_met: bool
) -> None:
    quick = _speed("onnx-int8", replace(_point(3.0), rows_per_s=8000 / 12))

    choice = choose(
        _evidence(_entry("onnx-int8")), _beside_other_work(quick), _SIZES, _rules(limits={"latency_p50_ms": limit})
    )

    assert choice.candidates[0].figures.distrust
    assert (_chosen(choice), choice.is_open) == (["onnx-int8"] if is_met else [], False)


def test_what_breaks_a_limit_or_did_not_pass_leaves_nothing_undecided() -> None:
    benchmark = _benchmark(_speed("onnx-fp32", _point(6.0)), _speed("onnx-int8", _point(6.0, rounds_ms=_WILD)))
    failed = _evidence(_entry("onnx-fp32"), _entry("onnx-int8", verdict="fail"))
    sizes = {"onnx-fp32": 1_000_000, "onnx-int8": 3_000_000}

    choices = (
        choose(failed, benchmark, _SIZES, _rules()),
        choose(_TWO, benchmark, sizes, _rules(limits={"size_mb": 2})),
    )

    assert [(_chosen(choice), choice.is_undecided) for choice in choices] == [(["onnx-fp32"], False)] * 2


def test_speed_leaves_nothing_undecided_where_nothing_is_chosen_by_it() -> None:
    benchmark = _benchmark(_speed("onnx-fp32", _point(6.0)), _speed("onnx-int8", _point(6.0, rounds_ms=_WILD)))

    for prefer in (None, "smallest", ("onnx-fp32",)):
        choice = choose(_TWO, benchmark, _SIZES, _rules(prefer=prefer))
        assert (bool(choice.chosen), choice.is_undecided, choice.to_json()["by_speed"]) == (True, False, None)


def test_what_is_half_as_fast_at_best_is_not_the_fastest_however_uncertain_it_is() -> None:
    slow = tuple(100 * value for value in (1.0, 5.0, 1.0, 9.0, 1.0, 5.0, 20.0))
    benchmark = _benchmark(
        _speed("onnx-fp32", _point(500.0, rounds_ms=slow)), _speed("onnx-int8", _point(6.0, rounds_ms=_ROUNDS))
    )

    assert _chosen(choose(_TWO, benchmark, _SIZES, _rules())) == ["onnx-int8"]


def test_of_equally_fast_variants_the_first_of_the_spec_is_chosen() -> None:
    benchmark = _benchmark(_speed("onnx-int8", _point(6.0)), _speed("onnx-fp32", _point(6.0)))

    assert _chosen(choose(_TWO, benchmark, _SIZES, _rules())) == ["onnx-fp32"]


def test_a_fastest_that_is_slower_than_the_source_is_said_to_be() -> None:
    choice = choose(_TWO, _benchmark(_speed("onnx-fp32", _point(24.0))), _SIZES, _rules())

    assert _chosen(choice) == ["onnx-fp32"]
    assert (
        "0.5x the source (0.475-0.525), p50 24 ms, p95 48 ms at batch size 8, slower than the source" in choice.reason
    )


def test_a_fastest_whose_interval_holds_1_is_not_told_apart_from_the_source() -> None:
    choice = choose(_TWO, _benchmark(_speed("onnx-fp32", _point(12.3))), _SIZES, _rules())

    assert "at batch size 8, not told apart from the source" in choice.reason
    assert "slower" not in choice.reason


def test_the_smallest_needs_no_benchmark_and_equal_sizes_keep_the_order_of_the_spec() -> None:
    choice = choose(_TWO, None, _SIZES, _rules(prefer="smallest"))

    assert _chosen(choice) == ["onnx-int8"]
    assert choice.reason == "smallest: 1 MB, before onnx-fp32 with 3 MB"
    same = dict.fromkeys(_SIZES, 7)
    assert _chosen(choose(_TWO, None, same, _rules(prefer="smallest"))) == ["onnx-fp32"]


def test_a_limit_on_size_has_nothing_to_do_with_a_benchmark_that_is_missing() -> None:
    choice = choose(_TWO, None, _SIZES, _rules(prefer=None, limits={"size_mb": 0.5}))

    assert "(onnx-fp32: passed, but size_mb 3 > 0.5, onnx-int8: passed, but size_mb 1 > 0.5)" in choice.reason


def test_a_megabyte_is_a_million_bytes() -> None:
    rules = _rules(prefer="smallest", limits={"size_mb": 1.0})

    assert _chosen(choose(_TWO, None, {"onnx-fp32": 1_000_001, "onnx-int8": 1_000_000}, rules)) == ["onnx-int8"]


@pytest.mark.parametrize(
    ("name", "kept", "cut"),
    [
        ("latency_p50_ms", 5.0, 4.99),
        ("latency_p95_ms", 10.0, 9.99),
        ("latency_p99_ms", 15.0, 14.9),
        ("first_call_ms", 30.0, 29.0),
        ("load_s", 0.1, 0.09),
        ("rows_per_s", 1600.0, 1601.0),
        ("size_mb", 3.0, 2.9),
        ("memory_mb", 200.0, 199.0),
        ("cost_per_million", 2.0, 1.9),
    ],
)
def test_a_limit_is_kept_at_the_limit_and_broken_beyond_it(name: str, kept: float, cut: float) -> None:
    evidence = _evidence(_entry("onnx-fp32"))
    point = replace(_point(5.0), cost_per_million=2.0)
    benchmark = _benchmark(_speed("onnx-fp32", point))

    assert _chosen(choose(evidence, benchmark, _SIZES, _rules(limits={name: kept}))) == ["onnx-fp32"]
    broken = choose(evidence, benchmark, _SIZES, _rules(limits={name: cut}))
    assert _chosen(broken) == []
    sign = "<" if name == "rows_per_s" else ">"
    assert f"(onnx-fp32: passed, but {name} " in broken.reason
    assert f" {sign} {cut:g})" in broken.reason


def test_every_limit_is_one_that_figures_can_be_held_against() -> None:
    choice = choose(_TWO, _benchmark(_speed("onnx-fp32", _point(5.0))), _SIZES, _rules())

    assert list(choice.candidates[0].figures.by_name) == list(CONSTRAINTS)


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("found", [None, math.nan, math.inf])
def test_what_was_not_measured_breaks_every_limit(name: str, found: float | None) -> None:
    assert broken_constraints({name: 1.0}, {name: found}) == (f"{name} was not measured",)


def test_where_nothing_is_within_the_limits_each_variant_and_the_source_are_named_with_what_they_broke() -> None:
    benchmark = _benchmark(_speed("onnx-fp32", _point(6.0)), _speed("onnx-int8", _point(5.0)))

    sizes = {**_SIZES, SOURCE: 3_000_000}
    choice = choose(_TWO, benchmark, sizes, _rules(limits={"latency_p95_ms": 9.0, "size_mb": 2.0}))

    assert choice.reason == (
        "no variant fits for cpu within latency_p95_ms <= 9, size_mb <= 2 (onnx-fp32: passed, but "
        "latency_p95_ms 12 > 9 and size_mb 3 > 2, onnx-int8: passed, but latency_p95_ms 10 > 9); the source itself: "
        "latency_p95_ms 24 > 9, size_mb 3 > 2"
    )


def test_a_source_that_is_within_the_limits_is_said_to_be() -> None:
    sizes = {SOURCE: 3_000_000}

    choice = choose(_evidence(_entry("onnx-fp32", verdict="fail")), None, sizes, _rules(limits={"size_mb": 3}))

    assert choice.reason.endswith("(onnx-fp32: fail); the source itself: within the limits")


def test_two_numbers_that_differ_do_not_read_as_one() -> None:
    assert broken_constraints({"latency_p95_ms": 20.0}, {"latency_p95_ms": 20.0004}) == ("latency_p95_ms 20.0004 > 20",)


def test_without_a_preference_all_that_passed_within_the_limits_are_chosen_and_the_others_named() -> None:
    benchmark = _benchmark(_speed("onnx-fp32", _point(6.0)), _speed("onnx-int8", _point(5.0)))

    assert _chosen(choose(_TWO, benchmark, _SIZES, _rules(prefer=None))) == ["onnx-fp32", "onnx-int8"]
    assert choose(_TWO, benchmark, _SIZES, _rules(prefer=None)).reason == ""
    limited = choose(_TWO, benchmark, _SIZES, _rules(prefer=None, limits={"size_mb": 2}))
    assert _chosen(limited) == ["onnx-int8"]
    assert limited.reason == "within size_mb <= 2; left out: onnx-fp32: passed, but size_mb 3 > 2"


def test_of_a_list_the_first_that_is_within_the_limits_is_chosen() -> None:
    rules = _rules(prefer=("onnx-fp32", "onnx-int8"), limits={"size_mb": 2})

    assert _chosen(choose(_TWO, None, _SIZES, rules)) == ["onnx-int8"]


def test_what_is_accepted_on_emulated_evidence_has_no_speed_on_the_device_that_is_absent() -> None:
    evidence = _evidence(
        _entry("onnx-fp16"), emulated=(_entry("onnx-fp16", evidence="emulated", device="emulated:fp16"),)
    )
    benchmark = _benchmark(_speed("onnx-fp16", _point(1.0)))
    accepted = {"devices": ("cuda:sm90",), "accept": {"onnx-fp16": "emulated"}}

    assert _chosen(choose(evidence, benchmark, {}, _rules(prefer=None, **accepted))) == ["onnx-fp16"]
    choice = choose(evidence, benchmark, {}, _rules(**accepted))
    assert _chosen(choice) == []
    assert "its speed was not measured (benchmarked on cpu only)" in choice.reason


_ABSENT = ("cuda:sm90",)


@pytest.mark.parametrize(
    ("entry", "devices", "hindrance"),
    [
        # It passed here, and the device of the release is absent.
        ({}, _ABSENT, ""),
        ({}, ("cpu", *_ABSENT), ""),
        # No runtime here runs such a file.
        ({"verdict": "not run here", "evidence": "built", "device": None}, _ABSENT, ""),
        # The device of the release is the one that it was seen not to run on.
        ({"verdict": "not run here", "evidence": "built", "device": None}, ("cpu",), "does not run on cpu"),
        ({"verdict": "not run here", "evidence": "built", "device": None}, ("cpu", *_ABSENT), "does not run on cpu"),
        # It failed, crashed or hung where it ran: no row says that it would not elsewhere.
        ({"verdict": "fail"}, _ABSENT, "fail"),
        ({"verdict": "inconclusive"}, _ABSENT, "inconclusive"),
        ({"verdict": "error", "evidence": "none", "device": None}, _ABSENT, "error"),
    ],
)
def test_an_emulated_row_stands_for_absent_devices_alone_and_not_for_a_file_that_failed(
    entry: dict[str, Any], devices: tuple[str, ...], hindrance: str
) -> None:
    emulated = _entry("onnx-bf16", evidence="emulated", device="emulated:bf16")
    evidence = _evidence(_entry("onnx-bf16", **entry), emulated=(emulated,))
    rules = _rules(prefer=None, devices=devices, accept={"onnx-bf16": "emulated"})

    choice = choose(evidence, None, {}, rules)

    assert [item.why_not for item in choice.candidates] == [hindrance]
    assert _chosen(choice) == ([] if hindrance else ["onnx-bf16"])


def test_speed_ups_over_another_source_are_no_speed_ups_and_its_speed_is_not_the_sources() -> None:
    benchmark = _benchmark(_speed("onnx-fp32", _point(6.0)), _speed("onnx-int8", _point(5.0)))
    source, *variants = benchmark.variants
    other = replace(benchmark, variants=(replace(source, artifact="digest of another source"), *variants))

    choice = choose(_TWO, other, _SIZES, _rules(limits={"latency_p95_ms": 11.0}))

    assert _chosen(choice) == ["onnx-int8"]
    assert choice.reason.startswith("fastest: p50 5 ms, p95 10 ms at batch size 8; ")
    assert choice.source.unmeasured == "another source was benchmarked"
    assert choice.source_broken == ("latency_p95_ms was not measured",)


@pytest.mark.parametrize("machine", [{**_MACHINE, "cores": 64}, {**_MACHINE, "cpu": {"model": "another"}}])
def test_a_benchmark_of_another_machine_does_not_count_and_both_are_named(machine: dict[str, Any]) -> None:
    benchmark = replace(_benchmark(_speed("onnx-fp32", _point(6.0)), _speed("onnx-int8", _point(5.0))), machine=machine)

    choice = choose(_TWO, benchmark, _SIZES, _rules())

    assert (_chosen(choice), choice.is_open) == ([], True)
    there = f"{machine['cpu']['model']} with {machine['cores']} cores"
    assert f"(benchmarked on {there}, validated on a processor with 4 cores)" in choice.reason


def test_speed_counts_at_the_point_of_the_spec_whatever_else_was_measured() -> None:
    # At batch size 1, the other one would be the fastest.
    benchmark = _benchmark(_speed("onnx-fp32", _point(6.0), _point(1.0, size=1)), _speed("onnx-int8", _point(5.0)))
    reversed_ = replace(benchmark, batch_sizes=(1, 8))
    without = replace(benchmark, batch_sizes=(1,))
    at_16 = _rules(points=((16, 1),))

    assert _chosen(choose(_TWO, reversed_, _SIZES, _rules())) == ["onnx-int8"]
    assert _chosen(choose(_TWO, without, _SIZES, _rules(limits={"first_call_ms": 99}))) == []
    choice = choose(_TWO, benchmark, _SIZES, at_16)
    assert (_chosen(choice), choice.is_open, choice.batch_size) == ([], True, 16)
    assert "its speed was not measured (it was not benchmarked at batch size 16)" in choice.reason


def test_memory_counts_where_every_point_of_the_spec_was_measured() -> None:
    # The peak over fewer instances is lower.
    benchmark = replace(_benchmark(_speed("onnx-fp32", _point(6.0))), concurrency=(1,))
    rules = _rules(prefer=None, limits={"memory_mb": 300}, points=((8, 1), (8, 4)))

    assert _chosen(choose(_evidence(_entry("onnx-fp32")), benchmark, _SIZES, rules)) == []
    more = replace(benchmark, concurrency=(1, 4))
    assert _chosen(choose(_evidence(_entry("onnx-fp32")), more, _SIZES, rules)) == ["onnx-fp32"]


@pytest.mark.parametrize(
    ("limits", "has_price", "command"),
    [
        ({"cost_per_million": 5.0}, False, "convert-and-validate benchmark --run DIR --price-per-hour PRICE"),
        ({"cost_per_million": 5.0}, True, "convert-and-validate benchmark --run DIR"),
        ({"first_call_ms": 99.0}, False, ""),
    ],
)
def test_how_to_measure_what_is_missing_is_said(limits: dict[str, float], command: str, *, has_price: bool) -> None:
    benchmark = _benchmark(_speed("onnx-fp32", _point(6.0)), _speed("onnx-int8", _point(5.0)))

    choice = choose(_TWO, benchmark, _SIZES, _rules(limits=limits))

    assert (choice.how_to_measure(Path("DIR"), has_price=has_price), choice.is_open) == (command, bool(command))


def test_a_choice_is_strict_json_even_where_a_latency_is_no_number() -> None:
    broken = replace(_point(5.0), latency_ms={"p50": math.nan})
    choice = choose(_TWO, _benchmark(_speed("onnx-fp32", broken)), _SIZES, _rules())

    assert _chosen(choice) == []
    text = json.dumps(choice.to_json(), allow_nan=False)
    assert json.loads(text)["candidates"][0]["figures"]["latency_p50_ms"] is None


_NAMES = ("onnx-fp32", "onnx-fp16", "openvino-fp32", "openvino-int8")


@given(
    verdicts=st.tuples(*[st.sampled_from(["pass", "fail", "error"])] * 4),
    medians=st.tuples(*[st.one_of(st.none(), st.floats(0.01, 100))] * 4),
    sizes=st.tuples(*[st.integers(1, 10**8)] * 4),
    limit=st.floats(0.1, 200),
    prefer=st.sampled_from(["fastest", "smallest"]),
)
def test_what_is_chosen_passed_is_within_the_limits_and_nothing_else_that_is_comes_clearly_before_it(
    verdicts: tuple[str, ...],
    medians: tuple[float | None, ...],
    sizes: tuple[int, ...],
    limit: float,
    prefer: Any,  # noqa: ANN401 - hypothesis gives one of two literals
) -> None:
    evidence = _evidence(*(_entry(name, verdict=verdict) for name, verdict in zip(_NAMES, verdicts, strict=True)))
    measured = [_speed(name, _point(at)) for name, at in zip(_NAMES, medians, strict=True) if at is not None]
    rules = _rules(prefer=prefer, limits={"latency_p95_ms": limit})

    choice = choose(evidence, _benchmark(*measured), dict(zip(_NAMES, sizes, strict=True)), rules)

    fit = {
        name: at if prefer == "fastest" else size
        for name, verdict, at, size in zip(_NAMES, verdicts, medians, sizes, strict=True)
        if verdict == "pass" and at is not None and at * 2 <= limit
    }
    # What differs by 5 % at most is equally fast.
    least = min(fit.values(), default=0) * (1.06 if prefer == "fastest" else 1)
    assert len(_chosen(choice)) == bool(fit)
    assert all(fit[name] <= least for name in _chosen(choice))


def test_constraints_are_read() -> None:
    found = parse_constraints(["latency_p95_ms=20", "rows_per_s=1e3", "size_mb=.5"])

    assert found == {"latency_p95_ms": 20.0, "rows_per_s": 1000.0, "size_mb": 0.5}


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["latency_p95_ms"], "it is not of the form NAME=VALUE"),
        (["=20"], "it is not of the form NAME=VALUE"),
        (["latency_p95_ms="], "it is not of the form NAME=VALUE"),
        (["p95=20"], "'p95' is not known"),
        (["latency_p95_ms=20ms"], "'20ms' is not a number"),
        (["latency_p95_ms=nan"], "limit latency_p95_ms is nan, not a finite number above 0"),
        (["latency_p95_ms=inf"], "limit latency_p95_ms is inf, not a finite number above 0"),
        (["latency_p95_ms=0"], "limit latency_p95_ms is 0, not a finite number above 0"),
        (["size_mb=-1"], "limit size_mb is -1, not a finite number above 0"),
        (["size_mb=1", "size_mb=2"], "'size_mb' occurs twice"),
    ],
)
def test_a_constraint_that_is_none_is_wrong_usage_and_the_allowed_names_are_said(
    texts: list[str], problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_constraints(texts)

    assert problem in str(caught.value)
    assert "(allowed names: latency_p50_ms, latency_p95_ms, " in str(caught.value)
    assert caught.value.hint == "write for example --constraint latency_p95_ms=20"


def test_limits_of_the_spec_are_checked_by_the_same_rules() -> None:
    assert check_limits({"size_mb": 50.0}) == {"size_mb": 50.0}
    with pytest.raises(ValueError, match="limit 'size' is not known"):
        check_limits({"size": 50.0})


@pytest.mark.parametrize(
    ("checks", "share"),
    [
        ([], None),
        ([("bias", 9.0, 1.0)], None),
        ([("max_abs_diff", 0.5, 1.0)], 0.5),
        ([("max_abs_diff", 0.5, 1.0), ("mean_abs_diff", 1.6, 1.0), ("max_row_rel_diff", 0.7, 1.0)], 1.6),
        ([("max_abs_diff", 0.5, 1.0), ("max_abs_diff", 3.0, 2.0)], 1.5),
        ([("max_abs_diff", 4.0, 10.0), ("p9999_abs_diff", 0.9, 1.0)], 0.9),
        ([("max_abs_diff", 0.0, 0.0)], 0.0),
        ([("max_abs_diff", 1e-9, 0.0)], math.inf),
        ([("max_abs_diff", None, 1.0)], math.inf),
    ],
)
def test_a_difference_is_told_as_a_part_of_the_nearest_limit(
    checks: list[tuple[str, float | None, float | None]], share: float | None
) -> None:
    assert tolerance_used(checks) == share
