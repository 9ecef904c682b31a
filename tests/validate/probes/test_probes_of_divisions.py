"""Whole numbers at the boundaries of divisions: no sample lies there, and what divides otherwise does not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.validate.probes.graph.uses import uses_of_inputs

if TYPE_CHECKING:
    import onnx
    from conftest import Asked, ProbeDesk

Array = NDArray[Any]

_SECONDS_OF_DAY = 86_400
_TABLE = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)


def _away_from(step: int, low: int, high: int, *, least: int) -> Array:
    """Return numbers of the range that are away from every multiple of a step."""
    found = np.random.default_rng(1).integers(low, high, 4000)
    return found[np.minimum(found % step, step - found % step) > least][:160]


class Case(Struct, frozen=True, kw_only=True):
    """What is divided, in four ways.

    Attributes:
        samples: What the input holds; no value is where the answers differ.
        original: Nodes from `x` to `at`, a row of a table.
        wrong: The same by a conversion that is wrong at boundaries.
        twin: The same by one that is correct everywhere.
        constants: By name.
        input: Its type.
    """

    samples: Array
    original: str
    wrong: str
    twin: str
    constants: dict[str, Any] = field(default_factory=dict)
    input: str = "int64[N] x"

    def model(self, nodes: str) -> onnx.ModelProto:
        text = f"({self.input}) => (float[N,4] y) {{ {nodes} y = Gather(table, at) }}"
        from onnx import numpy_helper, parser

        model = parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> g ' + text)
        weights = {"table": _TABLE, **self.constants}
        model.graph.initializer.extend(
            numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()
        )
        return model

    def batches(self) -> list[dict[str, Array]]:
        return [{"x": self.samples[start : start + 16]} for start in range(0, len(self.samples), 16)]


def _int(**values: int) -> dict[str, Any]:
    return {name: np.int64(value) for name, value in values.items()}


_WEEKDAY = "day = Div(x, step) at = Mod(day, seven)"
_IN_FLOATS = "f = Cast<to=1>(x) q = Div(f, stepf) w = Floor(q) day = Cast<to=7>(w) at = Mod(day, seven)"
_STAMPS = _away_from(_SECONDS_OF_DAY, 1_700_000_000, 1_705_000_000, least=300)
_OF_DAYS = {**_int(step=_SECONDS_OF_DAY, seven=7), "stepf": np.float32(_SECONDS_OF_DAY)}
# As exporters write the division of whole numbers that rounds down.
_FLOORED = """q = Div(x, step) w = Mul(q, step) rest = Sub(x, w) is = Less(rest, zero) less = Cast<to=7>(is)
  down = Sub(q, less) at = Add(down, ten)"""
_CASES = {
    "days divided in floats": Case(
        samples=_STAMPS,
        original=_WEEKDAY,
        wrong=_IN_FLOATS,
        twin="rest = Mod(x, step) whole = Sub(x, rest) day = Div(whole, step) at = Mod(day, seven)",
        constants=_OF_DAYS,
    ),
    "a rest of floats": Case(
        samples=_away_from(20, 2**24, 2**26, least=4),
        original="rest = Mod(x, step) at = Div(rest, twenty)",
        wrong="f = Cast<to=1>(x) m = Mod<fmod=1>(f, stepf) rest = Cast<to=7>(m) at = Div(rest, twenty)",
        twin="q = Div(x, step) w = Mul(q, step) rest = Sub(x, w) at = Div(rest, twenty)",
        constants={**_int(step=1000, twenty=20), "stepf": np.float32(1000)},
    ),
    "a shift": Case(
        samples=_away_from(1 << 20, 1 << 24, 1 << 26, least=16).astype(np.uint64),
        original='high = BitShift<direction="RIGHT">(x, bits) at = Cast<to=7>(high)',
        wrong="f = Cast<to=1>(x) q = Div(f, stepf) w = Floor(q) at = Cast<to=7>(w)",
        twin="n = Cast<to=7>(x) at = Div(n, step)",
        constants={"bits": np.uint64(20), "stepf": np.float32(1 << 20), **_int(step=1 << 20)},
        input="uint64[N] x",
    ),
    "a reciprocal of floats": Case(
        samples=_away_from(61, 0, 3800, least=1).astype(np.float32),
        original="q = Div(x, step) w = Floor(q) at = Cast<to=7>(w)",
        wrong="q = Mul(x, share) w = Floor(q) at = Cast<to=7>(w)",
        twin="m = Mod<fmod=1>(x, step) whole = Sub(x, m) q = Div(whole, step) at = Cast<to=7>(q)",
        constants={"step": np.float32(61), "share": np.float32(1) / np.float32(61)},
        input="float[N] x",
    ),
    "a cast through floats": Case(
        # All that was seen is a multiple of 128, which float32 holds.
        samples=1_700_000_000 // 128 * 128 + 128 * np.random.default_rng(3).integers(0, 40_000, 160),
        original="at = Mod(x, prime)",
        wrong="f = Cast<to=1>(x) n = Cast<to=7>(f) at = Mod(n, prime)",
        twin="q = Div(x, prime) w = Mul(q, prime) at = Sub(x, w)",
        constants=_int(prime=61),
    ),
    "cents below zero, cut off instead of rounded down": Case(
        samples=np.concatenate([100 * np.arange(-9, 0), _away_from(100, 1, 3000, least=2)])[:160],
        original=_FLOORED,
        wrong="q = Div(x, step) at = Add(q, ten)",
        twin="m = Mod(x, step) w = Sub(x, m) q = Div(w, step) at = Add(q, ten)",
        constants=_int(step=100, ten=10, zero=0, one=1),
    ),
    "each feature by its own number": Case(
        samples=np.stack([_STAMPS, _STAMPS + 7], axis=1),
        original="q = Div(x, steps) s = ReduceSum<keepdims=0>(q, axis) at = Mod(s, seven)",
        wrong="f = Cast<to=1>(x) p = Div(f, floats) w = Floor(p) q = Cast<to=7>(w) s = ReduceSum<keepdims=0>(q, axis) "
        "at = Mod(s, seven)",
        twin="m = Mod(x, steps) d = Sub(x, m) q = Div(d, steps) s = ReduceSum<keepdims=0>(q, axis) at = Mod(s, seven)",
        constants={
            "steps": np.array([_SECONDS_OF_DAY, 7 * _SECONDS_OF_DAY]),
            "axis": np.array([1]),
            **_int(seven=7),
            "floats": np.array([_SECONDS_OF_DAY, 7 * _SECONDS_OF_DAY], dtype=np.float32),
        },
        input="int64[N,2] x",
    ),
    "a time zone before the days": Case(
        samples=_away_from(_SECONDS_OF_DAY, 1_700_000_000, 1_705_000_000, least=300) - 3600,
        original="local = Add(x, zone) day = Div(local, step) at = Mod(day, seven)",
        wrong=_IN_FLOATS.replace("Cast<to=1>(x)", "Cast<to=1>(local)").replace("f =", "local = Add(x, zone) f =", 1),
        twin="off = Sub(x, less) rest = Mod(off, step) w = Sub(off, rest) day = Div(w, step) at = Mod(day, seven)",
        constants={**_OF_DAYS, **_int(zone=3600, less=-3600)},
    ),
}


def _asked(desk: ProbeDesk, case: Case, graph: str) -> Asked:
    """Return the original, asked few rows, with what a graph says of it."""
    original, looked_at = case.model(case.original), case.model(graph)
    return desk.ask(original, case.batches(), names=["values"], graph=looked_at, max_rows=16)


@pytest.mark.parametrize("is_of_wrong", [False, True], ids=["the original's graph", "the wrong file's graph"])
@pytest.mark.parametrize("name", _CASES)
def test_a_wrong_division_that_no_sample_shows_fails_and_a_correct_one_passes(
    name: str,
    is_of_wrong: bool,  # noqa: FBT001
    desk: ProbeDesk,
) -> None:
    case = _CASES[name]
    asked = _asked(desk, case, case.wrong if is_of_wrong else case.original)

    wrong, twin = (desk.answer(asked, case.model(nodes), edge="warn") for nodes in (case.wrong, case.twin))

    assert (wrong.gate, set(wrong.failed)) == ((), {"values"})
    assert (twin.gate, twin.failed) == ((), {})


@pytest.mark.parametrize("name", ["days divided in floats", "a cast through floats"])
def test_large_numbers_are_divided_as_time_stamps_are_where_no_graph_says_by_what(name: str, desk: ProbeDesk) -> None:
    case = _CASES[name]
    asked = desk.ask(case.model(case.original), case.batches(), names=["values"], max_rows=16, has_graph=False)

    wrong, twin = (desk.answer(asked, case.model(nodes), edge="warn") for nodes in (case.wrong, case.twin))

    assert set(wrong.failed) == {"values"}
    assert (twin.gate, twin.failed) == ((), {})


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_whole_numbers_are_divided_alike_in_each_precision(precision: str, desk: ProbeDesk) -> None:
    case = _CASES["days divided in floats"]
    asked = _asked(desk, case, case.original)

    wrong, twin = (
        desk.answer(asked, case.model(nodes), precision=precision, edge="warn") for nodes in (case.wrong, case.twin)
    )

    assert set(wrong.failed) == {"values"}
    assert twin.failed == {}


def test_an_original_that_divides_rounded_numbers_makes_its_boundaries_findings(desk: ProbeDesk) -> None:
    case = _CASES["days divided in floats"]
    rounded = replace(case, original=case.wrong)

    answered = desk.answer(_asked(desk, rounded, rounded.original), case.model(case.original), edge="warn")

    # The exact conversion of a model that is not exact itself is off beside midnight, and nowhere else.
    assert (answered.gate, answered.failed) == ((), {})
    assert "rounded" in answered.found["values"]


@pytest.mark.parametrize("name", ["days divided in floats", "a time zone before the days"])
def test_boundaries_are_known_as_values_of_the_input(name: str) -> None:
    case = _CASES[name]
    known = {
        (item.step, item.offset, item.is_computed) for item in uses_of_inputs(case.model(case.original))["x"].divisions
    }

    offset = -3600 if name.startswith("a time zone") else 0
    assert known == {(_SECONDS_OF_DAY, offset, False), (7 * _SECONDS_OF_DAY, offset, False)}
