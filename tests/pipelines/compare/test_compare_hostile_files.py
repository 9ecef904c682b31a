"""Damaged, hostile and odd files and options: one clear message, the exit code of the cause, and never a pass."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Outcome


def _archive(bench: Bench, members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_DEFLATED) -> str:
    path = bench.folder / "hostile.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return str(path)


def _npy(header: str, payload: bytes = bytes(512)) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin1") + payload


def _header(shape: object, dtype: str = "<f4") -> str:
    return f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape!r}}}\n"


def _compare(bench: Bench, samples: str, *options: str) -> Outcome:
    outcome = bench.compare(bench.linear("a"), bench.linear("b", error=1e-6), "--samples", samples, *options)
    assert "unexpected" not in outcome.err + outcome.out
    assert outcome.result.get("verdict") != "pass"
    return outcome


_HEADERS = {
    "huge": _header((10**15, 4)),
    "overflowing": _header((2**62, 2**62)),
    "negative": _header((-1, 4)),
    "bool": _header((True, 128)),
    "empty-but-huge": _header((0, 10**18, 10**18)),
    "too-many-dims": _header((1,) * 70 + (128,)),
    "no-bytes-an-item": _header((32, 4), "|V0"),
    "sub-array": "{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (32, 4)}\n",
    "cut-off": "((((((((((",
    "open-string": "{'descr': '''",
}


@pytest.mark.parametrize("key", ["x", "case/x"], ids=["rows", "case"])
@pytest.mark.parametrize("header", _HEADERS.values(), ids=_HEADERS)
def test_an_array_whose_header_lies_is_a_corrupt_input_file(bench: Bench, header: str, key: str) -> None:
    outcome = _compare(bench, _archive(bench, [(f"{key}.npy", _npy(header))]))

    assert outcome.code == 2
    assert "hostile.npz cannot be read:" in outcome.message


def test_an_array_with_fewer_bytes_than_it_declares_is_refused_before_it_is_read(bench: Bench) -> None:
    outcome = _compare(bench, _archive(bench, [("x.npy", _npy(_header((10**15, 4))))]))

    assert "'x' declares 16000000000000000 bytes and holds 512" in outcome.message


def test_an_archive_with_a_name_twice_is_a_corrupt_input_file(bench: Bench) -> None:
    array = _npy(_header((32, 4)))

    with pytest.warns(UserWarning, match="Duplicate name"):
        samples = _archive(bench, [("x.npy", array), ("x.npy", array)])

    assert "holds 'x' twice" in _compare(bench, samples).message


def test_an_archive_with_a_damaged_lzma_stream_is_a_corrupt_input_file(bench: Bench) -> None:
    path = Path(_archive(bench, [("x.npy", _npy(_header((32, 4))))], zipfile.ZIP_LZMA))
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(content)

    assert _compare(bench, str(path)).code == 2


_LINES = {
    "deep": b"[" * 200_000,
    "half-a-surrogate-pair": b'{"\\ud800": [1, 2, 3, 4]}',
    "half-a-surrogate-pair-as-id": b'{"id": "\\uD800", "x": [1.5, 2, 3, 4]}',
}


@pytest.mark.parametrize("line", _LINES.values(), ids=_LINES)
def test_a_line_that_is_no_text_or_too_deep_is_a_corrupt_input_file(bench: Bench, line: bytes) -> None:
    path = bench.folder / "rows.jsonl"
    path.write_bytes(line)

    outcome = _compare(bench, str(path))

    assert outcome.code == 2
    assert "line 1: not JSON" in outcome.message


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E8M0"])
def test_safetensors_of_a_dtype_that_numpy_lacks_are_not_read(bench: Bench, dtype: str) -> None:
    header = json.dumps({"x": {"dtype": dtype, "shape": [32, 4], "data_offsets": [0, 128]}}).encode()
    path = bench.folder / "rows.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(128))

    outcome = _compare(bench, str(path))

    assert outcome.code == 2
    assert f"hold 'x' as {dtype}, which is not supported" in outcome.message


@pytest.mark.parametrize("recent", [1, 1 << 17])
def test_an_id_that_stands_twice_is_wrong_usage(bench: Bench, monkeypatch: pytest.MonkeyPatch, recent: int) -> None:
    monkeypatch.setattr("paritygate.validate.samples.tables._RECENT_IDS", recent)
    path = bench.folder / "rows.jsonl"
    rows = [{"id": f"r{row % 5}", "x": [float(row), 0.5, 1, 2]} for row in range(6)]
    path.write_text("\n".join(map(json.dumps, rows)))

    outcome = _compare(bench, str(path), "--batch-size", "2")

    assert outcome.code == 2
    assert "the id 'r0' occurs twice" in outcome.message


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("raise KeyError('x')", 5, "samples 'rows_of:rows' raised KeyError: 'x'"),
        ("yield Batch(inputs={'x': X}, ids=[1, 2])", 2, "yielded 1 as the id of a row, an int and not a str"),
        ("yield Batch(inputs={1: X}, ids=['a', 'b'])", 2, "yielded an input called 1, an int and not a str"),
        ("yield Batch(inputs={'x': X.astype(object)}, ids=['a', 'b'])", 2, "'x' as an array of Python objects"),
        ("yield Batch(inputs={'x': X}, ids=['a', 'a'])", 2, "the id 'a' occurs twice"),
    ],
)
def test_a_function_that_yields_no_samples_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, body: str, code: int, message: str
) -> None:
    text = (
        f"import numpy as np\nfrom paritygate.batch import Batch\nX = np.ones((2, 4), 'f4')\ndef rows():\n    {body}\n"
    )
    (bench.folder / "rows_of.py").write_text(text)
    monkeypatch.chdir(bench.folder)
    monkeypatch.delitem(__import__("sys").modules, "rows_of", raising=False)

    outcome = _compare(bench, "rows_of:rows")

    assert outcome.code == code
    assert message in outcome.message


@pytest.mark.parametrize("name", ["x" * 5000, "x" * 300 + ".npz"])
def test_a_name_that_is_too_long_for_a_file_is_a_missing_input_file(bench: Bench, name: str) -> None:
    outcome = bench.compare(name, bench.linear("b"), "--samples", bench.samples())

    assert outcome.code == 2
    assert "cannot be read: File name too long" in outcome.err


def test_a_folder_of_no_known_kind_is_said_to_be_one(bench: Bench) -> None:
    folder = bench.folder / "folder.npz"
    folder.mkdir()

    assert "are a folder without a file" in _compare(bench, str(folder)).message
    assert "is not a file" in bench.compare(str(folder), bench.linear("b"), "--samples", bench.samples()).err


@pytest.mark.parametrize("axis", ["1", "2"])
def test_repeats_of_outputs_that_lack_the_channel_axis_fail_by_their_shape(bench: Bench, axis: str) -> None:
    outcome = bench.given(
        {"y": bench.normal(8, 5, 6)}, {"y": bench.normal(8, 5)}, "--repeat", "2", "--axis", f"y={axis}"
    )

    assert outcome.code == 1
    assert outcome.status("contract.shape", "y") == "fail"


@pytest.mark.parametrize("rule", ["top_k=²", "top_k=--1", f"top_k={'9' * 5000}", "argmax,axis=²"])
def test_a_rule_with_an_odd_number_is_wrong_usage(bench: Bench, rule: str) -> None:
    assert _compare(bench, bench.samples(), "--decision", f"logits:{rule}").code == 2


def test_a_negative_seed_is_wrong_usage(bench: Bench) -> None:
    assert _compare(bench, bench.samples(), "--seed", "-1").code == 2


@pytest.mark.parametrize("content", [b"\x08\x09model", b'{"x": [1, 2, 3, 4]}\n{"x": [1, 2, 3, 4]}\n', b"[1]"])
def test_a_file_that_is_no_result_is_not_overwritten_by_the_result(bench: Bench, content: bytes) -> None:
    precious = bench.folder / "precious.bin"
    precious.write_bytes(content)

    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", bench.samples(), "--json", str(precious))

    assert outcome.code == 2
    assert "exists and is not a JSON result, so it is not overwritten" in outcome.err
    assert precious.read_bytes() == content


def test_a_pipe_for_the_result_stays_a_pipe(bench: Bench) -> None:
    pipe = bench.folder / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    outcome = bench.compare(
        bench.linear("a"), bench.linear("b", error=1e-6), "--samples", bench.samples(), "--json", str(pipe)
    )

    assert outcome.code == 0
    assert pipe.is_fifo()
    assert json.loads(os.read(reader, 1 << 16))["verdict"] == "pass"
    os.close(reader)


def test_cases_without_rows_may_stand_between_others(bench: Bench) -> None:
    rows = {"a": 4, "b": 0, "c": 3}
    samples = bench.npz("cases.npz", {f"{case}/x": bench.normal(size, 4) for case, size in rows.items()})
    weight = bench.normal(4, 3, seed=7)
    outputs = {f"{case}/logits": bench.normal(size, 4) @ weight for case, size in rows.items()}
    wrong = {**outputs, "c/logits": outputs["c/logits"] * np.float32(2)}

    right = bench.compare(bench.npz("right.npz", outputs), bench.linear("b"), "--samples", samples)

    assert (right.code, right.result["rows"]) == (0, 7)
    assert bench.compare(bench.npz("wrong.npz", wrong), bench.linear("b"), "--samples", samples).code == 1


@pytest.mark.parametrize("place", [b"w\0bin", b"w\xffbin"])
def test_external_data_at_a_place_that_is_no_name_is_a_corrupt_input_file(bench: Bench, place: bytes) -> None:
    import onnx

    path = Path(bench.linear("outside"))
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    path.write_bytes(path.read_bytes().replace(b"w.bin", place))

    outcome = bench.compare(bench.linear("a"), str(path), "--samples", bench.samples())

    assert (outcome.code, outcome.result["error"]["kind"]) == (2, "InputFileError")


@pytest.mark.parametrize("name", [b"batch", b"MatMul", b"weight", b"logits"])
def test_a_name_that_is_no_text_is_a_corrupt_input_file(bench: Bench, name: bytes) -> None:
    path = Path(bench.linear("odd"))
    assert name in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(name, name[:-1] + b"\xff"))

    outcome = bench.compare(bench.linear("a"), str(path), "--samples", bench.samples())

    assert (outcome.code, outcome.result["error"]["kind"]) == (2, "InputFileError")


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
@pytest.mark.parametrize("options", [(), ("--decision", "empty:argmax,axis=1"), ("--axis", "empty=1")])
def test_an_output_with_an_empty_axis_is_no_pass_and_no_crash(
    bench: Bench, shape: tuple[int, ...], options: tuple[str, ...]
) -> None:
    from onnx import helper

    def model(name: str) -> str:
        nodes = [
            helper.make_node("MatMul", ["x", "weight"], ["logits"]),
            helper.make_node("Expand", ["nothing", "as"], ["wide"]),
            helper.make_node("Shape", ["x"], ["size"], end=1),
            helper.make_node("Concat", ["size", "others"], ["as"], axis=0),
            helper.make_node("Identity", ["wide"], ["empty"]),
        ]
        return bench.model(
            name,
            [nodes[0], nodes[2], nodes[3], nodes[1], nodes[4]],
            inputs={"x": ("float", ["batch", 4])},
            outputs={"logits": ("float", ["batch", 3]), "empty": ("float", ["batch", *shape])},
            weights={
                "weight": bench.normal(4, 3),
                "nothing": np.zeros((1, *(min(1, size) for size in shape)), np.float32),
                "others": np.int64(shape),
            },
        )

    outcome = bench.compare(model("a"), model("b"), "--samples", bench.samples(), *options)

    # What is declared of no entries is wrong usage; else nothing was measured.
    is_usage = options[:1] == ("--axis",) and shape[0] == 0
    assert outcome.code == (2 if is_usage else 5)
    assert outcome.result["error"] is None or outcome.result["error"]["kind"] == "UsageError"
    ignored = bench.compare(model("a"), model("b"), "--samples", bench.samples(), "--ignore", "empty=no entries")
    assert ignored.code == 0, ignored.out
