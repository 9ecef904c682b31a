"""What the runners of engines and of ONNX Runtime's providers say to do next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from paritygate.errors import BackendError, UsageError
from paritygate.precision import Precision
from paritygate.validate.runners.emulated import open_overflow_watch
from paritygate.validate.runners.onnxruntime_providers import check_provider

_ROWS_OF_8 = """
< ir_version: 8, opset_import: ["" : 17] >
rows (float[batch, 4] x) => (float[8, 4] y) <int64[2] shape = {8, 4}>
{ h = Cast <to = 10> (x)  r = Reshape (h, shape)  y = Cast <to = 1> (r) }
"""


def test_a_provider_that_is_not_known_is_answered_with_those_that_are() -> None:
    with pytest.raises(UsageError) as caught:
        check_provider("rocm", "cuda")

    assert str(caught.value).startswith("provider 'rocm' is not known (allowed: ")
    assert caught.value.hint == "name one of the providers above"


def test_a_batch_that_fails_in_the_look_for_overflow_says_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(_ROWS_OF_8), str(path))
    watch = open_overflow_watch(path, Precision.FP16)

    with pytest.raises(BackendError, match="onnxruntime failed in emulation on x: float32") as caught:
        watch.run_watched({"x": np.zeros((3, 4), np.float32)}, 3)

    assert caught.value.hint == "check that the model was exported for such samples"


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_only_rows_of_the_model_count_as_overflow(tmp_path: Path, rows: int) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> m (float[n,4] x) => (float[n,4] y) { y = Mul(x, x) }'
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), str(path))
    watch = open_overflow_watch(path, Precision.FP16)
    inputs = np.ones((rows, 4), np.float32)

    assert watch.run_watched({"x": inputs}, rows)[1].tolist() == [False] * rows
    inputs[-1] = 300
    assert watch.run_watched({"x": inputs}, rows)[1].tolist() == [*[False] * (rows - 1), True]
