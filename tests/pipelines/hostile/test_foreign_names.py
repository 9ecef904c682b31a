"""A name from a model, a pack, a server or a record never leads to a file outside of its folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.external_data_helper
import pytest

from paritygate.artifact import Artifact, check_record
from paritygate.errors import ParitygateError
from paritygate.file_names import check_names, checked_name, path_below, why_not_names
from paritygate.files import digest_of_file
from paritygate.models.digest import files_of_model
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.packing.manifest import PackManifest
from paritygate.pipelines.release.repository.manifest import MANIFEST_FILE, read_manifest
from paritygate.pipelines.release.repository.record import Record, RecordKind
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.triton.config import ServedModel
from paritygate.pipelines.serving.triton.view import make_view
from paritygate.pipelines.spec.names import check_alias, check_name, check_variant
from paritygate.precision import Variant
from paritygate.signature import Signature, TensorSpec

_UP = [
    *("..", "../x", "../../x", "../../../x", "a/../../x", "a/../..", "a/b/../../../x", "./../x", "../", "..//x"),
    *("../inside", "../inside/../../x", "../outside/secret", "a/../x", "a/..", "x/../../outside/secret", "../..//x"),
    *("//x", "/", "/x", "/etc/paritygate-x", "///x", "/../x", "/./x"),
]
_ODD = [
    *("x/\0", "a/b/", "/", "\\\\server\\x", "a\u0085b", "..\\../x", "./.", "../.", "a/ /../../x", "\\..\\x", "//../x"),
    *(
        "",
        ".",
        "./",
        "./x",
        "a/./b",
        "a//b",
        "a/",
        "a/.",
        "..\\x",
        "..\\..\\x",
        "\\x",
        "C:\\x",
        "C:..\\x",
        "a\\..\\..\\x",
    ),
    *("x\0", "\0", "x\0/../y", "a\nb", "a\rb", "\t", "a\x1b[31m", "\x7f", "\x80", "\ud800", "a/\udfff"),
    *("x" * 256, "a/" * 600 + "x", "é" * 128, "\n../x", "../x\n", "..\n/x", "..\0/x", "a/..\n"),
]
HOSTILE = [*_UP, *_ODD]
# They stay below their folder: none means anything to the system.
HARMLESS = [
    "model.onnx",
    "a/b.bin",
    "...",
    "..x",
    "x..",
    "~",
    "~root/x",
    "$HOME",
    "%2e%2e%2fx",
    "a b",
    "ü/ö.bin",
    "-rf",
]
_SEEN: Counter[str] = Counter()


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """Return a folder, beside which a name might lead."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret", encoding="utf-8")
    (tmp_path / "inside").mkdir()
    return tmp_path / "inside"


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _absolute(name: str, inside: Path) -> str:
    """Return the name, which leads below the folder of the test where it is absolute."""
    return f"{inside.parent}/outside/{name.strip('/')}" if name.startswith("/") else name


# Each takes the name for a file or folder below `inside`, and reads or writes there.

Way = Callable[[str, Path], object]


def _place_adds(name: str, inside: Path) -> None:
    Place(inside / "models").add_folder(f"m/{name}", {"x": b"1"})


def _place_adds_a_file(name: str, inside: Path) -> None:
    Place(inside / "models").add_folder("m", {name: b"1"})


def _place_replaces(name: str, inside: Path) -> None:
    Place(inside / "models").replace(name, b"1")


def _place_removes(name: str, inside: Path) -> None:
    (inside / "models").mkdir()
    Place(inside / "models").remove_folder(f"m/{name}")


def _place_reads(name: str, inside: Path) -> None:
    assert Place(inside / "models").read(name) != b"secret"


def _place_below_a_place(name: str, inside: Path) -> None:
    Place(inside / "models").within("m").replace(f"a/{name}", b"1")


def _record_of_an_artifact(name: str, _: Path) -> None:
    check_record({"files": {name: "sha256:0"}, "main": name, "variant": "onnx-fp32"})


def _pack(name: str, _: Path) -> None:
    file = {"name": f"run/{name}", "size": 1, "digest": "sha256:" + "0" * 64}
    spec = {**file, "name": "run/spec.json"}
    _read_manifest(files=[file, spec])


def _model_of_a_pack(name: str, _: Path) -> None:
    _read_manifest(model=name)


def _run_of_a_pack(name: str, _: Path) -> None:
    _read_manifest(run_id=name)


def _read_manifest(**changes: object) -> None:
    spec = {"name": "run/spec.json", "size": 1, "digest": "sha256:" + "0" * 64}
    made = PackManifest.from_bytes(
        _with_digest({"paritygate": "0.2.0", "model": "m", "run_id": "r", "files": [spec], **changes}), "p"
    )
    assert made.model


def _with_digest(content: dict[str, Any]) -> bytes:
    from paritygate.codec import from_data

    # As a maker of packs would write it who checks nothing.
    plain = {**content, "missing": [], "needs_samples": None, "modules": []}
    try:
        return from_data(PackManifest, plain).to_bytes()
    except ValueError:
        return json.dumps({"schema_version": 1, **plain, "digest": "sha256:0"}).encode()


def _manifest_of_a_release(name: str, inside: Path) -> None:
    path = inside / MANIFEST_FILE
    path.write_text(json.dumps({"variants": [{"name": name}], "files": {}}), encoding="utf-8")
    record = Record(
        kind=RecordKind.RELEASED, time="2026-01-01T00:00:00Z", aliases={}, version=1, manifest=digest_of_file(path)
    )
    read_manifest(inside, record)


def _below(name: str, inside: Path) -> None:
    assert path_below(inside, name).resolve().is_relative_to(inside.resolve())


WAYS: list[Way] = [
    lambda name, _: check_names([name]),
    lambda name, _: checked_name(name),
    _below,
    _place_adds,
    _place_adds_a_file,
    _place_replaces,
    _place_removes,
    _place_reads,
    _place_below_a_place,
    _record_of_an_artifact,
    _pack,
    _manifest_of_a_release,
]
# These are one part of a path, and no file of a model.
PARTS: list[Way] = [
    lambda name, _: check_name("model", name),
    lambda name, _: check_alias(name),
    lambda name, _: check_variant(name),
    _model_of_a_pack,
    _run_of_a_pack,
]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_refused_and_leads_nowhere(name: str, inside: Path) -> None:
    before = _files(inside.parent)

    for way in (*WAYS, *PARTS):
        given = _absolute(name, inside)
        with pytest.raises((ParitygateError, ValueError)):
            way(given, inside)
        for path in (inside / MANIFEST_FILE, inside / "models"):
            path.unlink() if path.is_file() else None
            path.rmdir() if path.is_dir() else None
        assert _files(inside.parent) == before
        _SEEN["ways"] += 1
    _SEEN["names"] += 1


@pytest.mark.parametrize("name", HARMLESS)
def test_a_name_that_stays_below_is_no_other(name: str, inside: Path) -> None:
    check_names([name])
    assert why_not_names([name]) is None
    Place(inside / "models").add_folder("m", {name: b"1"})

    assert Place(inside / "models").read(f"m/{name}") == b"1"
    assert set(_files(inside.parent)) == {"outside/secret", f"inside/models/m/{name}"}


def _named(name: str) -> Signature:
    return Signature(
        inputs=(TensorSpec(name=name, dtype="float32", shape=("batch", 4)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 4)),),
    )


def _write_onnx(path: Path, *, location: str = "", name: str = "x") -> None:
    """Write a model with an input of that name, whose weights lie in the file of that name."""
    weights = onnx.numpy_helper.from_array(np.ones(4, np.float32), "added")
    if location:
        onnx.external_data_helper.set_external_data(weights, location, offset=0, length=16)
        weights.ClearField("raw_data")
        weights.data_location = onnx.TensorProto.EXTERNAL
    tensors = [onnx.helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, ["batch", 4]) for each in (name, "y")]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", [name, "added"], ["y"])], "adds", tensors[:1], tensors[1:], [weights]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())


def test_warm_up_files_are_numbered_whatever_inputs_are_called(inside: Path) -> None:
    folder = inside / "onnx-fp32"
    count = 0
    for name in [*HOSTILE, *HARMLESS]:
        if not name or "\ud800" <= name[-1] <= "\udfff":
            # No model file holds such a name.
            continue
        given = _absolute(name, inside)
        _write_onnx(folder / "model.onnx", name=given)
        artifact = Artifact(
            variant=Variant.parse("onnx-fp32"), folder=folder, main="model.onnx", signature=_named(given),
            files={"model.onnx": digest_of_file(folder / "model.onnx")},
        )  # fmt: skip
        model = ServedModel(artifact=artifact, name=f"m{count}", version=1, devices=("cpu",))
        view = make_view(model, warmup={given: np.ones((1, 4), np.float32)})
        view.write(Place(inside / "models"))
        (path,) = (inside / f"models/m{count}/warmup").glob("*/*")
        assert path.read_bytes() == np.ones(4, np.float32).tobytes()
        count += 1
    assert set(_files(inside.parent / "outside")) == {"secret"}
    assert {path.name for path in inside.parent.iterdir()} == {"inside", "outside"}
    assert count >= 60
    _SEEN["inputs with warm-up"] = count


def test_external_data_of_a_model_lies_below_it(inside: Path) -> None:
    (inside / "weights.bin").write_bytes(b"1" * 16)
    locations = [
        "../inside/weights.bin",
        "../outside/secret",
        str(inside / "weights.bin"),
        "a/../weights.bin",
        *HOSTILE,
    ]
    refused = 0
    for location in locations:
        if not location or location == "./weights.bin" or "\ud800" <= location[-1] <= "\udfff":
            continue
        _write_onnx(inside / "model.onnx", location=location)
        with pytest.raises(ParitygateError):
            files_of_model(ModelRef(text="model.onnx", folder=inside, kind=SourceKind.ONNX))
        refused += 1
    assert refused >= 60
    _SEEN["places of external data"] = refused

    for location in ("weights.bin", "./weights.bin"):
        _write_onnx(inside / "model.onnx", location=location)
        files = files_of_model(ModelRef(text="model.onnx", folder=inside, kind=SourceKind.ONNX))
        assert files["weights.bin"] == inside / "weights.bin"


def test_figures(record_property: Callable[[str, object], None]) -> None:
    counts = ", ".join(f"{count} {what}" for what, count in sorted(_SEEN.items()))
    record_property("figures", f"names that lead nowhere: {counts}")

    assert len(set(HOSTILE)) >= 60
