"""Parquet files and data sets on disk are the same samples as JSON lines, read a few rows at a time."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritygate.errors import MissingBackendError, ParitygateError
from paritygate.validate.samples.samples import SampleSource, open_samples

if TYPE_CHECKING:
    from pathlib import Path

    from paritygate.batch import Batch

pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
pq = pytest.importorskip("pyarrow.parquet")


def _read(folder: Path, name: str, *, batch_size: int = 4, pad: dict[str, float] | None = None) -> list[Batch]:
    return list(open_samples(SampleSource(text=name, folder=folder, batch_size=batch_size, pad=pad or {}))())


def save_to_disk(folder: Path, *tables: Any) -> None:  # noqa: ANN401 - pyarrow has no types
    """Write tables as `datasets` does: one Arrow stream a file, and a state that names the files."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05d}-of-{len(tables):05d}.arrow" for number in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def _assert_same(found: list[Batch], expected: list[Batch]) -> None:
    assert [list(batch.ids) for batch in found] == [list(batch.ids) for batch in expected]
    for one, other in zip(found, expected, strict=True):
        assert dict(one.lengths) == dict(other.lengths)
        assert set(one.inputs) == set(other.inputs)
        for name, array in one.inputs.items():
            assert (array.dtype, array.shape) == (other.inputs[name].dtype, other.inputs[name].shape), name
            np.testing.assert_array_equal(array, other.inputs[name])


_FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
_INTS = st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


@st.composite
def _tables(draw: st.DrawFn) -> dict[str, tuple[Any, list[Any]]]:
    """Columns by name, each with its Arrow type and the values of the rows."""
    rows, width = draw(st.integers(1, 9)), draw(st.integers(1, 3))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=rows, max_size=rows))

    return {
        "id": (pa.string(), [f"r{row}" for row in range(rows)]),
        "number": (pa.float32(), column(_FLOATS)),
        "flag": (pa.bool_(), column(st.booleans())),
        "text": (pa.string(), column(_TEXT)),
        "vector": (pa.list_(pa.float32()), column(st.lists(_FLOATS, min_size=width, max_size=width))),
        "ids": (pa.list_(pa.int64()), column(st.lists(_INTS, min_size=1, max_size=4))),
        "boxes": (
            pa.list_(pa.list_(pa.int64())),
            column(st.lists(st.lists(_INTS, min_size=width, max_size=width), min_size=1, max_size=3)),
        ),
    }


@settings(max_examples=15, deadline=None)
@given(columns=_tables(), batch_size=st.integers(1, 5), group=st.integers(1, 4))
def test_the_same_rows_are_the_same_batches_in_every_kind_of_file(
    tmp_path_factory: pytest.TempPathFactory, columns: dict[str, tuple[Any, list[Any]]], batch_size: int, group: int
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    rows = len(columns["id"][1])
    lines = [{name: values[row] for name, (_, values) in columns.items()} for row in range(rows)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    table = pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
    pq.write_table(table, folder / "rows.parquet", row_group_size=group)
    save_to_disk(folder / "dataset", table.slice(0, group), table.slice(group))
    rectangular = {name: np.array(columns[name][1], np.float32) for name in ("number", "vector")}
    np.savez(folder / "rows.npz", **rectangular)

    pad = {"ids": 0, "boxes": -1}
    expected = _read(folder, "rows.jsonl", batch_size=batch_size, pad=pad)

    _assert_same(_read(folder, "rows.parquet", batch_size=batch_size, pad=pad), expected)
    _assert_same(_read(folder, "dataset", batch_size=batch_size, pad=pad), expected)
    for batch, other in zip(_read(folder, "rows.npz", batch_size=batch_size), expected, strict=True):
        for name, array in batch.inputs.items():
            np.testing.assert_array_equal(array, other.inputs[name], strict=True)


def test_columns_keep_their_dtypes_where_they_are_filled_up(tmp_path: Path) -> None:
    kinds = {"a": pa.list_(pa.int32()), "b": pa.large_list(pa.float64()), "c": pa.list_(pa.bool_())}
    values = {"a": [[1], [2, 3]], "b": [[0.5], [1.5, 2.5]], "c": [[True], [True, True]]}
    pq.write_table(
        pa.table({name: pa.array(values[name], kind) for name, kind in kinds.items()}), tmp_path / "x.parquet"
    )

    (batch,) = _read(tmp_path, "x.parquet", pad={"a": 0, "b": 0.25, "c": 0})

    assert {name: array.dtype.name for name, array in batch.inputs.items()} == {
        "a": "int32",
        "b": "float64",
        "c": "bool",
    }
    assert batch.inputs["b"].tolist() == [[0.5, 0.25], [1.5, 2.5]]
    assert list(batch.ids) == ["0", "1"]


def test_lists_of_one_size_and_entries_of_a_dictionary_are_read(tmp_path: Path) -> None:
    table = pa.table(
        {
            "x": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
            "label": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")

    (batch,) = _read(tmp_path, "x.parquet")

    assert batch.inputs["x"].tolist() == [[1, 2], [3, 4]]
    assert batch.inputs["label"].tolist() == ["a", "b"]


def test_a_long_file_is_read_in_the_memory_of_a_few_rows(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(4_000_000).astype(np.float32)
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(values), 64)})
    pq.write_table(table, tmp_path / "x.parquet", compression="none")
    size = (tmp_path / "x.parquet").stat().st_size
    before, most, rows = pa.total_allocated_bytes(), 0, 0

    for batch in open_samples(SampleSource(text="x.parquet", folder=tmp_path, batch_size=500))():
        most = max(most, pa.total_allocated_bytes() - before)
        rows += batch.rows

    assert rows == 62_500
    assert most < size / 4


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[[1, 2]], [[1], [2]]], "the values of 'x' do not form an array: lists in it hold 1 to 2 entries"),
        ([[1], [2, 3]], "the lists of 'x' have different lengths (1 to 2)"),
        ([1, None], "'x' holds null in one of the rows '0'..'1'"),
        ([[1], [None]], "'x' holds null in one of the rows '0'..'1'"),
        (
            [{"a": 1}, {"a": 2}],
            "the column 'x' holds struct<a: int64> (allowed: numbers, bool, text, and lists of these)",
        ),
        ([b"a", b"b"], "the column 'x' holds binary (allowed"),
        (["a\0", "b"], "ends in a null character"),
    ],
)
def test_a_column_that_is_no_input_is_refused_with_the_reason(tmp_path: Path, column: list[Any], message: str) -> None:
    pq.write_table(pa.table({"x": column}), tmp_path / "x.parquet")

    with pytest.raises(ParitygateError) as caught:
        _read(tmp_path, "x.parquet")

    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_fill_that_the_column_does_not_hold_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([[1], [2, 3]], pa.list_(pa.uint8()))}), tmp_path / "x.parquet")

    with pytest.raises(ParitygateError, match="--pad fills 'x' with -1, but its values are uint8") as caught:
        _read(tmp_path, "x.parquet", pad={"x": -1})

    assert caught.value.hint == "give a value from 0 to 255"


def test_ids_that_stand_twice_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 1], "x": [1, 2, 3]}), tmp_path / "x.parquet")

    with pytest.raises(ParitygateError, match="the id '1' occurs twice"):
        _read(tmp_path, "x.parquet", batch_size=2)


def test_damaged_tables_are_input_files_that_cannot_be_read(tmp_path: Path) -> None:
    table = pa.table({"x": list(range(1000))})
    pq.write_table(table, tmp_path / "x.parquet")
    content = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(content[:-20])
    save_to_disk(tmp_path / "cut", table)
    (file,) = (tmp_path / "cut").glob("*.arrow")
    file.write_bytes(file.read_bytes()[:600])
    save_to_disk(tmp_path / "gone", table)
    next((tmp_path / "gone").glob("*.arrow")).unlink()
    save_to_disk(tmp_path / "state", table)
    (tmp_path / "state/state.json").write_text("{")

    save_to_disk(tmp_path / "pipe", table)
    (file,) = (tmp_path / "pipe").glob("*.arrow")
    file.unlink()
    os.mkfifo(file)

    for name in ("x.parquet", "cut", "gone", "state", "pipe"):
        with pytest.raises(ParitygateError, match=f"samples {tmp_path / name} cannot be read: ") as caught:
            _read(tmp_path, name)
        assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"_data_files": "x"}, "state.json does not name the files of a data set"),
        ([], "state.json does not name the files of a data set"),
        (
            {"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]},
            "an old version of datasets saved them",
        ),
        ({"_data_files": [{"filename": "../x.arrow"}]}, "is wanted, and the name '../x.arrow'"),
    ],
)
def test_a_state_that_names_no_files_of_its_folder_is_refused(tmp_path: Path, state: object, message: str) -> None:
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset/state.json").write_text(json.dumps(state))

    with pytest.raises(ParitygateError) as caught:
        _read(tmp_path, "dataset")

    assert message in str(caught.value)


def test_of_several_splits_one_is_to_be_named(tmp_path: Path) -> None:
    save_to_disk(tmp_path / "all/test", pa.table({"x": [1]}))
    save_to_disk(tmp_path / "all/train", pa.table({"x": [1]}))
    (tmp_path / "all/dataset_dict.json").write_text('{"splits": ["train", "test"]}')

    with pytest.raises(ParitygateError, match="are a data set of several splits: test, train") as caught:
        _read(tmp_path, "all")

    assert caught.value.hint == f"name one of them: {tmp_path / 'all/test'}"
    assert len(_read(tmp_path, "all/train")) == 1


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    save_to_disk(tmp_path / "dataset", table)

    with pytest.raises(ParitygateError, match="hold two columns 'x'"):
        _read(tmp_path, "dataset")


def test_without_pyarrow_the_command_that_installs_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.parquet").write_bytes(b"")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(
        MissingBackendError, match="pyarrow is needed to read Parquet files and data sets as samples"
    ) as caught:
        open_samples(SampleSource(text="x.parquet", folder=tmp_path))

    assert caught.value.hint is not None
    assert "[parquet]" in caught.value.hint
