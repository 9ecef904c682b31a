"""What a graph does with its inputs, as far as it says what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.validate.probes.graph.uses import GraphUse, uses_of_inputs
from paritygate.validate.probes.inputs.thresholds import Buckets, Threshold

if TYPE_CHECKING:
    from conftest import ProbeDesk

_TABLE = np.zeros((50, 4), dtype=np.float32)
_POSITIONS = np.zeros((16, 4), dtype=np.float32)
_ZERO = np.array([0], dtype=np.int64)
_NOUGHT = np.array(0, dtype=np.int64)
_COMPARED = GraphUse(equals=0, thresholds=(Threshold(value=0, is_equality=True),))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("y = Gather(table, x)", GraphUse(table_rows=50), id="a table"),
        pytest.param("c = Cast<to=6>(x)\n y = Gather(table, c)", GraphUse(table_rows=50), id="a table behind a cast"),
        pytest.param("y = Gather<axis=1>(table, x)", GraphUse(table_rows=4), id="columns of a table"),
        pytest.param("y = OneHot(x, depth, table)", GraphUse(table_rows=9), id="one-hot"),
        pytest.param(
            "y = Equal(x, nought)",
            GraphUse(equals=0, thresholds=(Threshold(value=0, is_equality=True),)),
            id="compared with a number",
        ),
        pytest.param("y = Less(x, x)", GraphUse(), id="compared with itself"),
        pytest.param("y = Add(x, x)", GraphUse(), id="arithmetic"),
        pytest.param(
            "s = Shape(x)\n e = Slice(s, zero, one)\n y = Slice(positions, zero, e, zero)",
            GraphUse(positions=(16,)),
            id="positions of a table",
        ),
        pytest.param("y = Shape(x)", GraphUse(), id="nothing"),
    ],
)
def test_says_what_becomes_of_an_input(line: str, expected: GraphUse, desk: ProbeDesk) -> None:
    weights = {
        "table": _TABLE, "positions": _POSITIONS, "zero": _ZERO, "one": _ZERO + 1, "nought": _NOUGHT,
        "depth": np.array(9, dtype=np.int64),
    }  # fmt: skip
    assert uses_of_inputs(desk.parsed("(int64[N,S] x) => (y) {\n " + line + "\n}", weights)) == {"x": expected}


@pytest.mark.parametrize(
    ("first", "second", "is_table"),
    [("x", "Not(below)", True), ("x", "Identity(below)", False), ("x", "Less(nought, x)", False)],
    ids=["the other half", "the same half", "another condition"],
)
def test_a_selection_by_products_indexes_a_table_where_its_halves_are_complementary(
    first: str, second: str, desk: ProbeDesk, *, is_table: bool
) -> None:
    # How tf2onnx writes that a negative index counts from the end.
    text = f"""(int64[N,S] x) => (y) {{
        wrapped = Add(x, rows)
        below = Less(x, nought)
        other = {second}
        one = Cast<to=7>(below)
        two = Cast<to=7>(other)
        low = Mul(one, wrapped)
        high = Mul({first}, two)
        index = Add(low, high)
        y = Gather(table, index)
    }}"""
    weights = {"table": _TABLE, "nought": _NOUGHT, "rows": np.array(50, dtype=np.int64)}

    use = uses_of_inputs(desk.parsed(text, weights))["x"]

    assert (use.table_rows == 50) is is_table


_MATRIX = {
    "small": np.zeros((20, 4), dtype=np.float32), "large": np.zeros((300, 4), dtype=np.float32), "zero": _ZERO,
    "one": _ZERO + 1, "nought": _NOUGHT, "unit": _NOUGHT + 1, "edges": np.array([1.5, 2.5, -3], dtype=np.float32),
    "seven": np.float32(7), "starts": np.array([[0, 5, 12]]), "later": np.array([5, 12]), "two": np.array([2]),
    "three": np.array([3]), "afar": np.array([1 << 29]), "flat": np.array([-1]), "twelve": np.array(12),
}  # fmt: skip
_SHARED = GraphUse(table_rows=5, columns=((0, 4), (0, 6), (0, 7)), reach=((0, 19), (-5, 14), (-12, 7)), is_shifted=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "(int64[N,2] x) => (y) {\n a = Gather<axis=1>(x, nought)\n b = Gather<axis=-1>(x, unit)\n"
            " c = Gather(small, a)\n y = Gather(large, b)\n}",
            GraphUse(table_rows=20, columns=((0, 19), (0, 299))),
            id="a table by column",
        ),
        pytest.param(
            "(int64[N,2] x) => (y) {\n a = Gather<axis=1>(x, nought)\n y = Gather(small, a)\n}",
            GraphUse(table_rows=20, columns=((0, 19), None)),
            id="a column without a table",
        ),
        pytest.param(
            "(int64[N,K] x) => (y) {\n a = Gather<axis=1>(x, nought)\n b = Gather<axis=1>(x, unit)\n"
            " c = Gather(small, a)\n y = Gather(large, b)\n}",
            GraphUse(table_rows=20),
            id="columns of an open number",
        ),
        pytest.param(
            "(int64[N,K] x) => (y) {\n a = Slice(x, zero, afar, one)\n y = Gather(small, a)\n}",
            GraphUse(table_rows=20),
            id="an open number of columns up to an end that is far away",
        ),
        pytest.param(
            "(int64[N] x) => (y) {\n a = Sub(x, unit)\n y = Gather(small, a)\n}",
            GraphUse(table_rows=20, first_id=1, is_shifted=True),
            id="ids from 1 on",
        ),
        pytest.param(
            "(int64[N] x) => (y) {\n a = Add(x, unit)\n y = Gather(small, a)\n}",
            GraphUse(table_rows=20, first_id=-1, is_shifted=True),
            id="ids from -1 on",
        ),
        pytest.param(
            "(int64[N,3] x) => (y) {\n a = Add(x, starts)\n y = Gather(small, a)\n}", _SHARED, id="parts of a table"
        ),
        pytest.param(
            "(int64[N,3] x) => (y) {\n c = Cast<to=6>(x)\n a = Add(starts, c)\n f = Reshape(a, flat)\n"
            " y = Gather(small, f)\n}",
            _SHARED,
            id="parts of a table behind changes of shape",
        ),
        pytest.param(
            "(int64[N,3] x) => (y) {\n l = Slice(x, zero, one, one)\n r = Slice(x, one, three, one)\n"
            " a = Add(r, later)\n j = Concat<axis=-1>(l, a)\n y = Gather(small, j)\n}",
            _SHARED,
            id="parts of a table after a join",
        ),
        pytest.param(
            "(int64[N,3] x) => (y) {\n l = Gather<axis=1>(x, nought)\n m = Gather<axis=1>(x, unit)\n"
            " o = Unsqueeze(l, one)\n p = Unsqueeze(m, one)\n r = Slice(x, two, three, one)\n"
            " j = Concat<axis=1>(o, p, r)\n a = Add(j, starts)\n y = Gather(small, a)\n}",
            _SHARED,
            id="parts of a table of joined columns",
        ),
        pytest.param(
            "(int64[N,3] x) => (y) {\n l = Gather<axis=1>(x, nought)\n m = Gather<axis=1>(x, unit)\n"
            " a = Add(m, twelve)\n f = Gather(small, l)\n y = Gather(small, a)\n}",
            GraphUse(table_rows=8, columns=((0, 11), (0, 7), None), reach=((0, 19), (-12, 7), None), is_shifted=True),
            id="parts of a table column by column",
        ),
        pytest.param(
            "(int64[N] x) => (y) {\n a = Unsqueeze(x, one)\n y = ScatterND(small, a, large)\n}",
            GraphUse(is_place=True),
            id="where to write",
        ),
        pytest.param(
            "(float[N,3] x) => (y) {\n y = Max(x, edges)\n}",
            GraphUse(
                thresholds=tuple(
                    Threshold(value=value, columns=(column,), is_limit=True)
                    for column, value in enumerate((1.5, 2.5, -3))
                )
            ),
            id="a limit by feature",
        ),
        pytest.param(
            "(float[N,3] x) => (y) {\n a = Mul(x, seven)\n y = Greater(a, seven)\n}",
            GraphUse(),
            id="compared after arithmetic",
        ),
        pytest.param(
            "(float[N,3] x) => (y) {\n a = Less(x, seven)\n b = Mul(x, seven)\n y = Floor(b)\n}",
            GraphUse(
                thresholds=(Threshold(value=7, is_exact=False, is_level=False),),
            ),
            id="compared, and rounded after arithmetic",
        ),
        pytest.param(
            "(float[N,3] x) => (y) {\n a = Mul(x, seven)\n b = Floor(a)\n c = Cast<to=7>(b)\n y = Gather(small, c)\n}",
            GraphUse(buckets=(Buckets(scale=7, rows=20, is_exact=False),)),
            id="buckets of a table",
        ),
        pytest.param(
            "(float[N,3] x) => (y) {\n y = Round(x)\n}", GraphUse(buckets=(Buckets(shift=0.5),)), id="rounded"
        ),
    ],
)
def test_says_which_table_numbers_and_buckets_an_input_meets(text: str, expected: GraphUse, desk: ProbeDesk) -> None:
    assert uses_of_inputs(desk.parsed(text, _MATRIX))["x"] == expected
