"""Rows of tables become batches: what is filled up, what is kept, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.errors import ParitygateError
from paritygate.validate.samples.samples import SampleSource, open_samples

if TYPE_CHECKING:
    from pathlib import Path

    from paritygate.batch import Batch


def _read(folder: Path, *rows: object, pad: dict[str, float] | None = None) -> list[Batch]:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(open_samples(SampleSource(text="rows.jsonl", folder=folder, pad=pad or {}, key="samples"))())


def test_rows_of_vectors_are_filled_up_with_vectors(tmp_path: Path) -> None:
    boxes = [[[1, 2, 3, 4], [5, 6, 7, 8]], [[9, 9, 9, 9]], []]

    (batch,) = _read(tmp_path, *({"bbox": row} for row in boxes), pad={"bbox": 7})

    fill = [7, 7, 7, 7]
    expected = [[[1, 2, 3, 4], [5, 6, 7, 8]], [[9, 9, 9, 9], fill], [fill, fill]]
    assert batch.inputs["bbox"].dtype == np.int64
    assert batch.inputs["bbox"].tolist() == expected
    assert batch.lengths == {"bbox": [2, 1, 0]}


def test_rows_of_vectors_of_different_lengths_need_a_pad(tmp_path: Path) -> None:
    with pytest.raises(ParitygateError, match=r"the lists of 'bbox' have different lengths \(1 to 2\)") as caught:
        _read(tmp_path, {"bbox": [[1, 2]]}, {"bbox": [[1, 2], [3, 4]]})

    assert caught.value.hint is not None
    assert caught.value.hint.endswith("samples.pad: {bbox: 0} in the spec")


def test_integers_beside_fractions_are_float32_in_a_batch(tmp_path: Path) -> None:
    (batch,) = _read(tmp_path, {"x": [1, 2]}, {"x": [0.5]}, pad={"x": 0})

    assert batch.inputs["x"].dtype == np.float32
    assert batch.inputs["x"].tolist() == [[1, 2], [0.5, 0]]


def test_a_row_without_entries_does_not_make_floats_of_integers(tmp_path: Path) -> None:
    (batch,) = _read(tmp_path, {"x": []}, {"x": [3]}, pad={"x": 1})

    assert batch.inputs["x"].dtype == np.int64
    assert batch.inputs["x"].tolist() == [[1], [3]]


def test_truth_values_stay_such_where_they_are_filled_up(tmp_path: Path) -> None:
    (batch,) = _read(tmp_path, {"x": [True]}, {"x": [True, True]}, pad={"x": 0})

    assert batch.inputs["x"].dtype == np.bool_
    assert batch.inputs["x"].tolist() == [[True, False], [True, True]]


def test_text_is_read_as_strings(tmp_path: Path) -> None:
    (batch,) = _read(tmp_path, {"text": "예", "both": ["a", "b"]}, {"text": "longer", "both": ["c", "d"]})

    assert batch.inputs["text"].tolist() == ["예", "longer"]
    assert batch.inputs["text"].dtype.kind == "U"
    assert batch.inputs["both"].tolist() == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (([[1, 2]], [[1, 2, 3]]), "row '1' holds a list of numbers in the shape [2], row '2' a list of numbers in the"),
        ((1, [1]), "row '1' holds a number, row '2' a list of numbers"),
        (("a", 1), "row '1' holds a text, row '2' a number"),
        (([1, "a"], [1, "a"]), "'x' holds text, and one of the values is an int, not text"),
        (("a\0", "b"), r"'x' holds text, and 'a\x00' ends in a null character"),
        ((["a"], ["b", "c"]), "the lists of 'x' have different lengths (1 to 2)"),
        (({"a": 1}, {"a": 2}), "the values of 'x' are neither numbers nor text"),
        ((None, None), "the values of 'x' are neither numbers nor text"),
    ],
)
def test_values_that_form_no_array_are_refused_with_the_reason(
    tmp_path: Path, values: tuple[object, object], message: str
) -> None:
    with pytest.raises(ParitygateError) as caught:
        _read(tmp_path, *({"x": value} for value in values), pad={"x": 0})

    assert message in str(caught.value)
    assert caught.value.exit_code == 2
