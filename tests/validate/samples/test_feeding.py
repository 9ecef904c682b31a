"""Whether a batch of samples is within the sizes that a model takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.batch import Batch
from paritygate.errors import UsageError
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.validate.samples.feeding import check_shapes, fit_inputs
from paritygate.validate.samples.split import rows_kept

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHAPE = ("batch", "sequence")
_SIGNATURE = Signature(
    inputs=(TensorSpec(name="ids", dtype="int64", shape=_SHAPE), TensorSpec(name="mask", dtype="int64", shape=_SHAPE)),
    outputs=(),
    dims={"batch": Dim(min=2, opt=2, max=4), "sequence": Dim(min=2, opt=4, max=6)},
)


def _batch(rows: int, ids: int, mask: int, *, lengths: tuple[Sequence[int], Sequence[int]] | None = None) -> Batch:
    return Batch(
        inputs={"ids": np.zeros((rows, ids), np.int64), "mask": np.zeros((rows, mask), np.int64)},
        ids=[f"r{row}" for row in range(rows)],
        lengths={} if lengths is None else {"ids": lengths[0], "mask": lengths[1]},
    )


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            _batch(2, 7, 7),
            (
                "from row 'r0' on, 'ids' has the shape [2, 7]: axis 1, 'sequence', is 7, and model.dims.sequence "
                "declares 2 to 6"
            ),
        ),
        (
            _batch(2, 7, 7, lengths=([3, 7], [3, 7])),
            (
                "at row 'r1', 'ids' has the shape [2, 7]: axis 1, 'sequence', is 7, and model.dims.sequence "
                "declares 2 to 6"
            ),
        ),
        (
            _batch(2, 1, 1),
            (
                "from row 'r0' on, 'ids' has the shape [2, 1]: axis 1, 'sequence', is 1, and model.dims.sequence "
                "declares 2 to 6"
            ),
        ),
        (
            _batch(2, 4, 5),
            "from row 'r0' on, 'ids' has 4 places of 'sequence' and 'mask' has 5, but the model expects one size",
        ),
        (
            _batch(2, 4, 4, lengths=([4, 3], [4, 4])),
            "row 'r1' is 3 long in 'ids' and 4 in 'mask', but the model expects one 'sequence' for both",
        ),
    ],
)
def test_sizes_outside_of_the_declared_and_rows_of_two_lengths_are_wrong_usage(batch: Batch, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_shapes(batch, batch.inputs, _SIGNATURE)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "batch",
    [_batch(2, 6, 6), _batch(1, 2, 2), _batch(5, 4, 4), _batch(2, 4, 4, lengths=([4, 1], [4, 1])), _batch(4, 5, 5)],
)
def test_what_is_declared_is_taken_however_many_rows_a_batch_has(batch: Batch) -> None:
    check_shapes(batch, batch.inputs, _SIGNATURE)


def test_the_lengths_of_rows_go_with_the_rows() -> None:
    kept = rows_kept(_batch(3, 4, 4, lengths=([4, 1, 2], [4, 1, 2])), [True, False, True])
    assert kept.lengths == {"ids": [4, 2], "mask": [4, 2]}


@pytest.mark.parametrize(
    ("shape", "fitted"), [(("batch", 1), (3, 1)), ((None, 1), (3, 1)), (("batch",), (3,)), (("batch", "length"), (3,))]
)
def test_one_value_a_row_is_a_column_where_the_model_takes_one(
    shape: tuple[int | str | None, ...], fitted: tuple[int, ...]
) -> None:
    signature = Signature(inputs=(TensorSpec(name="colour", dtype="string", shape=shape),), outputs=())
    colours = np.array(["red", "green", "red"])

    found = fit_inputs(Batch(inputs={"colour": colours}, ids=["a", "b", "c"]), signature)

    assert found["colour"].shape == fitted
    assert found["colour"].ravel().tolist() == colours.tolist()


@pytest.mark.parametrize(
    ("wanted", "seen", "hint"),
    [
        (("n", 3, 8, 8), (2, 8, 8, 3), "x.transpose(0, 3, 1, 2)"),
        (("n", 8, 8, 3), (2, 3, 8, 8), "x.transpose(0, 2, 3, 1)"),
        (("n", 3, "h", "w"), (2, 8, 9, 3), "x.transpose(0, 3, 1, 2)"),
        (("n", 3, 8, 8), (2, 3, 4, 4), ""),
        (("n", 3, 8, 8), (2, 8, 8, 1), ""),
    ],
)
def test_pictures_with_the_axes_of_another_layout_are_told_apart(
    wanted: tuple[int | str, ...], seen: tuple[int, ...], hint: str
) -> None:
    spec = TensorSpec(name="pixels", dtype="float32", shape=wanted)
    batch = Batch(inputs={"pixels": np.zeros(seen, np.float32)}, ids=["a", "b"])

    with pytest.raises(UsageError) as caught:
        check_shapes(batch, batch.inputs, Signature(inputs=(spec,), outputs=()))

    assert caught.value.hint.endswith(hint or "that the model expects")
