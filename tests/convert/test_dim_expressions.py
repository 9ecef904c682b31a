"""Expressions of sizes are compared by what they come to at the sizes promised."""

from __future__ import annotations

import pytest

from paritygate.convert.contract import agreed_signature
from paritygate.convert.dim_expressions import are_equal
from paritygate.errors import ConversionError
from paritygate.signature import Dim, Signature, TensorSpec

_DIMS = {"batch": Dim(min=1, opt=8, max=16), "items": Dim(min=1, opt=10, max=20), "past": Dim(min=1, opt=8, max=16)}


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("((batch*items + items - 1)//items)", "batch", True),
        ("((batch*items + items)//items)", "batch", False),
        ("Max(1, batch)", "batch", True),
        ("Max(2, batch)", "batch", False),
        ("Min(batch, 16)", "batch", True),
        # Another one at the largest size alone.
        ("batch + batch//16", "batch", False),
        ("batch % 17", "batch", True),
        ("-(-batch)", "batch", True),
        ("batch**2 // batch", "batch", True),
        ("batch // (batch - 1)", "batch // (batch - 1)", False),
        ("2*s77", "batch", False),
        ("batch-size", "batch-size", True),
        ("max(batch, 1)", "batch", False),
        ("__import__('os').getpid()", "batch", False),
        ("batch.size", "batch", False),
        ("True", "1", False),
        ("", "batch", False),
    ],
)
def test_expressions_are_equal_that_have_one_value_at_every_size(one: str, other: str, is_equal: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert are_equal(one, other, _DIMS) is is_equal


def test_what_is_tied_is_put_in_for_a_dim() -> None:
    text = "past + Max(0, past - Min(past, total) + 1)"
    assert not are_equal(text, "total", _DIMS)
    assert are_equal(text, "total", _DIMS, {"total": "past + 1"})
    assert not are_equal(text, "total", _DIMS, {"total": "past + 2"})


def _found(*sizes: str) -> tuple[Signature, Signature]:
    x = TensorSpec(name="x", dtype="float32", shape=("batch", "past"))
    outputs = [
        tuple(TensorSpec(name=f"y{n}", dtype="float32", shape=("batch", size)) for n, size in enumerate(shape))
        for shape in (sizes, ["present"] * len(sizes))
    ]
    found, promised = (Signature(inputs=(x,), outputs=some, dims=_DIMS) for some in outputs)
    return found, promised


def test_a_name_that_no_input_has_stands_for_what_is_found_first() -> None:
    found, promised = _found("past + 1", "1 + past")
    assert agreed_signature(found, promised, keeps_names=True).outputs == promised.outputs


def test_one_name_for_two_sizes_is_refused() -> None:
    found, promised = _found("past + 1", "past + 2")
    with pytest.raises(ConversionError, match=r"dim 1 of output 'y1' is past \+ 2, expected present"):
        agreed_signature(found, promised, keeps_names=True)


def test_a_tie_alone_makes_no_input_fit_but_the_one_it_is_of() -> None:
    mask, past = (TensorSpec(name=name, dtype="int64", shape=(size,)) for name, size in (("m", "total"), ("p", "past")))
    tied = TensorSpec(name="m", dtype="int64", shape=("past + 1",))
    promised, found = (Signature(inputs=(one, past), outputs=(), dims=_DIMS) for one in (mask, tied))
    with pytest.raises(ConversionError, match=r"dim 0 of input 'm' is past \+ 1, expected total"):
        agreed_signature(found, promised, keeps_names=True)
    assert agreed_signature(found, promised, keeps_names=True, ties={"total": "past + 1"}).inputs == promised.inputs
