"""Measures that take in those of other rows: any cut of the batches gives the same figures, to the last bit."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.codec import to_data
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.measures import GateResult, Measures
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gold.rule import parse_gold_rule
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.measure.measurement import OutputComparison
from paritygate.validate.measure.parts.exact_comparison import ExactComparison
from paritygate.validate.measure.parts.exact_sums import ExactSums
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.reference.recorded import ExpectedOutputs

_Pair = tuple[Batch, dict[str, NDArray[np.generic]], dict[str, NDArray[np.generic]]]


@dataclass(frozen=True, kw_only=True)
class _Facts:
    output_names: frozenset[str] = frozenset({"y", "one", "label", "image"})
    input_names: frozenset[str] | None = frozenset({"x"})
    classes: Any = None
    warnings: tuple[str, ...] = ()


_RULES = GateRules(
    tolerance=parse_tolerance(Precision.BF16, {"image:max_abs_diff": 1}),
    decisions=(parse_decision("y:argmax"), parse_decision("one:threshold=0")),
    argmax_of={"label": "y"},
    gold=(parse_gold_rule("spearman:one,max_drop=0.1"),),
    strata=("s",),
    min_rows=5,
)


def _pairs(seed: int, sizes: Sequence[int], fault: str) -> list[_Pair]:
    random = np.random.default_rng(seed)
    pairs: list[_Pair] = []
    for number, rows in enumerate(sizes):
        # Differences of many sizes are those whose sums depend on the order.
        scale = 10.0 ** random.integers(-9, 0)
        y = random.normal(size=(rows, 3)).astype(np.float32)
        one = random.normal(size=rows).astype(np.float32)
        actual = {"y": (y + scale * random.normal(size=y.shape)).astype(np.float32), "one": one.copy()}
        actual["one"][0] += np.float32(scale)
        if number == len(sizes) - 1:
            if fault == "nan":
                actual["y"][-1, 1] = np.nan
            if fault == "shape":
                actual["one"] = actual["one"][:, np.newaxis]
            if fault == "far":
                actual["y"][-1] += 5
        labels = [{"label": side["y"].argmax(axis=1).astype(np.int64)} for side in (actual, {"y": y})]
        image = random.integers(0, 256, size=(rows, 4), dtype=np.uint8)
        # Differences of integers are often equal, and any cut of the rows names the same ones.
        off = random.integers(-1, 2, size=image.shape) * (random.random(image.shape) < 0.3)
        actual["image"] = np.clip(image + off, 0, 255).astype(np.uint8)
        batch = Batch(
            inputs={"x": random.normal(size=(rows, 2)).astype(np.float32)},
            ids=[f"{number}-{row}" for row in range(rows)],
            gold=np.where(random.random(rows) < 0.2, np.nan, one),
            strata={"s": ["up" if value > 0 else "down" for value in one]},
        )
        pairs.append((batch, {**actual, **labels[0]}, {"y": y, "one": one, "image": image, **labels[1]}))
    return pairs


def _expected(pairs: Sequence[_Pair]) -> ExpectedOutputs:
    profiles = {
        name: profile_outputs(
            name,
            [(expected[name], batch.rows) for batch, _, expected in pairs],
            axis=1 if name == "y" else None,
            dtype=pairs[0][2][name].dtype.name,
        )
        for name in ("y", "one", "label", "image")
    }
    return ExpectedOutputs(
        name="reference",
        digest="",
        profiles=profiles,
        health=(),
        output_names=frozenset(profiles),
        inputs=frozenset({"x"}),
        open_reader=lambda: pytest.fail("nothing is read"),
    )


def _measured(pairs: Sequence[_Pair], compare: Any, expected: ExpectedOutputs) -> Measures:  # noqa: ANN401 - a class or a partial
    measures = Measures(expected, _RULES, compare)
    for batch, actual, wanted in pairs:
        measures.add(batch, actual, wanted)
    measures.end_pass()
    return measures


def _merged(pairs: Sequence[_Pair], cuts: Sequence[int]) -> GateResult:
    """Return the result of parts that went through JSON text."""
    expected = _expected(pairs)
    whole = Measures(expected, _RULES, ExactComparison)
    whole.compare_names(_facts())
    for first, last in zip([0, *cuts], [*cuts, len(pairs)], strict=True):
        before = sum(batch.rows for batch, _, _ in pairs[:first])
        measured = _measured(pairs[first:last], functools.partial(ExactComparison, rows_before=before), expected)
        part = Measures(expected, _RULES, ExactComparison)
        part.read(json.loads(json.dumps(measured.to_data(), allow_nan=False)))
        whole.take_in(part)
    whole.end_pass()
    return whole.finish(_facts(), samples_digest="")


def _facts() -> _Facts:
    return _Facts(classes={})


def _text(result: GateResult) -> str:
    return json.dumps(to_data(result), default=str)


_FAULTS = st.sampled_from(["", "nan", "shape", "far"])


@settings(deadline=None, max_examples=6)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=6),
    fault=_FAULTS,
    data=st.data(),
)
def test_any_cut_gives_the_same_figures(seed: int, sizes: list[int], fault: str, data: st.DataObject) -> None:
    sizes = [5, *sizes]
    pairs = _pairs(seed, sizes, fault)
    # Empty parts are among them.
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sizes)), max_size=7)))
    whole = _merged(pairs, [])

    assert _text(_merged(pairs, cuts)) == _text(whole)
    assert _text(_merged(pairs, list(range(1, len(sizes))))) == _text(whole)


@pytest.mark.parametrize("fault", ["", "nan", "shape", "far"])
def test_parts_find_what_one_pass_finds(fault: str) -> None:
    pairs = _pairs(3, [4, 1, 6, 2, 5, 3, 6, 6], fault)
    plain = Measures(_expected(pairs), _RULES, OutputComparison)
    plain.compare_names(_facts())
    for batch, actual, wanted in pairs:
        plain.add(batch, actual, wanted)
    plain.end_pass()
    one, parts = plain.finish(_facts(), samples_digest=""), _merged(pairs, [1, 3, 4])

    assert [(check.name, check.output, check.status) for check in parts.checks] == [
        (check.name, check.output, check.status) for check in one.checks
    ]
    for name, statistics in one.measurement.statistics.items():
        other = parts.measurement.statistics[name]
        for figure in ("mean_abs_diff", "std_abs_diff", "bias", "std_diff", "sqnr_db", "cosine_similarity", "slope"):
            wanted = getattr(statistics, figure)
            assert getattr(other, figure) == pytest.approx(wanted, rel=1e-9, nan_ok=True), figure
        assert other.worst_rows == statistics.worst_rows
        assert other.nearest == statistics.nearest
    assert parts.measurement.mismatches == one.measurement.mismatches
    assert parts.measurement.decisions == one.measurement.decisions
    assert parts.measurement.drawings == one.measurement.drawings
    assert parts.gold == one.gold
    assert {name: {value: m.rows for value, m in values.items()} for name, values in parts.strata.items()} == {
        name: {value: m.rows for value, m in values.items()} for name, values in one.strata.items()
    }


@settings(deadline=None, max_examples=40)
@given(
    numbers=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=12),
    data=st.data(),
)
def test_sums_are_exact_in_any_order(numbers: list[float], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(numbers))
    texts = []
    for order in (numbers, shuffled):
        sums = ExactSums(1, 0)
        for number in order:
            sums.add(np.array([number]), [])
        texts.append(sums.to_data()["sums"])
        if np.isfinite(numbers).all():
            from fractions import Fraction

            assert sums.numbers() == [sum(map(Fraction, numbers), Fraction(0))]
    assert texts[0] == texts[1]
