"""Values that are sent as bytes come back as they were, whatever their dtype and shape."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from paritygate.errors import BackendError
from paritygate.signature import TensorSpec
from paritygate.validate.runners.endpoint.tensors import (
    DATATYPES,
    as_bytes,
    as_json_values,
    check_answer,
    datatype_of,
    from_bytes,
    spec_of,
)

_SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@pytest.mark.parametrize("dtype", sorted(set(DATATYPES) - {"string", "bfloat16"}))
@given(data=st.data())
def test_numbers_come_back_bit_by_bit(dtype: str, data: st.DataObject) -> None:
    array = data.draw(hnp.arrays(np.dtype(dtype), _SHAPES))

    found = from_bytes(as_bytes(array), dtype, array.shape)

    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_bfloat16_comes_back() -> None:
    array = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)

    np.testing.assert_array_equal(from_bytes(as_bytes(array), "bfloat16", (2, 3)), array)


@given(words=st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)))
def test_text_comes_back_as_utf8(words: list[str]) -> None:
    array: np.ndarray[Any, Any] = np.asarray(words, dtype=str)

    assert [word.decode() for word in from_bytes(as_bytes(array), "string", (len(words),))] == words


@pytest.mark.parametrize("kind", ["S", "O"])
def test_byte_strings_are_sent_as_the_text_that_they_are(kind: str) -> None:
    words = ["", "a", "żółw"]
    array = np.asarray([word.encode() for word in words], dtype=kind)

    assert datatype_of(array) == "BYTES"
    assert from_bytes(as_bytes(array), "string", (3,)).tolist() == [word.encode() for word in words]
    assert as_json_values(array) == words


@pytest.mark.parametrize("said", [{}, {"name": "x"}, {"name": "x", "datatype": "FP8"}])
def test_a_tensor_that_is_none_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(BackendError, match="the server describes a tensor as"):
        spec_of(said)


@pytest.mark.parametrize(
    ("dtype", "shape", "is_right"),
    [
        ("float32", (4, 2), True),
        ("float16", (4, 2), False),
        ("float32", (4, 3), False),
        ("float32", (4,), False),
    ],
)
def test_an_answer_is_of_the_dtype_and_shape_that_the_server_says(
    dtype: str, shape: tuple[int, ...], *, is_right: bool
) -> None:
    spec = TensorSpec(name="logits", dtype="float32", shape=(None, 2))
    if is_right:
        check_answer(spec, dtype, shape)
        return
    with pytest.raises(BackendError, match="the server returned logits as "):
        check_answer(spec, dtype, shape)
