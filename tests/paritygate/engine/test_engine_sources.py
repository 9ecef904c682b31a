"""An engine as a source: which library it is for, and the digest of its two files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paritygate.engine.record import ENGINE_FILE, RECORD_FILE, EngineRecord
from paritygate.engine.settings import EngineSettings, profile_of
from paritygate.errors import InputFileError
from paritygate.models.digest import digest_of_model
from paritygate.models.source import SourceKind, parse_source
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec

_SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=(1, 4)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(1, 3)),),
)


def _engine(folder: Path, library: str = "tensorrt", *, name: str = ENGINE_FILE, version: str = "10.16.1.11") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(b"an engine")
    EngineRecord(
        library=library,
        version=version,
        precision=Precision.FP32,
        signature=_SIGNATURE,
        profile=profile_of(_SIGNATURE),
        tf32=False,
        settings=EngineSettings(),
        dtype_counts={},
        built_on=None,
        targets="",
    ).save(path)
    return path


@pytest.mark.parametrize(
    ("library", "kind"), [("tensorrt", SourceKind.TENSORRT), ("tensorrt-rtx", SourceKind.TENSORRT_RTX)]
)
def test_the_record_says_which_library_an_engine_is_for(tmp_path: Path, library: str, kind: SourceKind) -> None:
    path = _engine(tmp_path / "engine", library, name="other.plan")

    source = parse_source("engine/other.plan", tmp_path)

    assert source.kind is kind
    assert source.path == path
    assert source.executes_code


def test_refuses_an_engine_without_a_record(tmp_path: Path) -> None:
    path = _engine(tmp_path)
    (tmp_path / RECORD_FILE).unlink()

    with pytest.raises(InputFileError, match=r"model\.plan has no engine\.json beside it") as caught:
        parse_source(path.name, tmp_path)

    assert "convert-and-validate build" in caught.value.hint


@pytest.mark.parametrize("text", ["{}", "no JSON", "[]"])
def test_refuses_a_damaged_record(tmp_path: Path, text: str) -> None:
    path = _engine(tmp_path)
    (tmp_path / RECORD_FILE).write_text(text)

    with pytest.raises(InputFileError, match=r"engine\.json is corrupt"):
        parse_source(path.name, tmp_path)


def test_refuses_a_record_of_a_library_that_is_not_known(tmp_path: Path) -> None:
    path = _engine(tmp_path, "tensorrt-zero")

    with pytest.raises(InputFileError, match=r"'tensorrt-zero' \(allowed: tensorrt, tensorrt-rtx\)"):
        parse_source(path.name, tmp_path)


def test_refuses_an_engine_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"model\.plan does not exist"):
        parse_source("model.plan", tmp_path)


def test_names_engines_among_the_kinds_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"0")

    with pytest.raises(InputFileError, match=r"allowed: \.onnx, .*\.tflite, \.plan, a SavedModel folder"):
        parse_source("model.bin", tmp_path)


def test_the_digest_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    one = _engine(tmp_path / "one")
    other = _engine(tmp_path / "other", name="renamed.plan")

    digest = digest_of_model(parse_source(str(one), tmp_path))
    assert digest is not None
    assert digest == digest_of_model(parse_source(str(other), tmp_path))


def test_the_digest_changes_with_the_engine_and_with_its_record(tmp_path: Path) -> None:
    path = _engine(tmp_path)
    source = parse_source(path.name, tmp_path)
    first = digest_of_model(source)
    path.write_bytes(b"another engine")
    second = digest_of_model(source)
    record = json.loads((tmp_path / RECORD_FILE).read_text())
    (tmp_path / RECORD_FILE).write_text(json.dumps({**record, "tf32": True}))
    third = digest_of_model(source)

    assert len({first, second, third}) == 3


def test_an_engine_whose_record_is_gone_has_no_digest(tmp_path: Path) -> None:
    source = parse_source(_engine(tmp_path).name, tmp_path)
    (tmp_path / RECORD_FILE).unlink()

    with pytest.raises(InputFileError, match=r"no engine\.json beside it"):
        digest_of_model(source)
