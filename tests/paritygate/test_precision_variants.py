"""How variants are written and read: format, precision, and dims that are fixed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritygate.errors import UsageError
from paritygate.pipelines.spec.names import check_variant
from paritygate.precision import Precision, Variant

_DIMS = st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.integers(1, 10**6), max_size=4)


@given(st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True), st.sampled_from(list(Precision)), _DIMS)
def test_what_is_written_is_read_again(form: str, precision: Precision, dims: dict[str, int]) -> None:
    variant = Variant(format=form, precision=precision, static=tuple(dims.items()))

    assert Variant.parse(str(variant)) == variant
    assert variant.dynamic == Variant(format=form, precision=precision)


def test_fixed_dims_follow_in_their_order() -> None:
    variant = Variant(format="onnx", precision=Precision.FP32, static=(("sequence", 128), ("batch", 1)))

    assert str(variant) == "onnx-fp32@sequence=128,batch=1"
    assert str(variant.dynamic) == "onnx-fp32"
    assert Variant.parse("onnx-fp32").static == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("onnx", "is not of the form FORMAT-PRECISION"),
        ("@batch=1", "is not of the form FORMAT-PRECISION"),
        ("onnx-fp64", "ends in 'fp64', which is not a precision"),
        ("onnx-fp64@batch=1", "ends in 'fp64', which is not a precision"),
        ("onnx-fp32@", "fixes '', which is not of the form DIM=SIZE"),
        ("onnx-fp32@batch", "fixes 'batch', which is not of the form DIM=SIZE"),
        ("onnx-fp32@batch=0", "fixes 'batch=0', which is not of the form DIM=SIZE"),
        ("onnx-fp32@batch=-1", "fixes 'batch=-1', which is not of the form DIM=SIZE"),
        ("onnx-fp32@batch=01", "fixes 'batch=01', which is not of the form DIM=SIZE"),
        ("onnx-fp32@batch=1,", "fixes '', which is not of the form DIM=SIZE"),
        ("onnx-fp32@../x=1", "fixes '../x=1', which is not of the form DIM=SIZE"),
        ("onnx-fp32@batch=1,batch=2", "dim 'batch' is fixed twice"),
    ],
)
def test_what_is_no_variant_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        Variant.parse(text)

    assert words in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ((("2*batch", 1),), "dim '2*batch' cannot be fixed: its name"),
        ((("batch", 0),), "dim 'batch' cannot be fixed at 0"),
    ],
)
def test_dims_that_cannot_be_fixed_are_refused(dims: tuple[tuple[str, int], ...], words: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be fixed") as caught:
        Variant(format="onnx", precision=Precision.FP32, static=dims)

    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["onnx-fp32", "source", "onnx-fp32@batch=1", "onnx-fp32@batch=1,sequence=128"])
def test_a_variant_names_a_folder_of_a_release(name: str) -> None:
    assert check_variant(name) == name


@pytest.mark.parametrize(
    "name",
    ["onnx-fp32@", "@batch=1", "../onnx@batch=1", "onnx-fp32@batch=1/../x=1", "onnx-fp32@batch=", "onnx-fp32@a=1@b=2",
     "onnx-fp32@batch=1 ", f"onnx-fp32@{'x' * 200}=1"],
)  # fmt: skip
def test_a_name_that_means_something_to_a_file_system_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"name .* is not allowed"):
        check_variant(name)
