"""What a graph does with its inputs, as far as it says what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.validate.probes.graph_uses import GraphUse, uses_of_inputs

if TYPE_CHECKING:
    from conftest import ProbeDesk

_TABLE = np.zeros((50, 4), dtype=np.float32)
_POSITIONS = np.zeros((16, 4), dtype=np.float32)
_ZERO = np.array([0], dtype=np.int64)
_NOUGHT = np.array(0, dtype=np.int64)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("y = Gather(table, x)", GraphUse(table_rows=50), id="a table"),
        pytest.param("c = Cast<to=6>(x)\n y = Gather(table, c)", GraphUse(table_rows=50), id="a table behind a cast"),
        pytest.param("y = Gather<axis=1>(table, x)", GraphUse(table_rows=4), id="columns of a table"),
        pytest.param("y = OneHot(x, depth, table)", GraphUse(table_rows=9), id="one-hot"),
        pytest.param("y = Equal(x, nought)", GraphUse(is_compared=True, equals=0), id="compared with a number"),
        pytest.param("y = Less(x, x)", GraphUse(is_compared=True), id="compared with itself"),
        pytest.param("y = Add(x, x)", GraphUse(is_multiplied=True), id="arithmetic"),
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
