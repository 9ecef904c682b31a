"""What dims are of each other in all samples: found in the shapes of the batches."""

from __future__ import annotations

import numpy as np
import pytest
from tests.convert.conftest import sign

from paritygate.batch import Batch
from paritygate.pipelines.jobs.dim_ties import SizesSeen

_DECODER = sign(
    {"ids": "int64[batch, new]", "mask": "int64[batch, total]", "cache": "float32[batch, past, 4]"},
    {"y": "float32[batch, new]"},
)


def _ties(*sizes: tuple[int, int, int, int]) -> dict[str, str]:
    seen = SizesSeen(_DECODER)
    for batch, new, past, total in sizes:
        inputs = {
            "ids": np.full((batch, new), 7),
            "mask": np.ones((batch, total), np.int64),
            "cache": np.ones((batch, past, 4), np.float32),
        }
        seen.add(Batch(inputs=inputs, ids=[str(row) for row in range(batch)]))
    return seen.ties()


def test_the_mask_of_a_decoder_is_as_long_as_its_cache_and_what_is_new() -> None:
    assert _ties((4, 2, 5, 7), (3, 1, 6, 7), (4, 3, 9, 12)) == {"total": "new + past"}
    assert _ties((4, 2, 5, 7)) == {"total": "new + past"}


def test_a_relation_that_one_batch_does_not_keep_is_none() -> None:
    assert _ties((4, 2, 5, 7), (3, 1, 6, 7), (4, 3, 9, 13)) == {}


def test_an_empty_cache_is_a_part_of_the_mask_and_not_the_other_way_round() -> None:
    assert _ties((4, 5, 0, 5)) == {"total": "new + past"}


def test_a_dim_that_is_always_one_longer_than_another_is_known_from_three_sizes_on() -> None:
    seen, fewer = SizesSeen(_ONE_TOKEN), SizesSeen(_ONE_TOKEN)
    for past in (3, 8, 5):
        inputs = {"mask": np.ones((2, past + 1), np.int64), "cache": np.ones((2, past, 4), np.float32)}
        batch = Batch(inputs=inputs, ids=["a", "b"])
        seen.add(batch)
        if past > 3:
            fewer.add(batch)
    assert seen.ties() == {"total": "past + 1"}
    assert fewer.ties() == {}


_ONE_TOKEN = sign(
    {"mask": "int64[batch, total]", "cache": "float32[batch, past, 4]"},
    {"y": "float32[batch]"},
)


@pytest.mark.parametrize("sizes", [(4, 3, 7, 11), (4, 2, 4, 8)], ids=["no sum", "only with the rows"])
def test_rows_are_no_dim_to_add(sizes: tuple[int, int, int, int]) -> None:
    assert _ties(sizes) == {}


def test_samples_without_batches_tell_nothing() -> None:
    assert _ties() == {}
