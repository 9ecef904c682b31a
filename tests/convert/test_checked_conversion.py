"""What every conversion is checked for, whatever the converter."""

from __future__ import annotations

import errno
import sys
import types

import pytest

from paritygate.convert import checked, conversion
from paritygate.convert.conversion import CONVERTERS, Conversion
from paritygate.errors import (
    BackendError,
    ConversionError,
    MissingBackendError,
    StorageError,
    UsageError,
)
from paritygate.files import make_marked_folder
from paritygate.source import SourceKind

SAME = """
< ir_version: 8, opset_import: ["" : 17] >
same (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }
"""


@pytest.fixture
def converter(monkeypatch):
    """Return a function that puts a converter of the test's own in the place of that from ONNX to ONNX."""

    def put(convert):
        module = types.ModuleType("converter_of_the_test")
        module.convert = convert
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(conversion.CONVERTERS, (SourceKind.ONNX, "onnx"), module.__name__)

    return put


def test_every_converter_of_the_table_is_a_module_with_convert():
    for name in CONVERTERS.values():
        assert callable(checked.importlib.import_module(name).convert)


def test_a_pair_without_converter_is_refused_with_those_there_are(onnx_file, make_job):
    job = make_job(onnx_file(SAME), kind="onnx")
    with pytest.raises(UsageError, match=r"kind 'onnx' cannot be converted to 'savedmodel' \(allowed: onnx\)"):
        checked.convert_and_check(job, "savedmodel")


def test_a_folder_with_files_in_it_is_refused(onnx_file, make_job):
    job = make_job(onnx_file(SAME), kind="onnx")
    (job.folder / "left.txt").touch()
    with pytest.raises(StorageError, match=r"is not empty: it holds left\.txt"):
        checked.convert_and_check(job, "onnx")


def test_our_own_marker_is_not_in_the_way(onnx_file, make_job):
    job = make_job(onnx_file(SAME), kind="onnx")
    make_marked_folder(job.folder)
    assert checked.convert_and_check(job, "onnx").facts["loaded_in"].startswith("onnxruntime ")


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (
            ZeroDivisionError("division by zero\nand more"),
            ConversionError,
            "failed: ZeroDivisionError: division by zero$",
        ),
        (KeyError(), ConversionError, "converting onnx to onnx failed: KeyError: no message"),
        (BackendError("it crashed", hint="try"), ConversionError, "converting onnx to onnx failed: it crashed"),
        (MissingBackendError("not there"), MissingBackendError, "not there"),
        (OSError(errno.ENOSPC, "no space"), StorageError, "the disk is full"),
    ],
)
def test_every_failure_of_a_converter_is_one_clear_line(onnx_file, make_job, converter, error, expected, message):
    def convert(_):
        raise error

    converter(convert)
    with pytest.raises(expected, match=message):
        checked.convert_and_check(make_job(onnx_file(SAME), kind="onnx"), "onnx")


def test_a_converter_that_writes_nothing_is_caught(onnx_file, make_job, converter, sign):
    signature = sign({"x": "float32[N, 4]"}, {"y": "float32[N, 4]"})
    converter(lambda _: Conversion(main="model.onnx", signature=signature))
    with pytest.raises(ConversionError, match=r"unsound: model .*model\.onnx does not exist"):
        checked.convert_and_check(make_job(onnx_file(SAME), kind="onnx"), "onnx")


def test_a_converter_that_swaps_inputs_is_caught(onnx_file, make_job, converter, sign):
    swapped = """
    < ir_version: 8, opset_import: ["" : 17] >
    swapped (float[N, 4] b, float[N, 4] a) => (float[N, 4] y) { y = Sub (a, b) }
    """
    path = onnx_file(swapped, "swapped.onnx")
    signature = sign({"a": "float32[N, 4]", "b": "float32[N, 4]"}, {"y": "float32[N, 4]"})

    def convert(job):
        (job.folder / "model.onnx").write_bytes(path.read_bytes())
        return Conversion(main="model.onnx", signature=signature)

    converter(convert)
    job = make_job(onnx_file(SAME), kind="onnx", signature=signature)
    with pytest.raises(ConversionError, match="its inputs come in the order 'b', 'a', promised is 'a', 'b'"):
        checked.convert_and_check(job, "onnx")
