"""Which input goes where, and which output is which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.errors import UsageError
from paritygate.models.named_call import check_rename, select_outputs, source_names, takes_keywords
from paritygate.signature import Signature, TensorSpec

_ONE, _TWO, _THREE = np.array([1]), np.array([2]), np.array([3])


class _Pair(NamedTuple):
    first: NDArray[Any]
    second: NDArray[Any]


def _specs(*names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, dtype="float32", shape=None) for name in names)


def _signature(*outputs: str) -> Signature:
    return Signature(inputs=(), outputs=_specs(*outputs))


@pytest.mark.parametrize(
    ("result", "outputs", "rename", "expected", "unused"),
    [
        ({"b": _TWO, "a": _ONE, "c": _THREE}, ("a", "b"), {}, [1, 2], ("c",)),
        ({"b": _TWO, "a": _ONE}, ("x", "b"), {"a": "x"}, [1, 2], ()),
        ({"b": _TWO, "a": _ONE}, ("a", "b"), {"a": "b", "b": "a"}, [2, 1], ()),
        (_Pair(first=_ONE, second=_TWO), ("second", "first"), {}, [2, 1], ()),
        (_Pair(first=_ONE, second=_TWO), ("x", "y"), {}, [1, 2], ()),
        ((_ONE, _TWO), ("x", "y"), {}, [1, 2], ()),
        ([_ONE, _TWO], ("output_1", "output_0"), {}, [2, 1], ()),
        ((_ONE, _TWO), ("logits",), {"output_1": "logits"}, [2], ("output_0",)),
        (_ONE, ("anything",), {}, [1], ()),
    ],
)
def test_outputs_are_picked_by_name_where_they_have_one(
    result: object, outputs: tuple[str, ...], rename: dict[str, str], expected: list[int], unused: tuple[str, ...]
) -> None:
    found, left_out = select_outputs(result, _signature(*outputs), rename)
    assert [int(array[0]) for array in found] == expected
    assert left_out == unused


@pytest.mark.parametrize(
    ("result", "outputs", "message"),
    [
        ({"b": _TWO}, ("a",), r"no output 'a' \(it returned: 'b'\)"),
        (_Pair(first=_ONE, second=_TWO), ("first", "third"), "no output 'third'"),
        ((_ONE, _TWO), ("a",), "returned 2 outputs without names, the signature has 1"),
        (_ONE, ("a", "b"), "returned 1 output without names, the signature has 2"),
        ((), ("a",), "returned 0 outputs without names, the signature has 1"),
        ({"a": [1, 2]}, ("a",), "output 'a' of the model is a list, not a tensor"),
        (None, ("a",), "output 'a' of the model is a NoneType, not a tensor"),
    ],
)
def test_outputs_that_do_not_fit_the_signature_are_refused(
    result: object, outputs: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        select_outputs(result, _signature(*outputs), {})


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ({"a": "x", "b": "x"}, "serves both 'a' and 'b' as 'x'"),
        ({"y": "x"}, "'y' of the source would be served twice"),
    ],
)
def test_a_name_cannot_stand_for_two_tensors(rename: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        source_names(_specs("x", "y"), rename)


def test_renaming_to_what_the_signature_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="serves 'a' as 'z', which the signature does not have"):
        check_rename(_signature("x"), {"a": "z"})


def _two(first: int, second: int) -> None: ...
def _optional(first: int, second: int = 0) -> None: ...
def _any_keyword(first: int, **others: int) -> None: ...
def _any(*args: int, **kwargs: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "names", "expected"),
    [
        (_two, ("second", "first"), True),
        (_two, ("a", "b"), False),
        (_optional, ("first",), True),
        (_optional, ("a",), False),
        (_any_keyword, ("first", "z"), True),
        (_any, ("a", "b", "c"), False),
        (len, ("a",), False),
    ],
)
def test_keywords_are_used_where_the_function_has_them_all(
    function: Callable[..., Any],
    names: tuple[str, ...],
    expected: bool,  # noqa: FBT001 - a case of the test
) -> None:
    assert takes_keywords(function, names, "it") is expected


@pytest.mark.parametrize(
    ("function", "names", "message"),
    [
        (_two, ("first", "z"), "it has no parameter 'z'"),
        (_two, ("first",), r"it needs 'second', which the signature does not have \(it has: 'first'\)"),
        (_two, ("a",), "it does not accept 1 input in order"),
        (_two, ("a", "b", "c"), "it does not accept 3 inputs in order"),
        (_any_keyword, ("z",), "it needs 'first'"),
    ],
)
def test_names_that_fit_only_in_part_are_refused(
    function: Callable[..., Any], names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        takes_keywords(function, names, "it")
