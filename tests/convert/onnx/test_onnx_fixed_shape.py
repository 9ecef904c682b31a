"""Dims of an ONNX artifact fixed: sizes in place of names, casts where inputs enter, and the same answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.convert.conftest import sign

from paritygate.convert.checked import FIXERS, fix_and_check
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.errors import ConversionError, StorageError
from paritygate.models.fixed_shape import FIXED_SHAPE_FILE, FixedShape, read_fixed_shape
from paritygate.models.onnx.file import signature_of_onnx
from paritygate.models.source import ModelRef, SourceKind
from paritygate.signature import Signature

_MASKED = """
< ir_version: 8, opset_import: ["" : 17] >
masked (int64[batch, sequence] ids, int64[batch, sequence] mask) => (float[batch, sequence] scores) {
    kept = Mul (ids, mask)
    scores = Cast <to = 1> (kept)
}
"""
_MASKED_SIGNATURE = sign(
    {"ids": "int64[batch, sequence]", "mask": "int64[batch, sequence]"}, {"scores": "float32[batch, sequence]"}
)
_CHOICE = """
< ir_version: 8, opset_import: ["" : 17] >
choice (bool[batch, n] flag, float[batch, n] x) => (float[batch, n] y) <int64 one = {1}> {
    some = Cast <to = 7> (flag)
    highest = ReduceMax <keepdims = 0> (some)
    is_any = Equal (highest, one)
    y = If (is_any) <
        then_branch = flagged () => (float[batch, n] a) { zero = Sub (x, x)  a = Where (flag, x, zero) },
        else_branch = plain () => (float[batch, n] b) { b = Neg (x) }
    >
}
"""
_CHOICE_SIGNATURE = sign({"flag": "bool[batch, n]", "x": "float32[batch, n]"}, {"y": "float32[batch, n]"})


def _rule(signature: Signature, *, pad: float = 0, dtypes: dict[str, str] | None = None, **dims: int) -> FixedShape:
    padded = {
        spec.name: pad
        for spec in signature.inputs
        if any(isinstance(dim, str) and dim in dims and dim != "batch" for dim in spec.shape or ())
    }
    return FixedShape(dims=dims, pad=padded, dtypes=dtypes or {}, signature=signature)


def _fix(tmp_path: Path, text: str | onnx.ModelProto, rule: FixedShape) -> tuple[onnx.ModelProto, Conversion]:
    source = tmp_path / "base" / "model.onnx"
    source.parent.mkdir(exist_ok=True)
    onnx.save(onnx.parser.parse_model(text) if isinstance(text, str) else text, str(source))
    return _fix_file(tmp_path, source, rule)


def _fix_file(tmp_path: Path, source: Path, rule: FixedShape) -> tuple[onnx.ModelProto, Conversion]:
    job = ConversionJob(
        source=ModelRef(text=source.name, folder=source.parent, kind=SourceKind.ONNX),
        folder=tmp_path / "fixed",
        signature=rule.signature,
    )
    conversion = fix_and_check(job, "onnx", rule)
    return onnx.load(str(job.folder / conversion.main)), conversion


def _run(model: onnx.ModelProto | Path, **inputs: np.ndarray) -> np.ndarray:
    data = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, inputs)[0]
    return found


def test_sizes_stand_where_names_stood(tmp_path: Path) -> None:
    rule = _rule(_MASKED_SIGNATURE, batch=2, sequence=3)

    model, conversion = _fix(tmp_path, _MASKED, rule)

    assert conversion.signature == signature_of_onnx(model) == rule.fixed_signature
    assert not [dim for value in (*model.graph.input, *model.graph.value_info, *model.graph.output)
                for dim in value.type.tensor_type.shape.dim if not dim.HasField("dim_value")]  # fmt: skip
    # What is inside is known again, for the sizes that hold now.
    assert [value.name for value in model.graph.value_info] == ["kept"]
    assert conversion.facts["fixed"] == {"batch": 2, "sequence": 3}
    assert "loaded_in" in conversion.facts
    assert read_fixed_shape(tmp_path / "fixed" / FIXED_SHAPE_FILE) == rule


def test_dims_that_are_not_fixed_stay_open(tmp_path: Path) -> None:
    model, conversion = _fix(tmp_path, _MASKED, _rule(_MASKED_SIGNATURE, sequence=3))

    assert str(conversion.signature.inputs[0]) == "ids: int64[batch, 3]"
    ids = np.arange(15, dtype=np.int64).reshape(5, 3)
    assert np.array_equal(_run(model, ids=ids, mask=ids), ids * ids)


def test_inputs_are_cast_back_where_they_enter(tmp_path: Path) -> None:
    rule = _rule(_MASKED_SIGNATURE, batch=1, sequence=3, dtypes={"ids": "int32", "mask": "float32"})

    model, conversion = _fix(tmp_path, _MASKED, rule)

    assert list(map(str, conversion.signature.inputs)) == ["ids: int32[1, 3]", "mask: float32[1, 3]"]
    assert "input ids is given as int32 and cast to int64 in the graph" in conversion.notes
    found = _run(model, ids=np.array([[2**31 - 1, -5, 7]], np.int32), mask=np.array([[1, 1, 0]], np.float32))
    assert found.tolist() == [[np.float32(2**31 - 1), -5, 0]]


def test_what_is_computed_from_shapes_is_fixed_with_them(tmp_path: Path) -> None:
    text = """
        < ir_version: 8, opset_import: ["" : 17] >
        flat (float[batch, 3, 4] x) => (float[batch, 12] y) <int64[1] rest = {-1}> {
            shape = Shape <start = 0, end = 1> (x)
            size = Concat <axis = 0> (shape, rest)
            flat = Reshape (x, size)
            y = Neg (flat)
        }
    """
    rule = FixedShape(dims={"batch": 2}, signature=sign({"x": "float32[batch, 3, 4]"}, {"y": "float32[batch, 12]"}))

    model, _ = _fix(tmp_path, text, rule)

    (flat,) = (value for value in model.graph.value_info if value.name == "flat")
    assert [dim.dim_value for dim in flat.type.tensor_type.shape.dim] == [2, 12]


def test_an_input_that_is_read_inside_a_branch_is_cast_there_too(tmp_path: Path) -> None:
    rule = _rule(_CHOICE_SIGNATURE, batch=1, n=3, dtypes={"flag": "float32"})

    model, _ = _fix(tmp_path, _CHOICE, rule)

    x = np.array([[1, 2, 3]], np.float32)
    assert _run(model, flag=np.array([[0, 1, 0]], np.float32), x=x).tolist() == [[0, 2, 0]]
    assert _run(model, flag=np.zeros((1, 3), np.float32), x=x).tolist() == [[-1, -2, -3]]


def test_a_name_that_is_taken_is_left_to_whom_it_belongs(tmp_path: Path) -> None:
    rule = _rule(_MASKED_SIGNATURE, batch=1, sequence=3, dtypes={"ids": "int32"})

    model, _ = _fix(tmp_path, _MASKED.replace("kept", "ids_in_own_dtype"), rule)

    ids = np.array([[1, 2, 3]])
    assert _run(model, ids=ids.astype(np.int32), mask=ids).tolist() == [[1, 4, 9]]


def test_weights_in_a_file_of_their_own_are_taken_along(tmp_path: Path) -> None:
    weight = np.arange(40, dtype=np.float32).reshape(4, 10)
    model = onnx.parser.parse_model("""
        < ir_version: 8, opset_import: ["" : 17] >
        linear (float[batch, 4] x) => (float[batch, 10] y) { y = MatMul (x, weight) }
    """)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    source = tmp_path / "base" / "model.onnx"
    source.parent.mkdir()
    onnx.save(model, str(source), save_as_external_data=True, location="weights.bin", size_threshold=0)
    rule = _rule(sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 10]"}), batch=2)

    _fix_file(tmp_path, source, rule)

    x = np.ones((2, 4), np.float32)
    assert np.array_equal(_run(tmp_path / "fixed" / "model.onnx", x=x), x @ weight)


def test_a_graph_that_is_made_for_another_size_is_no_sound_model(tmp_path: Path) -> None:
    # Six values a row, whatever the dim is called.
    baked = """
        < ir_version: 8, opset_import: ["" : 17] >
        baked (float[batch, n] x) => (float[batch, n] y) <float[1, 6] offset = {1, 2, 3, 4, 5, 6}> {
            y = Add (x, offset)
        }
    """
    rule = _rule(sign({"x": "float32[batch, n]"}, {"y": "float32[batch, n]"}), batch=1, n=8)

    with pytest.raises(ConversionError, match=r"fixed.model.onnx is not valid ONNX: .*Incompatible dimensions"):
        _fix(tmp_path, baked, rule)


def test_a_folder_that_is_not_empty_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "fixed").mkdir()
    (tmp_path / "fixed" / "other").write_text("", encoding="utf-8")

    with pytest.raises(StorageError, match="is not empty"):
        _fix(tmp_path, _MASKED, _rule(_MASKED_SIGNATURE, batch=1))


@pytest.mark.parametrize("form", FIXERS)
def test_every_fixer_is_a_module_that_fixes(form: str) -> None:
    import importlib

    assert callable(importlib.import_module(FIXERS[form]).fix)
