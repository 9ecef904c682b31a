"""Every channel is judged by its own spread, with the floor that its arithmetic has, and excused by itself alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Outcome

_ROWS = 300


def _normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _given(bench: Bench, expected: NDArray[np.float32], actual: NDArray[np.float32], *options: str) -> Outcome:
    return bench.given({"y": expected}, {"y": actual}, *options)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("unit", [1e-5, 1e-2, 1e3])
@pytest.mark.parametrize("factor", [0.0, 0.5, -1.0])
def test_a_spoiled_column_fails_whatever_lies_beside_it(
    bench: Bench, precision: str, unit: float, factor: float
) -> None:
    expected = _normal(_ROWS, 2) * np.array([unit, 20], np.float32) + np.array([0, 100], np.float32)
    actual = expected.copy()
    actual[:, 0] *= np.float32(factor)

    assert _given(bench, expected, expected * np.float32(1), "--precision", precision).failed == set()
    found = _given(bench, expected, actual, "--precision", precision)
    assert found.code == 1
    assert "max_abs_diff" in found.failed


@pytest.mark.parametrize("shape", [(_ROWS, 3, 8), (_ROWS, 8, 3), (_ROWS, 2, 8, 5)])
def test_quantities_in_other_units_are_channels_along_any_axis(bench: Bench, shape: tuple[int, ...]) -> None:
    units = np.logspace(3, -3, 8).astype(np.float32).reshape([8 if size == 8 else 1 for size in shape[1:]])
    expected, spoiled = _normal(*shape) * units, units.copy()
    spoiled[units == units.min()] *= 1.5

    assert _given(bench, expected, expected * np.float32(1), "--min-rows", "1").failed == set()
    found = _given(bench, expected, expected / units * spoiled)
    assert found.code == 1
    assert "max_abs_diff" in found.failed


def test_limits_for_another_axis_than_that_of_the_units_are_refused_with_the_option_that_names_it(bench: Bench) -> None:
    expected = _normal(_ROWS, 3, 8) * np.logspace(3, -3, 8).astype(np.float32)
    limits = ("--tolerance", "y:max_abs_diff=1,1,1")

    refused = _given(bench, expected, expected * np.float32(1), *limits)
    named = _given(bench, expected, expected * np.float32(1), *limits, "--axis", "y=1")

    assert (refused.code, named.code) == (2, 0)
    assert "has 3 numbers (expected 8 or 1)" in refused.err
    assert "--axis y=N" in refused.err


def _bounded() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return small probabilities, and the same with a rounding in every fifth row that is large for such a row."""
    expected = np.random.default_rng(0).uniform(0.5e-4, 1.5e-4, (_ROWS, 1)).astype(np.float32)
    return expected, expected + np.float32(1.6e-8) * (np.arange(_ROWS) % 5 == 0)[:, None].astype(np.float32)


def test_without_a_graph_a_bounded_output_has_the_floor_in_the_check_of_rows(bench: Bench) -> None:
    found = _given(bench, *_bounded())

    assert found.failed == set()
    # The row alone is beyond the share that it may differ by: what it is held to is the floor.
    assert found.check("max_row_rel_diff")["limit"] > 1e-4


@pytest.mark.parametrize("error", [1.5e-7, 2.5e-7])
def test_where_a_value_fails_the_row_is_not_relaxed(bench: Bench, error: float) -> None:
    expected, actual = _bounded()
    actual[7] += np.float32(error)

    assert {"max_abs_diff", "max_row_rel_diff"} <= _given(bench, expected, actual).failed


def _click(bench: Bench, name: str, *, rounding: float = 0.0, factor: float = 1.0) -> str:
    """Write `Sigmoid(x - 9)`, around 1e-4, and add a rounding that differs by row."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 17]>
        {name} (float[batch, 1] x) => (float[batch, 1] y)
        <float offset = {{9}}, float rounding = {{{rounding:.10f}}}, float factor = {{{factor}}}>
        {{
          moved = Sub (x, offset)
          share = Sigmoid (moved)
          scaled = Mul (share, factor)
          error = Mul (x, rounding)
          sum = Add (scaled, error)
          y = {"Identity (scaled)" if not rounding else "Identity (sum)"}
        }}
    """)
    path = bench.folder / f"{name}.onnx"
    onnx.save(model, path)
    return str(path)


@pytest.mark.parametrize(
    ("rounding", "factor", "code"), [(1.6e-7, 1, 0), (4e-6, 1, 1), (1.6e-7, 1.02, 1), (1.6e-7, 0.5, 1)]
)
def test_a_click_model_is_judged_by_what_sigmoids_differ_by(
    bench: Bench, rounding: float, factor: float, code: int
) -> None:
    samples = bench.npz("rows.npz", {"x": _normal(_ROWS, 1) / 4})
    candidate = _click(bench, "candidate", rounding=rounding, factor=factor)

    found = bench.compare(_click(bench, "reference"), candidate, "--samples", samples)

    assert found.code == code, found.out


@pytest.mark.parametrize(("decision", "column"), [("y:argmax", None), ("y:threshold=0.5", 0), ("y:threshold=0", None)])
def test_a_decision_excuses_the_columns_it_reads_alone(bench: Bench, decision: str, column: int | None) -> None:
    # FP16 has no steps for what is below 6e-8: this column cannot be judged by values.
    expected = _normal(_ROWS, 2) * np.array([1e-9, 1], np.float32)

    found = _given(bench, expected, expected * np.float32(1), "--precision", "fp16", "--decision", decision)

    lost = [check for check in found.result["checks"] if check["name"] == "resolution"]
    assert (found.code, len(lost)) == ((0, 0) if column is None else (3, 1)), found.out


def test_a_limit_of_the_column_excuses_it(bench: Bench) -> None:
    expected = _normal(_ROWS, 2) * np.array([1e-9, 1], np.float32)
    options = ("--precision", "fp16", "--tolerance")

    assert _given(bench, expected, expected * np.float32(1), *options, "y:max_abs_diff=1e-8,default").code == 0
    assert _given(bench, expected, expected * np.float32(1), *options, "y:max_abs_diff=default,0.1").code == 3


def test_columns_that_hardly_vary_are_listed_once_and_compared(bench: Bench) -> None:
    expected = _normal(_ROWS, 4)
    expected[:, 1:] = 3.0
    actual = expected.copy()
    actual[:, 2] = 3.1

    same = _given(bench, expected, expected * np.float32(1))
    assert (same.code, same.status("variation"), same.check("variation")["measured"]) == (0, "warning", 3)
    assert "max_abs_diff" in _given(bench, expected, actual).failed


def test_each_column_has_its_own_bias(bench: Bench) -> None:
    expected = _normal(_ROWS, 2) * np.array([1e-5, 1], np.float32)
    actual = expected.copy()
    actual[:, 0] += np.float32(1.5e-9)

    found = _given(bench, expected, actual)

    assert found.code == 0, found.out
    assert found.status("bias") == "warning"


def test_shares_are_held_to_the_root_mean_square_of_each_column(bench: Bench) -> None:
    logits = _normal(_ROWS, 1000).astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    actual = shares.copy()
    # One class in a thousand has the answers of another row.
    actual[:, 500] = np.roll(shares[:, 500], 1)
    expected = shares.astype(np.float32)

    found = _given(bench, expected, actual.astype(np.float32))

    assert found.code == 1
    assert "rms_diff" in found.failed
    assert _given(bench, expected, expected * np.float32(1 + 1e-6)).code == 0
