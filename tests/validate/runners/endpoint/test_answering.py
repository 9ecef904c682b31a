"""A request of the Open Inference Protocol becomes arrays of the model's dtypes, or is refused; nothing is cast."""

from __future__ import annotations

import json
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from paritygate.errors import UsageError
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.endpoint.answering import described_tensors, tensors_answered, tensors_asked
from paritygate.validate.runners.endpoint.open_inference import _outputs
from paritygate.validate.runners.endpoint.tensors import DATATYPES


def signature(dtype: str) -> Signature:
    spec = TensorSpec(name="x", dtype=dtype, shape=("batch", 2))
    return Signature(inputs=(spec,), outputs=(spec,))


def request(data: object, dtype: str, **other: object) -> dict[str, Any]:
    said = {"name": "x", "datatype": DATATYPES[dtype], "shape": [1, 2], "data": data, **other}
    return dict(json.loads(json.dumps({"inputs": [said]})))


VALUES: dict[str, list[Any]] = {
    "bool": [True, False],
    "int8": [-128, 127],
    "uint64": [0, 2**64 - 1],
    "int64": [-(2**63), 2**63 - 1],
    "float16": [0.5, -65504.0],
    "bfloat16": [0.5, 2.0],
    "float32": [2.0**-100, 2.0**127],
    "float64": [1e-300, 1e300],
    "string": ["a", "é"],
}


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("is_nested", [False, True])
def test_values_arrive_and_go_back_as_they_are(*, dtype: str, is_nested: bool) -> None:
    values = VALUES[dtype]

    arrays = tensors_asked(request([values] if is_nested else values, dtype), signature(dtype))

    assert arrays["x"].shape == (1, 2)
    assert arrays["x"].dtype == np.dtype(object if dtype == "string" else dtype)
    assert arrays["x"].ravel().tolist() == values
    # What is answered is what the client of `compare` reads.
    answered = json.loads(json.dumps({"outputs": tensors_answered(arrays, signature(dtype))}))
    found = _outputs(answered["outputs"], b"")["x"]
    assert (found.shape, found.dtype) == ((1, 2), arrays["x"].dtype)
    assert found.ravel().tolist() == values


@pytest.mark.parametrize(
    ("data", "dtype", "words"),
    [
        ([1.5, 2], "int64", "cannot be read as INT64: ValueError: the values are float64"),
        ([1, 128], "int8", "the values are 1 to 128, but int8 holds -128 to 127"),
        ([-1, 1], "uint8", "the values are -1 to 1, but uint8 holds 0 to 255"),
        ([0, 2**64], "uint64", "cannot be read as UINT64"),
        ([0, 1.5], "uint64", "cannot be read as UINT64"),
        ([1, 0], "bool", "the values are int64"),
        ([True, False], "int64", "the values are bool"),
        (["1", "2"], "float32", "the values are <U1"),
        ([1, 1e300], "float32", "cannot be read as FP32: FloatingPointError"),
        ([1, None], "float32", "cannot be read as FP32"),
        ([[1], [2, 3]], "float32", "cannot be read as FP32"),
        ([1, 2, 3], "float32", "cannot reshape array of size 3"),
        ([1, 2], "string", "not every value is text"),
        (None, "float32", "cannot be read as FP32"),
    ],
)
def test_values_that_are_not_of_the_datatype_are_refused(data: object, dtype: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        tensors_asked(request(data, dtype), signature(dtype))


def test_text_that_came_as_bytes_is_text() -> None:
    asked = request(["a", "é"], "string")
    asked["inputs"][0]["data"] = [word.encode() for word in asked["inputs"][0]["data"]]

    assert tensors_asked(asked, signature("string"))["x"].ravel().tolist() == ["a", "é"]
    asked["inputs"][0]["data"][1] = b"\xff"
    with pytest.raises(UsageError, match="cannot be read as BYTES: UnicodeDecodeError"):
        tensors_asked(asked, signature("string"))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ([], "the request has no list of inputs"),
        ({}, "the request has no list of inputs"),
        ({"inputs": ["x"]}, "the request has no list of inputs"),
        (request([1, 2], "float32", name="y"), "the request has the input 'y' (allowed: x, once)"),
        ({"inputs": request([1, 2], "float32")["inputs"] * 2}, "the request has the input 'x' twice"),
        (request([1, 2], "float64"), "has x in datatype 'FP64', but the model expects FP32"),
        (request([1, 2], "float32", shape=[2]) | {}, ""),
        (request([1, 2], "float32", shape="2"), ""),
        (request([1, 2], "float32", shape=None), "cannot be read as FP32: TypeError"),
    ],
)
def test_a_request_of_another_form_is_refused(asked: Any, words: str) -> None:  # noqa: ANN401 - JSON data
    if not words:
        # Another shape is for the runner to refuse, which knows the model's.
        assert tensors_asked(asked, signature("float32"))["x"].shape == (2,)
        return
    with pytest.raises(UsageError, match=re.escape(words)):
        tensors_asked(asked, signature("float32"))


def test_dims_of_any_size_are_described_as_such() -> None:
    assert described_tensors(signature("float16").inputs) == [{"name": "x", "datatype": "FP16", "shape": [-1, 2]}]
    assert np.dtype(ml_dtypes.bfloat16).name == "bfloat16"
