"""What every conversion is checked for, whatever the converter."""

from __future__ import annotations

import errno
import importlib
import re
import sys
import types
from collections.abc import Callable

import pytest
from tests.convert.conftest import Bench, sign

from paritygate.backends import install_command
from paritygate.convert import conversion
from paritygate.convert.conversion import CONVERTERS, Conversion, ConversionJob
from paritygate.errors import BackendError, ConversionError, MissingBackendError, StorageError, UsageError
from paritygate.files import make_marked_folder
from paritygate.models.source import SourceKind

_SAME = """
< ir_version: 8, opset_import: ["" : 17] >
same (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }
"""
_SIGNATURE = sign({"x": "float32[N, 4]"}, {"y": "float32[N, 4]"})

Convert = Callable[[ConversionJob], Conversion]


@pytest.fixture
def put_converter(monkeypatch: pytest.MonkeyPatch) -> Callable[[Convert], None]:
    """Return a function that puts a converter of the test's own in the place of that from ONNX to ONNX."""

    def put(convert: Convert) -> None:
        module = types.ModuleType("converter_of_the_test")
        monkeypatch.setattr(module, "convert", convert, raising=False)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        changed = {**CONVERTERS, (SourceKind.ONNX, "onnx"): module.__name__}
        monkeypatch.setattr(conversion, "CONVERTERS", changed)
        monkeypatch.setattr("paritygate.convert.checked.CONVERTERS", changed)

    return put


@pytest.mark.parametrize("name", sorted(CONVERTERS.values()))
def test_every_converter_of_the_table_is_a_module_with_convert(name: str) -> None:
    assert callable(importlib.import_module(name).convert)


def test_a_pair_without_converter_is_refused_with_those_there_are(bench: Bench) -> None:
    allowed = "onnx-fp32, onnx-fp16, onnx-bf16, onnx-int8, onnx-mixed, openvino-fp32, openvino-bf16, openvino-mixed"
    allowed += ", openvino-int8"
    for library in ("tensorrt", "tensorrt-rtx"):
        allowed += "".join(f", {library}-{precision}" for precision in ("fp32", "fp16", "bf16", "mixed", "int8"))
    message = f"a model of kind 'onnx' cannot be converted to 'savedmodel-fp32' (allowed: {allowed})"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        bench.convert("onnx", bench.onnx_file(_SAME), to="savedmodel")


def test_a_folder_with_files_in_it_is_refused(bench: Bench) -> None:
    (bench.folder / "converted").mkdir()
    (bench.folder / "converted" / "left.txt").touch()
    with pytest.raises(StorageError, match=r"is not empty \(found left\.txt"):
        bench.convert("onnx", bench.onnx_file(_SAME))


def test_our_own_marker_is_not_in_the_way(bench: Bench) -> None:
    make_marked_folder(bench.folder / "converted")
    assert bench.convert("onnx", bench.onnx_file(_SAME)).conversion.facts["loaded_in"].startswith("onnxruntime ")


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (ZeroDivisionError("by zero\nand more"), ConversionError, "failed: ZeroDivisionError: by zero and more$"),
        (KeyError(), ConversionError, "^converting onnx to onnx-fp32 failed: KeyError: KeyError$"),
        (BackendError("it crashed", hint="try"), ConversionError, "^converting onnx to onnx-fp32 failed: it crashed$"),
        (MissingBackendError("not there"), MissingBackendError, "not there"),
        (OSError(errno.ENOSPC, "no space"), StorageError, "the disk is full"),
        (OSError(errno.EFBIG, "too large"), StorageError, "converted could not be written: too large"),
        (FileNotFoundError(errno.ENOENT, "none", "/else/w.npy"), ConversionError, r"none: '/else/w\.npy'$"),
        (FileNotFoundError(errno.ENOENT, "none"), ConversionError, r"failed: FileNotFoundError: \[Errno 2\] none$"),
    ],
)
def test_every_failure_of_a_converter_is_one_clear_line(
    bench: Bench,
    put_converter: Callable[[Convert], None],
    error: Exception,
    expected: type[Exception],
    message: str,
) -> None:
    def convert(_: ConversionJob) -> Conversion:
        raise error

    put_converter(convert)
    with pytest.raises(expected, match=message):
        bench.convert("onnx", bench.onnx_file(_SAME))


def test_what_cannot_be_written_below_the_folder_is_a_storage_error(
    bench: Bench, put_converter: Callable[[Convert], None]
) -> None:
    def convert(job: ConversionJob) -> Conversion:
        (job.folder / "there").touch()
        (job.folder / "there/model.onnx").write_bytes(b"")
        raise AssertionError

    put_converter(convert)
    with pytest.raises(StorageError, match="converted could not be written: Not a directory"):
        bench.convert("onnx", bench.onnx_file(_SAME))


def test_without_the_runtime_that_checks_it_nothing_is_converted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.onnx_file(_SAME)
    monkeypatch.setattr("paritygate.backends.importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingBackendError, match="onnxruntime is needed") as caught:
        bench.convert("onnx", path)
    assert caught.value.hint == install_command("cpu")
    assert not (bench.folder / "converted").exists()


def test_a_converter_that_writes_nothing_is_caught(bench: Bench, put_converter: Callable[[Convert], None]) -> None:
    put_converter(lambda _: Conversion(main="model.onnx", signature=_SIGNATURE))
    with pytest.raises(ConversionError, match=r"unsound: model .*model\.onnx does not exist"):
        bench.convert("onnx", bench.onnx_file(_SAME))


def test_a_converter_that_swaps_inputs_is_caught(bench: Bench, put_converter: Callable[[Convert], None]) -> None:
    swapped = """
    < ir_version: 8, opset_import: ["" : 17] >
    swapped (float[N, 4] b, float[N, 4] a) => (float[N, 4] y) { y = Sub (a, b) }
    """
    path = bench.onnx_file(swapped, "swapped.onnx")
    signature = sign({"a": "float32[N, 4]", "b": "float32[N, 4]"}, {"y": "float32[N, 4]"})

    def convert(job: ConversionJob) -> Conversion:
        (job.folder / "model.onnx").write_bytes(path.read_bytes())
        return Conversion(main="model.onnx", signature=signature)

    put_converter(convert)
    with pytest.raises(ConversionError, match="its inputs come in the order 'b', 'a', expected 'a', 'b'"):
        bench.convert("onnx", bench.onnx_file(_SAME), signature=signature)
