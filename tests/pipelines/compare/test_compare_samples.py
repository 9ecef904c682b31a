"""Samples: every kind of file, what is wrong with them, and the order in which rows are named."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Outcome


def _compare(bench: Bench, samples: str, *options: str) -> Outcome:
    return bench.compare(bench.linear("a"), bench.linear("b"), "--samples", samples, *options)


def _ids(bench: Bench, name: str) -> str:
    return bench.model(
        name,
        [helper.make_node("Cast", ["ids"], ["logits"], to=1)],
        inputs={"ids": ("int64", ["batch", "length"])},
        outputs={"logits": ("float", ["batch", "length"])},
    )


def _jsonl(bench: Bench, *rows: object) -> str:
    path = bench.folder / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return str(path)


def test_rows_are_cut_into_batches_of_the_asked_size(bench: Bench) -> None:
    outcome = _compare(bench, bench.samples(10), "--batch-size", "4")

    assert (outcome.code, outcome.result["rows"], outcome.result["batches"]) == (0, 10, 3)


def test_safetensors_are_read_as_rows(bench: Bench) -> None:
    from safetensors.numpy import save_file

    path = bench.folder / "x.safetensors"
    save_file({"x": bench.normal(10, 4)}, str(path))

    outcome = _compare(bench, str(path), "--batch-size", "4")

    assert (outcome.code, outcome.result["rows"], outcome.result["batches"]) == (0, 10, 3)


def test_json_lines_are_read_as_rows_with_their_ids(bench: Bench) -> None:
    samples = _jsonl(bench, *({"id": f"row-{n}", "x": [n, 0.5, 1, 2]} for n in range(5)))
    weight = bench.normal(4, 3, seed=7)
    weight[0, 0] += 1

    outcome = bench.compare(bench.linear("a"), bench.linear("b", weight=weight), "--samples", samples)

    assert (outcome.code, outcome.result["rows"]) == (1, 5)
    assert outcome.result["outputs"]["logits"]["worst_rows"][0]["row_id"] == "row-4"


def test_ragged_lists_of_integers_stay_integers_when_padded(bench: Bench) -> None:
    samples = _jsonl(bench, {"ids": [1, 2, 3]}, {"ids": [4]}, {"ids": [5, 6]})

    refused = bench.compare(_ids(bench, "a"), _ids(bench, "b"), "--samples", samples)
    padded = bench.compare(_ids(bench, "a"), _ids(bench, "b"), "--samples", samples, "--pad", "ids=0")

    assert refused.code == 2
    assert "rows '1'..'3': the lists of 'ids' have different lengths (1 to 3)" in refused.message
    assert refused.result["error"]["hint"].endswith(": --pad ids=0")
    assert padded.code == 0, padded.message
    assert padded.result["outputs"]["logits"]["values"] == 9


def test_rows_of_boxes_are_filled_up_and_asked_about_like_other_rows(bench: Bench) -> None:
    def boxes(name: str) -> str:
        return bench.model(
            name,
            [
                helper.make_node("Cast", ["bbox"], ["float"], to=1),
                helper.make_node("Add", ["float", "x"], ["logits"]),
            ],
            inputs={"bbox": ("int64", ["batch", "length", 4]), "x": ("float", ["batch", "length", 1])},
            outputs={"logits": ("float", ["batch", "length", 4])},
        )

    rows = (
        {"bbox": [[n, 1, 2, 3]] * (1 + n % 3), "x": [[0.5 * n]] * (1 + n % 3), "text": f"row {n}"} for n in range(9)
    )
    samples = _jsonl(bench, *rows)

    outcome = bench.compare(boxes("a"), boxes("b"), "--samples", samples, "--pad", "bbox=0", "--pad", "x=0")

    assert (outcome.code, outcome.result["rows"]) == (0, 9), outcome.err
    assert outcome.result["outputs"]["logits"]["values"] == 9 * 3 * 4


def test_a_data_set_on_disk_is_read_as_rows(bench: Bench) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    folder = bench.folder / "dataset"
    folder.mkdir()
    table = pa.table({"x": pa.array(bench.normal(10, 4).tolist(), pa.list_(pa.float32())), "label": [1] * 10})
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (folder / "state.json").write_text('{"_data_files": [{"filename": "rows.arrow"}]}')

    outcome = _compare(bench, str(folder), "--batch-size", "4")

    assert (outcome.code, outcome.result["rows"], outcome.result["batches"]) == (0, 10, 3), outcome.err


def test_a_pad_for_what_is_no_input_is_wrong_usage(bench: Bench) -> None:
    samples = bench.samples()

    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", samples, "--pad", "xs=0")

    assert outcome.code == 2
    assert outcome.message == "--pad names 'xs', which is not an input of the samples (seen: x)"
    assert outcome.result["error"]["hint"] == "did you mean 'x'?"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "line 1: not JSON"),
        (b"\xff\xfe\n", "line 1: not JSON"),
        (b"[1, 2]\n", "line 1: a list, not an object of inputs by name"),
        (b'{"x": [1, 2, 3, 4]}\n{"y": 1}\n', "line 2: inputs differ (got ['y'], expected ['x'])"),
        (b'{"x": [[1, 2], [3]]}\n', "the values of 'x' do not form an array"),
        (b'{"x": "text"}\n', "the samples hold 'x' as string, but the model expects float32"),
        (b'{"x": null}\n', "the values of 'x' are neither numbers nor text"),
    ],
)
def test_json_lines_that_are_wrong_say_where(bench: Bench, content: bytes, message: str) -> None:
    path = bench.folder / "rows.jsonl"
    path.write_bytes(content)

    outcome = _compare(bench, str(path))

    assert outcome.code == 2
    assert message in outcome.message


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def _not_a_zip(path: Path) -> None:
    path.write_text("not an archive")


def _with_short_array(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        content = archive.read("x.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content[:-8])


def _with_text_for_array(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", "not an array")


def _with_wrong_checksum(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[200] ^= 0xFF
    path.write_bytes(bytes(content))


def _encrypted(path: Path) -> None:
    content = bytearray(path.read_bytes())
    # The flag in the local header and in the central directory.
    content[6] |= 1
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    "spoil", [_truncated, _not_a_zip, _with_short_array, _with_text_for_array, _with_wrong_checksum, _encrypted]
)
@pytest.mark.parametrize("role", ["samples", "reference"])
def test_a_corrupt_archive_is_a_corrupt_input_file(bench: Bench, spoil: object, role: str) -> None:
    path = Path(bench.npz("spoiled.npz", {"x": bench.normal(32, 4)}))
    spoil(path)  # type: ignore[operator]  # one of the functions above
    if role == "samples":
        outcome = _compare(bench, str(path))
    else:
        outcome = bench.compare(str(path), bench.linear("b", output="x"), "--samples", bench.samples())

    assert outcome.code == 2, outcome.err
    assert f"{path} cannot be read: " in outcome.message


def test_a_corrupt_safetensors_file_is_a_corrupt_input_file(bench: Bench) -> None:
    path = bench.folder / "x.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 40) + b"{}")

    outcome = _compare(bench, str(path))

    assert outcome.code == 2
    assert f"samples {path} cannot be read: " in outcome.message


def test_python_objects_are_not_unpickled(bench: Bench) -> None:
    path = bench.npz("objects.npz", {"x": np.array([{"a": 1}] * 4, dtype=object)})

    outcome = _compare(bench, path)

    assert outcome.code == 2
    assert "holds Python objects in 'x'" in outcome.message


@pytest.mark.parametrize(("name", "message"), [("none.npz", "do not exist"), ("x.xlsx", "unknown kind '.xlsx'")])
def test_samples_that_are_missing_or_of_an_unknown_kind_are_wrong_usage(bench: Bench, name: str, message: str) -> None:
    (bench.folder / "x.xlsx").write_text("1,2")

    outcome = _compare(bench, str(bench.folder / name))

    assert outcome.code == 2
    assert message in outcome.message


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.float32(1)}, "'x' is a scalar, which has no rows"),
        ({"x": np.zeros((4, 4)), "y": np.zeros((5, 4))}, "different numbers of rows (x: 4, y: 5)"),
        ({"x": np.zeros((4, 4)), "a/x": np.zeros((4, 4))}, "mix keys of the form CASE/INPUT with plain keys such as"),
    ],
)
def test_arrays_that_do_not_form_rows_are_wrong_usage(
    bench: Bench, arrays: dict[str, np.ndarray], message: str
) -> None:
    outcome = _compare(bench, bench.npz("x.npz", arrays))

    assert outcome.code == 2
    assert message in outcome.message


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4"])
def test_memory_layout_and_byte_order_of_the_file_do_not_matter(bench: Bench, order: str, dtype: str) -> None:
    values = bench.normal(20, 4)
    laid_out = np.asarray(values.astype(dtype), order=order)  # type: ignore[call-overload]  # C or F
    expected = bench.npz("expected.npz", {"logits": values @ bench.normal(4, 3, seed=7)})

    outcome = bench.compare(expected, bench.linear("b"), "--samples", bench.npz("x.npz", {"x": laid_out}))

    assert outcome.code == 0, outcome.message


def test_a_scalar_input_of_a_case_reaches_the_model_as_a_scalar(bench: Bench) -> None:
    def scaled(name: str) -> str:
        return bench.model(
            name,
            [helper.make_node("Mul", ["x", "factor"], ["logits"])],
            inputs={"x": ("float", ["batch", 4]), "factor": ("float", [])},
            outputs={"logits": ("float", ["batch", 4])},
        )

    samples = bench.npz("cases.npz", {"a/x": bench.normal(6, 4), "a/factor": np.float32(3)})

    outcome = bench.compare(scaled("a"), scaled("b"), "--samples", samples)

    assert (outcome.code, outcome.result["rows"]) == (0, 6), outcome.message


_MODULE = """
import itertools
from collections.abc import Iterator
from msgspec.structs import replace

import numpy as np

from paritygate.batch import Batch

_CALLS = itertools.count()


def _batch(rows: int, values: int | None = None, **fields: object) -> Batch:
    x = np.random.default_rng(0).standard_normal((values or rows, 4)).astype(np.float32)
    return Batch(inputs={"x": x}, ids=[f"r{row}" for row in range(rows)], **fields)


def good(path: str | None) -> Iterator[Batch]:
    yield _batch(8)


def changing() -> Iterator[Batch]:
    yield _batch(8 + next(_CALLS))


def wrong_ids() -> Iterator[Batch]:
    yield _batch(8, values=12)


def short_stratum() -> Iterator[Batch]:
    yield _batch(8, strata={"source": ["news"]})


def short_gold() -> Iterator[Batch]:
    yield _batch(8, gold=np.zeros(3))


def lists() -> Iterator[Batch]:
    yield Batch(inputs={"x": [[1.0] * 4]}, ids=["a"])


def no_batch() -> Iterator[dict[str, int]]:
    yield {"x": 1}


def nothing() -> None:
    return None


def text_of_python() -> Iterator[Batch]:
    yield replace(_batch(2), inputs={**_batch(2).inputs, "text": np.array(["a", "longer"], dtype=object)})


def text_and_numbers() -> Iterator[Batch]:
    yield Batch(inputs={"x": np.array(["a", 1], dtype=object)}, ids=["a", "b"])


def raising() -> Iterator[Batch]:
    yield _batch(8)
    raise OverflowError("the source of samples broke down")


def ending() -> Iterator[Batch]:
    raise SystemExit(0)


number = 3
"""


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("good", 0, ""),
        ("changing", 5, "reference and samples do not hold the same rows"),
        ("wrong_ids", 5, "a batch has 8 ids and inputs of 12 rows, from id 'r0' on"),
        ("short_stratum", 2, "stratum 'source' has 1 value for 8 rows"),
        ("short_gold", 2, "3 gold values for 8 rows"),
        ("lists", 2, "yielded 'x' as a list, not a NumPy array"),
        ("text_of_python", 0, ""),
        ("text_and_numbers", 2, "as an array of Python objects, and one of the values is an int, not text"),
        ("no_batch", 2, "yielded a dict, not a Batch"),
        ("nothing", 2, "returned a NoneType, not an iterator of Batch"),
        ("raising", 5, "OverflowError: the source of samples broke down"),
        ("number", 2, "samples 'my_samples:number' are not a function"),
        ("absent", 2, "module 'my_samples' has no 'absent'"),
    ],
)
def test_a_function_may_yield_the_samples(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, code: int, message: str
) -> None:
    import sys

    (bench.folder / "my_samples.py").write_text(_MODULE)
    monkeypatch.chdir(bench.folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_samples", raising=False)

    outcome = _compare(bench, f"my_samples:{name}")
    monkeypatch.delitem(sys.modules, "my_samples", raising=False)

    assert outcome.code == code, outcome.err
    assert message in outcome.message


def test_a_module_of_samples_that_is_not_there_is_wrong_usage(bench: Bench) -> None:
    outcome = _compare(bench, "surely_absent_module:rows")

    assert outcome.code == 2
    assert outcome.message == "module 'surely_absent_module' of 'surely_absent_module:rows' was not found"


def test_samples_that_change_between_passes_are_not_measured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (bench.folder / "my_samples.py").write_text(_MODULE.replace("8 + next(_CALLS)", "8") + _RESEEDED)
    monkeypatch.chdir(bench.folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_samples", raising=False)
    expected = bench.npz("expected.npz", {"logits": bench.normal(8, 3)})

    outcome = bench.compare(expected, bench.linear("b"), "--samples", "my_samples:reseeded", "--repeat", "2")
    monkeypatch.delitem(sys.modules, "my_samples", raising=False)

    assert outcome.code == 5
    assert outcome.message == "the samples of pass 2 differ from those of the first pass"


_RESEEDED = """

def reseeded() -> Iterator[Batch]:
    x = np.random.default_rng(next(_CALLS)).standard_normal((8, 4)).astype(np.float32)
    yield Batch(inputs={"x": x}, ids=[f"r{row}" for row in range(8)])
"""


def test_a_function_that_ends_the_process_is_not_measured(
    isolated_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (isolated_bench.folder / "my_samples.py").write_text(_MODULE)
    monkeypatch.chdir(isolated_bench.folder)

    outcome = _compare(isolated_bench, "my_samples:ending")

    assert (outcome.code, outcome.result["verdict"]) == (5, "error")
    assert "ended with exit code 0 and left no result" in outcome.message


def test_what_no_side_takes_of_the_samples_is_named_and_not_used(bench: Bench) -> None:
    arrays = {"x": bench.normal(32, 4), "label": np.zeros(32, np.int64), "extra": np.zeros((32, 2), np.float32)}
    samples = bench.npz("inputs.npz", arrays)

    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", samples, "--probes", "none")

    note = "the samples also hold 'label', 'extra', which is not an input of the model: it was not used"
    assert (outcome.code, outcome.result["notes"].count(note)) == (0, 1)
    assert outcome.out.count(f"note: {note}\n") == 1


def test_integers_that_were_cast_to_the_dtype_of_the_model_are_noted_once(bench: Bench) -> None:
    def model(name: str) -> str:
        nodes = [helper.make_node("Gather", ["table", "ids"], ["logits"])]
        inputs, outputs = {"ids": ("int64", ["batch"])}, {"logits": ("float", ["batch", 3])}
        return bench.model(name, nodes, inputs=inputs, outputs=outputs, weights={"table": bench.normal(9, 3)})

    ids = np.arange(32) % 9
    found = {
        dtype: bench.compare(model("a"), model("b"), "--samples", bench.npz("ids.npz", {"ids": ids.astype(dtype)}))
        for dtype in ("int32", "int64")
    }

    note = "note: the samples hold 'ids' as int32, and were cast to int64, which holds every value"
    assert [outcome.code for outcome in found.values()] == [0, 0]
    assert found["int32"].out.count(note) == 1
    assert "were cast" not in found["int64"].out


def test_nothing_is_said_of_samples_that_are_all_used(bench: Bench) -> None:
    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", bench.samples(), "--probes", "none")
    assert not [note for note in outcome.result["notes"] if "the samples also hold" in note]


@pytest.mark.parametrize(
    ("flags", "precision", "error", "is_said"),
    [
        ("avx avx2", "int8", 1.0, True),
        ("avx avx2 avx512f avx_vnni", "int8", 1.0, False),
        ("asimdhp i8mm", "int8", 1.0, False),
        ("avx avx2", "fp32", 1.0, False),
        ("avx avx2", "int8", 0.0, False),
    ],
)
def test_an_int8_model_that_fails_on_a_processor_without_vnni_is_said_to_be_otherwise_elsewhere(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, flags: str, precision: str, error: float, *, is_said: bool
) -> None:
    cpuinfo = bench.folder / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {flags}\n", encoding="utf-8")
    monkeypatch.setattr("paritygate.machine._CPUINFO", cpuinfo)

    outcome = bench.compare(
        bench.linear("a"), bench.linear("b", error=error), "--samples", bench.samples(), "--precision", precision
    )

    assert outcome.code == (1 if error else 0)
    said = [note for note in outcome.result["notes"] if note.startswith("this processor has no VNNI, so sums of")]
    assert len(said) == (1 if is_said else 0), outcome.result["notes"]
    assert ("Outputs may differ on a processor with VNNI" in outcome.out) == is_said


@pytest.mark.torch
def test_samples_of_a_shape_that_neither_side_takes_are_wrong_usage(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    (bench.folder / "net.py").write_text("import torch\n\ndef load():\n    return torch.nn.Linear(4, 3)\n")
    wide = bench.npz("wide.npz", {"input": bench.normal(32, 5)})
    named = ("--map", "x=input", "--map", "logits=output_0")
    found = bench.compare("net:load", bench.linear("b"), "--samples", wide, *named)

    assert found.code == 2
    assert (
        "the samples hold 'input' as float32[16, 5], and the other model takes input: float32[batch, 4]: the PyTorch "
        "module failed on input: float32[16, 5]: RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    ) in found.err
