"""A model with fixed dims on inputs of any size: filled up by rule, run in parts, and only real answers returned."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.convert.conftest import sign

from paritygate.convert.conversion import ConversionJob
from paritygate.convert.onnx.fixed_shape import fix
from paritygate.errors import BackendError
from paritygate.models.fixed_shape import FixedShape
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.validate.runners.emulated import open_emulated
from paritygate.validate.runners.fixed_shape import FixedShapeRunner
from paritygate.validate.runners.onnxruntime import OnnxRuntimeRunner, open_model

# Every row is answered by itself, and nothing but kept places counts: padding cannot change an answer.
_ROW_WISE = """
< ir_version: 8, opset_import: ["" : 17] >
rows (int64[batch, n] ids, int64[batch, n] mask, float[1] scale) =>
     (float[batch, n] kept, float[batch] total, float[n, batch] turned) <int64[1] axes = {1}> {
    masked = Mul (ids, mask)
    plain = Cast <to = 1> (masked)
    kept = Mul (plain, scale)
    total = ReduceSum <keepdims = 0> (kept, axes)
    turned = Transpose <perm = [1, 0]> (kept)
}
"""
_SIGNATURE = sign(
    {"ids": "int64[batch, n]", "mask": "int64[batch, n]", "scale": "float32[1]"},
    {"kept": "float32[batch, n]", "total": "float32[batch]", "turned": "float32[n, batch]"},
)
_PAD = {"ids": 7.0, "mask": 0.0}
_SCALE = np.array([0.5], np.float32)

Make = Callable[..., FixedShapeRunner]


def _source(path: Path) -> ModelRef:
    return ModelRef(text=path.name, folder=path.parent, kind=SourceKind.ONNX)


def _dynamic(folder: Path, text: str = _ROW_WISE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "dynamic.onnx"
    onnx.save(onnx.parser.parse_model(text), str(path))
    return path


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return what makes a runner of the row-wise model with dims fixed; equal ones are made once."""
    dynamic = _dynamic(tmp_path_factory.mktemp("dynamic"))

    @cache
    def _made(dims: tuple[tuple[str, int], ...], dtypes: tuple[tuple[str, str], ...]) -> FixedShapeRunner:
        pad = _PAD if "n" in dict(dims) else {}
        rule = FixedShape(dims=dict(dims), pad=pad, dtypes=dict(dtypes), signature=_SIGNATURE)
        folder = tmp_path_factory.mktemp("fixed")
        fix(ConversionJob(source=_source(dynamic), folder=folder), rule)
        return FixedShapeRunner(open_model(LoadedModel(ref=_source(folder / "model.onnx"))), rule)

    def _make(dtypes: dict[str, str] | None = None, **dims: int) -> FixedShapeRunner:
        return _made(tuple(dims.items()), tuple((dtypes or {}).items()))

    return _make


@pytest.fixture(scope="module")
def unpadded(tmp_path_factory: pytest.TempPathFactory) -> OnnxRuntimeRunner:
    """Return the runner of the same model with no dim fixed."""
    return open_model(LoadedModel(ref=_source(_dynamic(tmp_path_factory.mktemp("unpadded")))))


def _inputs(rows: int, length: int, seed: int = 0) -> dict[str, NDArray[np.generic]]:
    random = np.random.default_rng(seed)
    # Small whole numbers: sums of them are exact, in whatever order they are made.
    ids, mask = (random.integers(low, high, (rows, length)) for low, high in ((-99, 99), (0, 2)))
    return {"ids": ids, "mask": mask, "scale": _SCALE}


_DIMS = st.fixed_dictionaries({}, optional={"batch": st.integers(1, 4), "n": st.just(6)}).filter(bool)


@given(rows=st.integers(1, 9), length=st.integers(0, 6), dims=_DIMS, is_cast=st.booleans(), seed=st.integers(0, 99))
def test_answers_are_those_without_fixed_dims(
    *, make: Make, unpadded: OnnxRuntimeRunner, rows: int, length: int, dims: dict[str, int], is_cast: bool, seed: int
) -> None:
    inputs = _inputs(rows, length, seed)
    expected = unpadded.run(inputs)

    actual = make({"ids": "int32", "mask": "float32"} if is_cast else None, **dims).run(inputs)

    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (array.dtype, array.shape)
        assert np.array_equal(actual[name], array), name


def test_it_takes_and_returns_what_the_model_did_before(make: Make) -> None:
    runner = make({"ids": "int32"}, batch=2, n=6)

    assert runner.signature == _SIGNATURE


def test_the_notes_say_the_rule_and_count_the_calls_that_were_padded(make: Make) -> None:
    runner = make({"mask": "float32"}, batch=4, n=6)
    before = runner.facts.notes

    runner.run(_inputs(8, 6))
    runner.run(_inputs(5, 6))
    runner.run(_inputs(4, 5))

    rule = (
        "static: batch 4, n 6; missing rows padded with copies of the last one; "
        "n padded on the right (ids with 7, mask with 0); results cut back"
    )
    assert before == (rule, "inputs given in other dtypes: mask float32")
    assert runner.facts.notes[0] == f"{rule}; of 5 calls were padded: batch in 1, n in 1"


def test_outputs_belong_to_the_caller(make: Make) -> None:
    runner = make(batch=2, n=6)

    first = runner.run(_inputs(2, 6))
    first["kept"][:] = 99

    assert not (runner.run(_inputs(2, 6))["kept"] == 99).any()
    assert first["total"].flags.writeable
    assert first["kept"].flags.c_contiguous


def test_inputs_longer_than_the_fixed_size_are_not_accepted(make: Make) -> None:
    with pytest.raises(BackendError, match="the inputs have n 7, but the model accepts at most 6"):
        make(batch=2, n=6).run(_inputs(2, 7))


def test_inputs_without_rows_are_not_accepted(make: Make) -> None:
    with pytest.raises(BackendError, match="the batch has no rows"):
        make(batch=2).run(_inputs(0, 3))


def test_inputs_that_contradict_each_other_are_not_accepted(make: Make) -> None:
    inputs = {**_inputs(2, 6), "mask": np.ones((2, 5), np.int64)}

    with pytest.raises(BackendError, match="dim 'n' is both 6 and 5 in ids"):
        make(batch=2, n=6).run(inputs)


@pytest.mark.parametrize(
    ("dtypes", "name", "value", "is_held"),
    [
        ({"ids": "int32"}, "ids", 2**31 - 1, True),
        ({"ids": "int32"}, "ids", 2**31, False),
        ({"ids": "int32"}, "ids", -(2**31), True),
        ({"ids": "int32"}, "ids", -(2**31) - 1, False),
        ({"mask": "float32"}, "mask", 2**24, True),
        ({"mask": "float32"}, "mask", 2**24 + 1, False),
        ({"mask": "float32"}, "mask", -(2**24) - 2, False),
        ({"mask": "float32"}, "mask", 2**63 - 1, False),
    ],
)
def test_a_value_is_only_cast_where_the_dtype_holds_it(
    *, make: Make, unpadded: OnnxRuntimeRunner, dtypes: dict[str, str], name: str, value: int, is_held: bool
) -> None:
    inputs = {"ids": np.ones((1, 6), np.int64), "mask": np.ones((1, 6), np.int64), "scale": _SCALE}
    inputs[name] = np.full((1, 6), value)
    runner = make(dtypes, batch=1, n=6)

    if is_held:
        assert np.array_equal(runner.run(inputs)["kept"], unpadded.run(inputs)["kept"])
    else:
        with pytest.raises(BackendError, match=f"the input '{name}' holds values from {value} to {value}, but"):
            runner.run(inputs)


def _wrapped(folder: Path, text: str, signature: Signature, rule: FixedShape | None = None) -> FixedShapeRunner:
    """Return the model, not fixed, under a rule that need not be its own."""
    path = _dynamic(folder, text)
    rule = rule or FixedShape(dims={"batch": 2}, signature=signature)
    return FixedShapeRunner(open_model(LoadedModel(ref=_source(path))), rule)


_HEADER = '< ir_version: 8, opset_import: ["" : 17] >'


def test_rows_that_are_mixed_are_seen(tmp_path: Path) -> None:
    text = f"""{_HEADER} mixed (float[batch, 2] x) => (float[batch, 2] y) {{
        average = ReduceMean <axes = [0]> (x)
        y = Sub (x, average)
    }}"""
    runner = _wrapped(tmp_path, text, sign({"x": "float32[batch, 2]"}, {"y": "float32[batch, 2]"}))
    x = np.array([[1, 2], [3, 4], [7, 8]], np.float32)

    actual = runner.run({"x": x})["y"]

    # The third row is answered beside its own copy, not beside the other two.
    assert actual.tolist() == [[-1, -1], [1, 1], [0, 0]]


def test_an_answer_of_another_size_is_not_cut_into_a_right_one(tmp_path: Path) -> None:
    text = f"{_HEADER} twice (float[batch, 2] x) => (float[rows, 2] y) {{ y = Concat <axis = 0> (x, x) }}"
    runner = _wrapped(tmp_path, text, sign({"x": "float32[batch, 2]"}, {"y": "float32[batch, 2]"}))

    with pytest.raises(BackendError, match=r"the model with batch 2 fixed returned y: float32\[4, 2\] for y"):
        runner.run({"x": np.ones((1, 2), np.float32)})


def test_parts_that_differ_in_size_are_not_joined(tmp_path: Path) -> None:
    text = f"{_HEADER} found (float[batch, 2] x) => (int64[batch, m] y) {{ t = NonZero (x) y = Identity (t) }}"
    runner = _wrapped(tmp_path, text, sign({"x": "float32[batch, 2]"}, {"y": "int64[batch, m]"}))

    with pytest.raises(BackendError, match="do not fit together: their shapes are"):
        runner.run({"x": np.array([[1, 1], [1, 1], [1, 0]], np.float32)})


def test_a_rule_of_another_model_is_refused(tmp_path: Path) -> None:
    rule = FixedShape(dims={"batch": 2}, dtypes={"ids": "int32"}, signature=_SIGNATURE)

    with pytest.raises(BackendError, match="the fixed shape is for another model"):
        _wrapped(tmp_path, _ROW_WISE, _SIGNATURE, rule)


def test_an_emulated_model_is_run_by_the_same_rule(tmp_path: Path, unpadded: OnnxRuntimeRunner) -> None:
    rule = FixedShape(dims={"batch": 2, "n": 6}, pad=_PAD, signature=_SIGNATURE)
    fix(ConversionJob(source=_source(_dynamic(tmp_path / "base")), folder=tmp_path), rule)
    emulated = open_emulated(LoadedModel(ref=_source(tmp_path / "model.onnx")), Precision.FP16)
    runner = FixedShapeRunner(emulated, rule)
    inputs = _inputs(3, 4)

    actual = runner.run(inputs)

    assert runner.facts.device == "emulated:fp16"
    assert all(np.array_equal(actual[name], array) for name, array in unpadded.run(inputs).items())
