"""Which rows calibrate and which are compared: decided by what a row holds, and by nothing else."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec.structs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.codec import from_data, to_data
from paritygate.errors import UsageError
from paritygate.validate.samples.row_digest import digests_of_rows
from paritygate.validate.samples.samples import SampleSource, open_samples
from paritygate.validate.samples.split import RowsLeftOut, SampleSplit, rows_for_calibration, rows_kept


def _batch(*, ids: list[str] | None = None, **inputs: NDArray[Any]) -> Batch:
    rows = len(next(iter(inputs.values())))
    return Batch(inputs=inputs, ids=ids or [str(row) for row in range(rows)])


def _ids(batches: list[Batch], share: float = 0.5, seed: int = 0) -> list[str]:
    split = SampleSplit(share=share, seed=seed)
    return [row_id for batch in rows_for_calibration(batches, split) for row_id in batch.ids]


@given(
    rows=st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=1, max_size=40),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
)
def test_equal_rows_are_for_calibration_together_or_not_at_all(rows: list[list[int]], share: float, seed: int) -> None:
    batch = _batch(x=np.array(rows))
    first = set(_ids([batch], share, seed))

    assert first <= set(batch.ids)
    calibration = {tuple(rows[int(row)]) for row in first}
    assert calibration.isdisjoint(tuple(rows[int(row)]) for row in set(batch.ids) - first)


def test_about_the_share_is_for_calibration_and_another_seed_takes_others() -> None:
    batch = _batch(x=np.random.default_rng(0).standard_normal((2000, 3)).astype(np.float32))
    chosen = [set(_ids([batch], 0.2, seed)) for seed in (0, 1)]

    assert all(340 < len(ids) < 460 for ids in chosen)
    assert len(chosen[0] & chosen[1]) < 150


def test_filling_up_width_of_integers_and_the_sign_of_zero_do_not_matter() -> None:
    tokens = np.array([[5, 0, 7], [2, 2, 2]])
    wider = np.pad(tokens, ((0, 0), (0, 4))).astype(np.int32)
    assert digests_of_rows(_batch(x=tokens)) == digests_of_rows(_batch(x=wider))
    assert digests_of_rows(_batch(x=np.float32([[0.0, 1.0]]))) == digests_of_rows(_batch(x=np.float32([[-0.0, 1.0]])))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"x": np.array([[1, 2]])}, {"x": np.array([[2, 1]])}),
        ({"x": np.array([[0, 1]])}, {"x": np.array([[1]])}),
        ({"x": np.array([[1]]), "y": np.array([[2]])}, {"x": np.array([[2]]), "y": np.array([[1]])}),
        ({"x": np.array([["ab", "c"]])}, {"x": np.array([["a", "bc"]])}),
    ],
    ids=["order", "zeros in front", "swapped inputs", "texts"],
)
def test_other_content_has_another_digest(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> None:
    assert digests_of_rows(_batch(**one)) != digests_of_rows(_batch(**other))


def test_ids_are_no_content() -> None:
    values = np.arange(4)[:, None]
    assert digests_of_rows(_batch(x=values)) == digests_of_rows(_batch(ids=["a", "b", "c", "d"], x=values))


def test_gold_strata_and_ids_go_with_their_rows() -> None:
    values = np.arange(50)
    batch = Batch(
        inputs={"x": values[:, None], "scalar": np.array(3)},
        ids=[str(value) for value in values],
        gold=values,
        strata={"half": ["low" if value < 25 else "high" for value in values]},
    )
    (kept,) = rows_for_calibration([batch], SampleSplit(share=0.5))

    assert 0 < kept.rows < 50
    assert kept.inputs["x"][:, 0].tolist() == [int(row_id) for row_id in kept.ids]
    assert kept.gold is not None
    assert kept.gold.tolist() == [int(row_id) for row_id in kept.ids]
    assert list(kept.strata["half"]) == ["low" if int(row_id) < 25 else "high" for row_id in kept.ids]
    assert kept.inputs["scalar"] == 3


def test_a_batch_whose_inputs_share_no_rows_is_taken_or_left_as_a_whole() -> None:
    batches = [
        Batch(inputs={"a": np.full((2, 3), number), "b": np.full((5,), number)}, ids=[str(number)])
        for number in range(40)
    ]
    first = _ids(batches)
    assert 0 < len(first) < 40
    (whole,) = (batch for batch in rows_for_calibration(batches, SampleSplit(share=0.5)) if batch.ids == [first[0]])
    assert whole.inputs["a"].shape == (2, 3)


def test_what_rows_are_filled_up_with_is_no_content_whatever_it_is() -> None:
    rows, fill = np.array([[5, 0, 7]]), {"x": (1.0,)}
    filled = np.pad(rows, ((0, 0), (0, 3)), constant_values=1)

    assert digests_of_rows(_batch(x=rows), fill=fill) == digests_of_rows(_batch(x=filled), fill=fill)
    assert digests_of_rows(_batch(x=rows)) != digests_of_rows(_batch(x=filled))
    # Then zeros are content.
    assert digests_of_rows(_batch(x=rows), fill=fill) != digests_of_rows(_batch(x=np.array([[5, 0, 7, 0]])), fill=fill)
    tenth = {"x": (0.1,)}
    one, other = (np.float32([[2.0, *[0.1] * times]]) for times in (0, 2))
    assert digests_of_rows(_batch(x=one), fill=tenth) == digests_of_rows(_batch(x=other), fill=tenth)


@pytest.mark.parametrize("pad", [0, 1, -1])
def test_a_row_that_stands_twice_is_taken_twice_whatever_it_is_padded_with(tmp_path: Path, pad: int) -> None:
    drawn = np.random.default_rng(0)
    rows = [drawn.integers(2, 50, drawn.integers(2, 9)).tolist() for _ in range(60)]
    order = drawn.permutation(60)
    lines = [json.dumps({"x": rows[at]}) for at in (*range(60), *order)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    source = SampleSource(text="rows.jsonl", folder=tmp_path, batch_size=4, pad={"x": pad})

    taken = Counter(
        tuple(value for value in row if value != pad)
        for batch in open_samples(msgspec.structs.replace(source, split=SampleSplit(share=0.5)))()
        for row in batch.inputs["x"].tolist()
    )
    assert 0 < len(taken) < 60
    assert taken.keys() <= set(map(tuple, rows))
    assert set(taken.values()) == {2}


def test_rows_left_out_are_counted_once_however_often_the_samples_are_read() -> None:
    values = np.arange(50)
    batch = Batch(
        inputs={"x": values[:, None]},
        ids=[str(value) for value in values],
        strata={"all": ["same"] * 50, "each": [str(value) for value in values]},
    )
    left_out = RowsLeftOut(strata=("all", "each"), are_left_out=lambda batch: [int(row) % 3 == 0 for row in batch.ids])
    for _ in range(2):
        left_out.start()
        kept = rows_kept(batch, left_out.rows_to_keep(batch))

    assert left_out.rows == 50 - kept.rows == 17
    assert left_out.values_left_out() == {
        "all": {},
        "each": {str(value): 1 for value in sorted(map(str, values)) if value not in kept.ids},
    }


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_that_takes_nothing_or_everything_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="cannot be held out"):
        SampleSplit(share=share)


def test_the_same_rows_of_a_file_are_taken_by_every_reader_and_through_json(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(1).standard_normal((60, 2)))
    found = []
    for size in (7, 60):
        source = SampleSource(text="rows.npz", folder=tmp_path, batch_size=size, split=SampleSplit(share=0.3))
        again = from_data(SampleSource, to_data(source))
        assert again == source
        found.append([row_id for batch in open_samples(again)() for row_id in batch.ids])
    assert 0 < len(found[0]) < 60
    assert found[0] == found[1]
