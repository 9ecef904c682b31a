"""Captured traffic: its forms, and lines that are none."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paritygate.errors import InputFileError
from paritygate.pipelines.shadow.capture import CapturedFile, requests
from paritygate.signature import Signature, TensorSpec

_SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="int64", shape=("batch", 2)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch",)),),
)
_NAMED = {"inputs": {"x": [[1, 2], [3, 4]]}, "outputs": {"y": [0.5, 1]}}
_V2 = {
    "request": {"inputs": [{"name": "x", "datatype": "INT64", "shape": [2, 2], "data": [1, 2, 3, 4]}]},
    "response": {"outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [0.5, 1.0]}]},
    "status": 200,
}

Write = Callable[..., CapturedFile]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes lines, and returns the file."""

    def write(*lines: Mapping[str, Any] | str, end: str = "\n") -> CapturedFile:
        path = tmp_path / "traffic.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts) + end, encoding="utf-8")
        return CapturedFile(path=path, name="traffic.jsonl", signature=_SIGNATURE)

    return write


@pytest.mark.parametrize("line", [_NAMED, _V2, {"request": _NAMED, "response": _NAMED}])
def test_both_forms_hold_the_same_arrays(write: Write, line: Mapping[str, Any]) -> None:
    (exchange,) = write(line).exchanges()

    assert exchange.outputs is not None
    assert (exchange.line, exchange.rows) == (1, 2)
    assert exchange.inputs["x"].dtype == np.int64
    assert exchange.inputs["x"].tolist() == [[1, 2], [3, 4]]
    assert exchange.outputs["y"].dtype == np.float32
    assert exchange.outputs["y"].tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("change", "is_answered", "is_refused"),
    [
        ({"status": 400}, False, True),
        ({"status": 404, "request": {"inputs": "none"}}, False, True),
        ({"status": 503}, False, False),
        ({"response": {"error": "out of memory"}}, False, False),
        ({"response": None}, False, False),
        ({"status": "200"}, False, False),
        ({"status": 201}, True, False),
    ],
)
def test_a_request_without_an_answer_is_kept(
    write: Write, *, change: Mapping[str, Any], is_answered: bool, is_refused: bool
) -> None:
    (found,) = write({**_V2, **change}).exchanges()

    assert (found.outputs is not None, found.is_refused) == (is_answered, is_refused)
    assert bool(found.why) is not is_answered


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[1]",
        "{}",
        {**_NAMED, "inputs": "none"},
        {**_V2, "request": None},
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_request_is_an_error_with_its_number(write: Write, line: Mapping[str, Any] | str) -> None:
    with pytest.raises(InputFileError, match="line 2") as caught:
        list(write(_NAMED, line).exchanges())

    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "request_",
    [
        {"inputs": {"z": [[1, 2]]}},
        {"inputs": {"x": [[1, 2]], "z": [[1, 2]]}},
        {"inputs": {"x": [[1, 2.5]]}},
        {"inputs": {"x": [[1], [2, 3]]}},
        {"inputs": {"x": []}},
        {"inputs": {"x": 3}},
        {"inputs": {"x": [[1, 2, 3]]}},
        {"inputs": [{"name": "z", "datatype": "INT64", "shape": [1, 2], "data": [1, 2]}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]},
        {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 3], "data": [1, 2]}]},
        {"inputs": [{"name": "x", "datatype": "INT64", "shape": [2, 2]}]},
        {"inputs": [{"name": "x", "datatype": "FP99", "shape": [1], "data": [1]}]},
    ],
)
def test_a_request_that_the_release_does_not_accept_is_left_out(write: Write, request_: Mapping[str, Any]) -> None:
    first, unfit, last = write(_V2, {**_V2, "request": request_}, _V2).exchanges()

    assert [each.is_unfit for each in (first, unfit, last)] == [False, True, False]
    assert (unfit.line, unfit.outputs, unfit.rows) == (2, None, 0)


@pytest.mark.parametrize(
    "response",
    [
        {"outputs": {"y": ["0.5", "1"]}},
        {"outputs": {"y": [[1], [2, 3]]}},
        {"outputs": "none"},
        {"outputs": [{"name": "y", "datatype": "FP99", "shape": [2], "data": [0.5, 1]}]},
        {"outputs": [{"name": "y", "datatype": "FP32", "shape": [3], "data": [0.5, 1]}]},
        {"outputs": [3]},
    ],
)
def test_an_answer_that_cannot_be_read_is_a_fault_of_the_server(write: Write, response: Mapping[str, Any]) -> None:
    found, after = write({**_V2, "response": response}, _V2).exchanges()

    assert (found.outputs, found.is_unreadable, found.rows, after.is_unreadable) == (None, True, 2, False)
    assert not {"0.5", "none", "FP99"} & set(found.why.split())


def test_a_last_line_that_is_cut_off_is_left_out(write: Write) -> None:
    assert [exchange.line for exchange in write(_NAMED, "", json.dumps(_V2)[:-9], end="").exchanges()] == [1]
    assert [exchange.line for exchange in write(_NAMED, "", _V2, end="").exchanges()] == [1, 3]


def test_a_line_that_is_left_out_is_known(write: Write) -> None:
    assert write(_NAMED, json.dumps(_V2)[:-9], end="").is_cut_off
    assert not write(_NAMED, _V2, end="").is_cut_off
    assert not write(_NAMED, end="\n\n").is_cut_off
    assert not write(end="").is_cut_off


def test_a_child_reads_the_same_requests(write: Write, tmp_path: Path) -> None:
    captured = write(_NAMED, {**_V2, "status": 500}, _V2)
    captured.save(tmp_path / "captured.json")

    batches = list(requests(str(tmp_path / "captured.json")))

    assert [batch.rows for batch in batches] == [2, 2]
    assert len({name for batch in batches for name in batch.ids}) == 4


@pytest.mark.parametrize("is_text", [True, False])
def test_parquet_holds_the_same(tmp_path: Path, *, is_text: bool) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows: list[dict[str, Any]] = [
        _V2,
        {**_V2, "response": None, "status": 503},
        {"request": _NAMED, "response": _NAMED},
        {"request": _NAMED, "response": "<html>"},
    ]
    rows = [
        {key: json.dumps(row[key]) if is_text and isinstance(row[key], dict) else row[key] for key in row}
        for row in (rows if is_text else rows[:2])
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "traffic.parquet")
    captured = CapturedFile(path=tmp_path / "traffic.parquet", name="traffic.parquet", signature=_SIGNATURE)

    first, unanswered, *named = captured.exchanges()
    assert (first.line, first.inputs["x"].tolist(), unanswered.outputs) == (1, [[1, 2], [3, 4]], None)
    assert first.outputs is not None
    assert first.outputs["y"].tolist() == [0.5, 1.0]
    assert [each.outputs is not None for each in named] == [True, False] * is_text
    assert not captured.is_cut_off


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "traffic.parquet").write_bytes(b"PAR1?")
    captured = CapturedFile(path=tmp_path / "traffic.parquet", name="traffic.parquet", signature=_SIGNATURE)

    with pytest.raises(InputFileError):
        list(captured.exchanges())
