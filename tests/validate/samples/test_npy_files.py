"""A .npy file is an input, and a folder of them is one input a file."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.errors import ParitygateError
from paritygate.validate.samples.samples import SampleSource, open_samples

if TYPE_CHECKING:
    from pathlib import Path

    from paritygate.batch import Batch


def _read(path: Path) -> list[Batch]:
    return list(open_samples(SampleSource(text=path.name, folder=path.parent, batch_size=4))())


def test_a_file_is_the_input_that_it_is_called_after(tmp_path: Path) -> None:
    values = np.arange(20, dtype=">f4").reshape(10, 2)
    np.save(tmp_path / "pixel_values.npy", np.asfortranarray(values))

    batches = _read(tmp_path / "pixel_values.npy")

    assert [list(batch.ids) for batch in batches] == [["0", "1", "2", "3"], ["4", "5", "6", "7"], ["8", "9"]]
    assert all(batch.inputs["pixel_values"].dtype == np.dtype("=f4") for batch in batches)
    np.testing.assert_array_equal(np.concatenate([batch.inputs["pixel_values"] for batch in batches]), values)


def test_a_folder_is_one_input_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "inputs"
    folder.mkdir()
    np.save(folder / "ids.npy", np.arange(6).reshape(3, 2))
    np.save(folder / "mask.npy", np.ones((3, 2), bool))

    (batch,) = _read(folder)

    assert {name: array.tolist() for name, array in batch.inputs.items()} == {
        "ids": [[0, 1], [2, 3], [4, 5]],
        "mask": [[True, True]] * 3,
    }


def test_byte_strings_are_read_as_the_text_that_they_encode(tmp_path: Path) -> None:
    words = ["예", "longer", ""]
    np.savez(tmp_path / "rows.npz", text=np.array([word.encode() for word in words]), x=np.arange(3))
    np.save(tmp_path / "text.npy", np.array([word.encode() for word in words]))

    for path in (tmp_path / "rows.npz", tmp_path / "text.npy"):
        (batch,) = _read(path)

        assert batch.inputs["text"].dtype.kind == "U"
        assert batch.inputs["text"].tolist() == words


def test_byte_strings_that_are_no_text_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "text.npy", np.array([b"fine", b"\xff\xfe"]))

    with pytest.raises(ParitygateError, match=r"'text' holds byte strings, and b'\\xff\\xfe' is not text in UTF-8"):
        _read(tmp_path / "text.npy")


def test_a_large_file_is_read_in_the_memory_of_a_few_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1000, 4000), np.float32))
    read = open_samples(SampleSource(text="x.npy", folder=tmp_path))
    tracemalloc.start()

    rows = sum(batch.rows for batch in read())
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert rows == 1000
    assert most < 2_000_000


def _cut_off(path: Path) -> None:
    np.save(path, np.zeros((10, 4)))
    path.write_bytes(path.read_bytes()[:-8])


def _with_objects(path: Path) -> None:
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


def _with_text(path: Path) -> None:
    path.write_text("no array")


@pytest.mark.parametrize("spoil", [_cut_off, _with_objects, _with_text])
def test_a_damaged_file_or_a_pickle_cannot_be_read(tmp_path: Path, spoil: object) -> None:
    path = tmp_path / "x.npy"
    spoil(path)  # type: ignore[operator]  # one of the functions above

    with pytest.raises(ParitygateError, match=f"samples {path} cannot be read: ") as caught:
        _read(path)

    assert caught.value.exit_code == 2


def test_files_with_different_numbers_of_rows_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "inputs"
    folder.mkdir()
    np.save(folder / "a.npy", np.zeros((3, 2)))
    np.save(folder / "b.npy", np.zeros((4, 2)))

    with pytest.raises(ParitygateError, match=r"the inputs have different numbers of rows \(a: 3, b: 4\)"):
        _read(folder)


def test_a_folder_of_something_else_is_refused_with_what_may_be_in_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(ParitygateError, match="are a folder without a file") as caught:
        _read(tmp_path / "folder")

    assert ".npy files" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("edges", "rows"), [((8, 6), [1, 1]), ((7, 6), [7, 6])])
def test_a_graph_with_as_many_nodes_as_edges_by_chance_is_one_row_as_all_others_are(
    tmp_path: Path, edges: tuple[int, int], rows: list[int]
) -> None:
    arrays = {}
    for case, (nodes, count) in enumerate(zip((7, 6), edges, strict=True)):
        arrays[f"g{case}/x"] = np.zeros((nodes, 4), np.float32)
        arrays[f"g{case}/edges"] = np.zeros((count, 2), np.int64)
    np.savez(tmp_path / "graphs.npz", **arrays)  # type: ignore[arg-type]  # keys are free in a mapping
    read = open_samples(SampleSource(text="graphs.npz", folder=tmp_path))
    assert [batch.rows for batch in read()] == rows
