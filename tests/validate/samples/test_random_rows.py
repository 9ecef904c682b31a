"""Rows that are made up: of the shapes, dtypes and ranges asked for, and the same ones every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paritygate.errors import UsageError
from paritygate.signature import Dim
from paritygate.validate.samples.random_rows import RandomInput, RandomRows, read_random_rows
from paritygate.validate.samples.samples import SampleSource, open_samples

_DIMS = {"batch": Dim(min=1, opt=8, max=64), "sequence": Dim(min=4, opt=6, max=12)}


def _rows(rows: int = 20, **inputs: RandomInput) -> RandomRows:
    return RandomRows(inputs=inputs, rows=rows, dims=_DIMS)


def test_rows_are_of_the_shapes_and_ranges_asked_for() -> None:
    asked = _rows(
        ids=RandomInput(dtype="int32", shape=("batch", "sequence"), low=2, high=5),
        mask=RandomInput(dtype="bool", shape=("batch", "sequence"), mask=True),
        x=RandomInput(dtype="float16", shape=("batch", 3), low=-1),
        text=RandomInput(dtype="string", shape=("batch", 1)),
        scale=RandomInput(dtype="float32", shape=(2,)),
    )

    batches = list(read_random_rows(asked, 8))

    assert [batch.rows for batch in batches] == [8, 8, 4]
    assert batches[0].inputs["ids"].shape == (8, 6)
    assert {batch.inputs["ids"].shape[1] for batch in batches} <= set(range(4, 13))
    for batch in batches:
        ids, mask, x = (batch.inputs[name] for name in ("ids", "mask", "x"))
        assert ids.shape == mask.shape
        assert (ids.dtype.name, mask.dtype.name, x.dtype.name) == ("int32", "bool", "float16")
        assert ids.min() >= 2
        assert ids.max() <= 5
        assert np.abs(x).max() <= 1
        # Set at the beginning of each row, and never again once it is not.
        assert mask[:, 0].all()
        assert not (~mask[:, :-1] & mask[:, 1:]).any()
        assert batch.inputs["scale"].shape == (2,)
        assert batch.inputs["text"].dtype.kind == "U"
    assert len({row for batch in batches for row in batch.ids}) == 20


def test_rows_are_the_same_every_time_and_read_as_samples_are() -> None:
    source = SampleSource(
        text="random", folder=Path(), random=_rows(x=RandomInput(dtype="float32", shape=("batch", 2)))
    )

    first, second = list(open_samples(source)()), list(open_samples(source)())

    assert all(np.array_equal(a.inputs["x"], b.inputs["x"]) for a, b in zip(first, second, strict=True))


def test_the_number_of_rows_is_one_whatever_the_inputs_call_it() -> None:
    asked = _rows(a=RandomInput(dtype="float32", shape=("n", 2)), b=RandomInput(dtype="float32", shape=("m", 2)))

    assert {tuple(array.shape for array in batch.inputs.values()) for batch in read_random_rows(asked, 10)} == {
        ((10, 2), (10, 2))
    }


def test_a_batch_of_fixed_size_is_always_whole() -> None:
    asked = _rows(rows=5, x=RandomInput(dtype="float32", shape=(2, 3)))

    assert [batch.inputs["x"].shape for batch in read_random_rows(asked, 8)] == [(2, 3)] * 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"low": 2.0, "high": 1.0}, "random values from 2 to 1 do not exist"),
        ({"dtype": "int8", "high": 300}, "random values from 0 to 300 do not fit int8, which holds -128 to 127"),
    ],
)
def test_values_that_cannot_be_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RandomInput(**{"dtype": "float32", "shape": ("batch",), **changes})  # type: ignore[arg-type]  # of any field
