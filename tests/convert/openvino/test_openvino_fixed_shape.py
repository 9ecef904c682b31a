"""Dims of an OpenVINO artifact fixed: another shape, casts where inputs enter, and the same answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.convert.conftest import sign

from paritygate.convert.checked import convert_and_check, fix_and_check
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.errors import ConversionError
from paritygate.models.fixed_shape import FixedShape
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.validate.runners.fixed_shape import FixedShapeRunner
from paritygate.validate.runners.opening import open_runner

pytestmark = pytest.mark.openvino

_MASKED = """
< ir_version: 8, opset_import: ["" : 17] >
masked (int64[batch, n] ids, bool[batch, n] mask) => (float[batch, n] scores) {
    zero = Sub (ids, ids)
    kept = Where (mask, ids, zero)
    scores = Cast <to = 1> (kept)
}
"""
_SIGNATURE = sign({"ids": "int64[batch, n]", "mask": "bool[batch, n]"}, {"scores": "float32[batch, n]"})
_PAD = {"ids": 3.0, "mask": 0.0}
_BAKED = """
< ir_version: 8, opset_import: ["" : 17] >
baked (float[batch, n] x) => (float[batch, 6] y) <float[1, 6] offset = {1, 2, 3, 4, 5, 6}> { y = Add (x, offset) }
"""


_LINEAR = """
< ir_version: 8, opset_import: ["" : 17] >
linear (float[batch, 2] x) => (float[batch, 2] y) <float[2, 2] w = {0.1, 1.2, 2.3, 3.4}> { y = MatMul (x, w) }
"""


def _base(folder: Path, text: str, signature: Signature, precision: Precision = Precision.FP32) -> ModelRef:
    """Return the OpenVINO artifact of an ONNX model in text."""
    onnx.save(onnx.parser.parse_model(text), str(folder / "model.onnx"))
    source = ModelRef(text="model.onnx", folder=folder, kind=SourceKind.ONNX)
    job = ConversionJob(source=source, folder=folder / "base", signature=signature, precision=precision)
    made = convert_and_check(job, "openvino")
    return ModelRef(text=made.main, folder=job.folder, kind=SourceKind.OPENVINO)


def _fix(base: ModelRef, folder: Path, rule: FixedShape) -> tuple[ModelRef, Conversion]:
    job = ConversionJob(source=base, folder=folder / "fixed", signature=rule.signature)
    conversion = fix_and_check(job, "openvino", rule)
    return ModelRef(text=conversion.main, folder=job.folder, kind=SourceKind.OPENVINO), conversion


@pytest.mark.parametrize("dtypes", [{}, {"ids": "int32", "mask": "float32"}], ids=["own", "cast"])
def test_answers_are_those_without_fixed_dims(tmp_path: Path, dtypes: dict[str, str]) -> None:
    base = _base(tmp_path, _MASKED, _SIGNATURE)
    rule = FixedShape(dims={"batch": 2, "n": 5}, pad=_PAD, dtypes=dtypes, signature=_SIGNATURE)

    fixed, conversion = _fix(base, tmp_path, rule)

    assert conversion.signature == rule.fixed_signature
    assert len(conversion.notes) == len(dtypes)
    runner = FixedShapeRunner(open_runner(LoadedModel(ref=fixed)), rule)
    inputs = {"ids": np.arange(12).reshape(3, 4), "mask": np.random.default_rng(0).random((3, 4)) < 0.5}
    expected = open_runner(LoadedModel(ref=base)).run(inputs)["scores"]
    assert np.array_equal(runner.run(inputs)["scores"], expected)
    assert expected.any()


def test_the_settings_are_those_of_the_base(tmp_path: Path) -> None:
    signature = sign({"x": "float32[batch, 2]"}, {"y": "float32[batch, 2]"})
    base = _base(tmp_path, _LINEAR, signature, Precision.BF16)

    fixed, _ = _fix(base, tmp_path, FixedShape(dims={"batch": 2}, signature=signature))

    name = "model.config.json"
    assert (fixed.folder / name).read_bytes() == (base.folder / name).read_bytes()
    assert b"bf16" in (fixed.folder / name).read_bytes()


def test_a_shape_that_the_model_is_not_made_for_is_refused(tmp_path: Path) -> None:
    signature = sign({"x": "float32[batch, n]"}, {"y": "float32[batch, 6]"})
    base = _base(tmp_path, _BAKED, signature)

    with pytest.raises(ConversionError, match="cannot fix batch 1, n 8"):
        _fix(base, tmp_path, FixedShape(dims={"batch": 1, "n": 8}, pad={"x": 0}, signature=signature))
