"""The digest of a model: over all files it consists of, external data included."""

from __future__ import annotations

from paritygate.artifact import file_digests
from paritygate.engine.record import RECORD_FILE, EngineRecord
from paritygate.files import digest_of_file, digest_of_files
from paritygate.models.onnx.file import external_files, read_onnx
from paritygate.models.openvino.model import openvino_files
from paritygate.models.source import Source, SourceKind

__all__ = ["digest_of_model"]


def digest_of_model(source: Source) -> str | None:
    """Return the digest of the model's files; None for a `module:callable`, which is no file.

    The names of external data files do not count, only which is which: a renamed copy has the same digest. The
    settings that an OpenVINO model is compiled with decide what it answers, and are part of it; so is the record of an
    engine, which says what it answers in.

    Raises:
        InputFileError: The model cannot be read.
    """
    if source.kind in {SourceKind.CALLABLE, SourceKind.TORCH} or not source.path.exists():
        return None
    if source.kind is SourceKind.ONNX:
        data = external_files(read_onnx(source.path))
        files = {"model": digest_of_file(source.path)}
        files |= {name: digest_of_file(source.path.parent / name) for name in data}
        return digest_of_files(files)
    if source.kind is SourceKind.OPENVINO:
        return digest_of_files({name: digest_of_file(path) for name, path in openvino_files(source.path).items()})
    if source.kind in {SourceKind.TENSORRT, SourceKind.TENSORRT_RTX}:
        # An engine without a sound record has no digest that could stand for it.
        EngineRecord.load(source.path)
        record = digest_of_file(source.path.parent / RECORD_FILE)
        return digest_of_files({"model": digest_of_file(source.path), RECORD_FILE: record})
    if source.path.is_dir():
        return digest_of_files(file_digests(source.path))
    return digest_of_files({"model": digest_of_file(source.path)})
