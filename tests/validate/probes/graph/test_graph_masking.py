"""What a graph leaves out by an input of zeros and ones, and what it chooses by it instead."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

from paritygate.validate.probes.graph.uses import uses_of_inputs

_CONSTANTS = {
    "zero": np.float32(0),
    "one": np.float32(1),
    "lowest": np.float32(-1e9),
    "highest": np.float32(1e9),
    "learned": np.float32([[1.0, 2.0]]),
    "nought": np.int64(0),
    "unit": np.int64(1),
    "last": np.int64([-1]),
    "table": np.zeros((2, 4), np.float32),
    "yes": np.bool_(1),
}
_SET = "m = Cast<to=1>(mask)\n"
_IF = "c = Cast<to=9>(mask)\n"


def _model(text: str) -> ModelProto:
    graph = parser.parse_graph(
        f"g (int64[b, s] mask, float[b, s] x, float[b, s] z, bool[b, s] seen) => (float[b, s] y) {{ {text} }}"
    )
    graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in _CONSTANTS.items())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{_SET} y = Mul(x, m)", id="multiplied"),
        pytest.param(f"{_SET} u = Unsqueeze(m, last) s = Squeeze(u, last) y = Mul(s, x)", id="in another shape"),
        pytest.param(f"{_SET} n = Sub(one, m) a = Mul(n, lowest) s = Add(x, a) y = Softmax(s)", id="1 - mask"),
        pytest.param(f"{_SET} n = Sub(one, m) a = Mul(n, highest) y = Sub(x, a)", id="taken off"),
        pytest.param(f"{_SET} n = Sub(m, one) a = Mul(n, highest) y = Add(x, a)", id="mask - 1"),
        pytest.param(f"{_IF} a = Where(c, zero, lowest) y = Add(x, a)", id="chosen and added"),
        pytest.param(f"{_IF} n = Not(c) y = Where(n, lowest, x)", id="masked_fill"),
        pytest.param(f"{_IF} y = Where(c, x, learned)", id="a learned vector in its place"),
        pytest.param("e = Equal(mask, nought) y = Where(e, zero, x)", id="compared with 0"),
        pytest.param("e = Greater(mask, nought) y = Where(e, x, zero)", id="above 0"),
        pytest.param(
            f"{_IF} s = Shape(x) t = Gather(s, unit) r = Range(nought, t, unit) h = Less(r, t) j = And(h, c)"
            " a = Where(j, zero, lowest) y = Add(x, a)",
            id="with positions that may be seen",
        ),
        pytest.param(f"{_IF} j = And(c, seen) a = Where(j, zero, lowest) y = Add(x, a)", id="with a condition on data"),
        pytest.param(f"{_SET} n = Sub(one, m) y = Mul(n, zero) w = Mul(m, x)", id="what is zero by itself beside it"),
        pytest.param("q = Cast<to=9>(mask) y = Attention<q_num_heads=1, kv_num_heads=1>(x, x, z, q)", id="attention"),
    ],
)
def test_a_graph_that_leaves_out_what_stands_at_zero_makes_a_mask(text: str) -> None:
    assert uses_of_inputs(_model(text))["mask"].masking.is_mask


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(f"{_IF} y = Where(c, x, z)", "Where y of the graph chooses by it", id="two results"),
        pytest.param(f"{_IF} k = Mul(x, zero) y = Where(c, k, z)", "chooses by it", id="two results of any kind"),
        pytest.param(f"{_IF} j = And(c, seen) y = Where(j, x, z)", "chooses by it", id="and another condition"),
        pytest.param(
            f"{_SET} n = Sub(one, m) a = Mul(m, x) b = Mul(n, z) y = Add(a, b)",
            "Mul b of the graph leaves out where it is set",
            id="a mixture of two",
        ),
        pytest.param(
            f"{_IF} y = Where(c, lowest, x)", "Where y of the graph leaves out where it is set", id="inverted"
        ),
        pytest.param(
            f"{_SET} a = Mul(m, lowest) y = Add(x, a)", "Add y of the graph leaves out where", id="inverted sum"
        ),
        pytest.param(
            f"{_SET} k = Mul(x, m) {_IF} w = Where(c, x, z) y = Add(k, w)", "chooses by it", id="a mask as well"
        ),
        pytest.param(
            f"{_SET} k = Mul(x, m) y = If(yes) <then_branch = t () => (float[b, s] p) {{ p = Mul(m, x) }},"
            " else_branch = e () => (float[b, s] q) { q = Identity(x) }>",
            "If y of the graph hangs on it",
            id="in a branch",
        ),
    ],
)
def test_what_is_chosen_or_left_out_otherwise_makes_no_mask(text: str, why: str) -> None:
    masking = uses_of_inputs(_model(text))["mask"].masking

    assert why in masking.why_no_mask
    assert not masking.is_mask


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{_SET} y = Add(x, m)", id="added"),
        pytest.param("y = Gather(table, mask)", id="a table"),
        pytest.param(f"{_SET} c = CumSum(m, nought) y = Add(x, c)", id="counted"),
        pytest.param(f"{_SET} y = MatMul(m, x)", id="summed up"),
        pytest.param("y = Mul(x, z)", id="not used"),
    ],
)
def test_what_leaves_nothing_out_makes_no_mask(text: str) -> None:
    masking = uses_of_inputs(_model(text))["mask"].masking

    assert (masking.is_mask, masking.why_no_mask) == (False, "")
