"""What a shape or a loop depends on is asked as samples hold it: any number of times that is any amount of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.signature import Dim
from paritygate.validate.probes.graph.sizes import inputs_of_sizes
from paritygate.validate.probes.inputs.roles import DeclaredRole, Form, Role
from paritygate.validate.probes.skip_reasons import DropKind, drop_words

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.validate.probes.conftest import Asked, ProbeDesk

    Array = NDArray[Any]
    Samples = list[dict[str, Array]]

_RANDOM = np.random.default_rng(5)
_WEIGHTS = {
    "go_on": np.array(1, dtype=bool),
    "many": np.array(10**6),
    "zero": np.array(0),
    "one": np.array(1),
    "first": np.array([0]),
    "half": np.array(0.5, dtype=np.float32),
    "limit": np.array(100, dtype=np.float32),
    "small": np.array([1.0], dtype=np.float32),
    "table": np.arange(50),
    "kernel": np.ones((4, 3), dtype=np.float32),
}
# The sum of x over so many rounds, while the condition holds.
_LOOP = """
  total, each = Loop <body = rounds (int64 i, bool before, float[4] s) => (bool after, float[4] next, float[4] kept)
  {{
    next = Add(s, x)
    kept = Identity(next)
    largest = ReduceMax<keepdims=0>(next)
    {after}
  }}> ({count}, go_on, x)
"""
_COUNTED = _LOOP.format(count="n", after="after = Identity(before)")
_HALTING = _LOOP.format(count="many", after="after = Less(largest, limit)")
_INPUTS = "(int64 n, float[4] x, int64[N] ids, float[N,4] rows)"


def _graph(body: str) -> str:
    return f"{_INPUTS} => (y) {{\n{body}\n}}"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(_COUNTED + "y = Identity(total)", {"n"}, id="the count of a loop"),
        pytest.param(_HALTING + "y = Identity(each)", {"x"}, id="the condition of a loop"),
        pytest.param("f = Gather(ids, first)\n y = Expand(x, f)", {"ids"}, id="expanded to it"),
        pytest.param("y = ConstantOfShape(ids)", {"ids"}, id="a shape"),
        pytest.param("y = Reshape(rows, ids)", {"ids"}, id="reshaped to it"),
        pytest.param("y = Tile(x, ids)", {"ids"}, id="so many tiles"),
        pytest.param("d = Mul(n, n)\n y = Range(zero, d, one)", {"n"}, id="a range after arithmetic"),
        pytest.param(
            "s = ReduceSum<keepdims=0>(rows)\n c = Cast<to=7>(s)\n y = Range(zero, c, one)",
            {"rows"},
            id="of many values",
        ),
        pytest.param("s = Shape(rows)\n y = Expand(small, s)", set(), id="the shape of an input, not its values"),
        pytest.param("y = Add(x, x)", set(), id="plain arithmetic"),
        pytest.param(
            "m = Greater(ids, zero)\n w = Cast<to=7>(m)\n s = ReduceSum<keepdims=0>(w)\n y = Range(zero, s, one)",
            set(),
            id="a count of positions that are set",
        ),
        pytest.param("t = Gather(table, n)\n y = Range(zero, t, one)", set(), id="what a table holds"),
        pytest.param("c = ReduceMax<keepdims=0>(x)\n y = NonZero(c)", set(), id="places"),
        pytest.param(
            "b = Greater(n, zero)\n y = If<then_branch = yes () => (float[M] p) { s = Unsqueeze(n, first)\n"
            "p = ConstantOfShape(s) }, else_branch = no () => (float[M] q) { q = Identity(x) }>(b)",
            {"n"},
            id="a shape in a branch",
        ),
        pytest.param(
            "z, y = Scan<num_scan_inputs = 1, body = steps (int64 c, float[4] r) => (int64 d, float[M] p)"
            "{ d = Add(c, one)\n s = Unsqueeze(d, first)\n p = ConstantOfShape(s) }>(n, rows)",
            {"n"},
            id="a shape in the steps of a scan",
        ),
    ],
)
def test_says_which_inputs_a_shape_or_a_loop_hangs_on(desk: ProbeDesk, body: str, expected: set[str]) -> None:
    assert inputs_of_sizes(desk.parsed(_graph(body), _WEIGHTS)) == expected


def test_what_a_loop_carries_from_round_to_round_is_followed_to_its_condition(desk: ProbeDesk) -> None:
    # Only in the third round does the condition hang on x.
    body = """
      a, b = Loop <body = rounds (int64 i, bool before, float p, float q) => (bool after, float p2, float q2)
      {
        after = Less(p, limit)
        p2 = Identity(q)
        q2 = ReduceMax<keepdims=0>(x)
      }> (many, go_on, half, half)
      y = Identity(a)
    """

    assert inputs_of_sizes(desk.parsed(_graph(body), _WEIGHTS)) == {"x"}


def test_a_local_function_is_looked_into() -> None:
    import onnx

    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
        g (int64[1] n, float[4] x) => (y) { y = own.zeros(n, x) }
        <domain: "own", opset_import: ["" : 17]>
        zeros (size, other) => (z) { c = ConstantOfShape(size) z = Add(c, other) }"""
    )

    assert inputs_of_sizes(model) == {"n"}


_TRIPS = "(int64 n, float[4] x) => (float[4] y) {" + _COUNTED + "y = Mul(total, half) }"


def _trips() -> Samples:
    return [
        {"n": np.array(count), "x": _RANDOM.normal(size=4).astype(np.float32)} for count in (2, 3, 5, 2, 4, 3, 5, 2)
    ]


def _asked_values(asked: Asked, name: str) -> set[float]:
    return {
        float(value)
        for probe in asked.probes.probes
        for stored in asked.probes.batches(probe)
        for value in np.asarray(stored.inputs[name]).reshape(-1)
    }


def _sizes_left_out(asked: Asked) -> int:
    return sum(probe.dropped_counts.get(DropKind.SIZE, 0) for probe in asked.probes.probes)


@pytest.mark.parametrize("has_graph", [True, False])
def test_the_trip_count_of_a_loop_is_asked_as_it_was_seen(desk: ProbeDesk, has_graph: bool) -> None:  # noqa: FBT001 - a parameter
    model = desk.model(_TRIPS, _WEIGHTS)

    asked = desk.ask(model, _trips(), has_graph=has_graph)

    role = asked.context.roles["n"]
    assert (role.form, role.is_size) == (Form.FIXED, True)
    words = "a shape or a loop depends on the input, so probes use only seen values"
    assert role.why == (words if has_graph else f"as far as is known without a graph, {words}")
    assert _asked_values(asked, "n") <= {2, 3, 4, 5}
    # The other input is asked as ever.
    assert max(_asked_values(asked, "x")) > 100
    assert desk.answer(asked, model).failed == {}


def test_a_role_that_the_spec_says_sets_no_size_free(desk: ProbeDesk) -> None:
    free = {"n": DeclaredRole(role=Role.LENGTH, low=0, high=10**6)}

    asked = desk.ask(desk.model(_TRIPS, _WEIGHTS), _trips(), names=["values"], declared=free)

    assert _asked_values(asked, "n") <= {2, 3, 4, 5}
    assert _sizes_left_out(asked) > 0
    (probe,) = asked.probes.probes
    reasons = {item.reason for item in probe.dropped if item.kind is DropKind.SIZE}
    assert reasons == {"a shape or a loop depends on n, and no sample holds such values"}


def test_what_is_left_out_of_sizes_is_said_in_words() -> None:
    (words,) = drop_words({DropKind.SIZE: 3})

    assert words == "3 batches on whose values a shape or a loop depends, and no sample holds"


def test_numbers_that_a_loop_halts_by_are_asked_within_what_was_seen(desk: ProbeDesk) -> None:
    model = desk.model("(float[4] x) => (float[4] y) {" + _HALTING + "y = Mul(total, half) }", _WEIGHTS)
    samples = [{"x": _RANDOM.uniform(1, 9, 4).astype(np.float32)} for _ in range(8)]

    asked = desk.ask(model, samples, names=["values"])

    role = asked.context.roles["x"]
    assert (role.form, role.is_size) == (None, True)
    assert role.why.endswith("; a shape or a loop depends on the input, so probes use no other values")
    seen = np.concatenate([sample["x"] for sample in samples])
    found = _asked_values(asked, "x")
    assert found
    assert seen.min() - 1e-3 <= min(found)
    assert max(found) <= seen.max() + 1e-3
    assert _sizes_left_out(asked) > 10


_BY_SHAPE = """(float[B,4] x, int64[2] target) => (float[B,4] y) {
  c = ConstantOfShape(target)
  s = ReduceSum(c)
  y = Add(x, s)
}"""


def test_a_shape_is_asked_whole_as_it_was_seen(desk: ProbeDesk) -> None:
    samples = [
        {"x": _RANDOM.normal(size=(3, 4)).astype(np.float32), "target": np.array(target)}
        for target in ((1, 64), (64, 1), (2, 32))
    ]

    asked = desk.ask(desk.model(_BY_SHAPE, _WEIGHTS), samples)

    found = [
        tuple(stored.inputs["target"].tolist())
        for probe in asked.probes.probes
        for stored in asked.probes.batches(probe)
    ]
    # Each of its numbers was seen up to 64, and never 64 times 64.
    assert set(found) <= {(1, 64), (64, 1), (2, 32)}
    assert found


_OF_LENGTHS = """(float[B,S,3] x, int64[B] lengths) => (float[B,S] y) {
  longest = ReduceMax<keepdims=0>(lengths)
  at = Range(zero, longest, one)
  rows = Unsqueeze(at, first)
  below = Less(rows, columns)
  mask = Cast<to=1>(below)
  s = ReduceSum(x, last)
  y = Mul(s, mask)
}"""


def test_lengths_go_with_the_positions_that_there_are(desk: ProbeDesk) -> None:
    text = _OF_LENGTHS.replace("columns)", "ends)").replace(
        "below =", "axis = Identity(last_axis)\n ends = Unsqueeze(lengths, axis)\n below ="
    )
    model = desk.model(
        text.replace("ReduceSum(x, last)", "ReduceSum<keepdims=0>(x, last)"),
        {**_WEIGHTS, "last": np.array([2]), "last_axis": np.array([1])},
    )
    samples = []
    for _ in range(6):
        lengths = _RANDOM.integers(1, 9, 4)
        lengths[0] = 8
        samples.append({"x": _RANDOM.normal(size=(4, 8, 3)).astype(np.float32), "lengths": lengths})

    asked = desk.ask(model, samples, dims={"S": Dim(min=2, opt=8, max=24)})

    role = asked.context.roles["lengths"]
    assert (role.role, role.of, role.is_size) == (Role.LENGTH, "x", True)
    assert max(_asked_values(asked, "lengths")) == 24
    for probe in asked.probes.probes:
        for stored in asked.probes.batches(probe):
            assert stored.inputs["lengths"].max() <= stored.inputs["x"].shape[1]
