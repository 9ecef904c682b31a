"""Which files a model consists of, and the digest over them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from paritygate.codec import from_data, to_data
from paritygate.models.digest import digest_of_model, files_of_model
from paritygate.models.source import ModelRef, SourceKind, parse_source
from paritygate.signature import Signature, TensorSpec


def _with_external_data(folder: Path, name: str = "model.onnx") -> ModelRef:
    """Return an ONNX file whose weight lies in a folder beside it."""
    folder.mkdir(exist_ok=True)
    (folder / "weights").mkdir()
    weight = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    values = [onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [None, 4]) for value in ("x", "y")]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.external_data_helper.convert_model_to_external_data(model, location="weights/w.bin", size_threshold=0)
    onnx.save(model, folder / name)
    return parse_source(name, folder)


def test_the_external_data_of_an_onnx_file_belong_to_it(tmp_path: Path) -> None:
    model = _with_external_data(tmp_path / "m")

    assert files_of_model(model) == {
        "model": tmp_path / "m" / "model.onnx",
        "weights/w.bin": tmp_path / "m" / "weights" / "w.bin",
    }


def test_the_digest_is_the_same_under_another_name_and_another_with_other_data(tmp_path: Path) -> None:
    one, other = _with_external_data(tmp_path / "one"), _with_external_data(tmp_path / "other", "renamed.onnx")

    assert digest_of_model(one) == digest_of_model(other)

    weights = other.folder / "weights" / "w.bin"
    weights.write_bytes(bytes(len(weights.read_bytes())))
    assert digest_of_model(one) != digest_of_model(other)


def test_all_files_of_a_folder_belong_to_the_model_but_the_record_of_an_artifact(tmp_path: Path) -> None:
    for name in ("saved_model.pb", "variables/variables.index", "artifact.json"):
        path = tmp_path / "saved" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)

    found = files_of_model(parse_source("saved", tmp_path))

    assert list(found) == ["saved_model.pb", "variables/variables.index"]


def test_a_callable_has_no_files_to_be_digested(tmp_path: Path) -> None:
    assert digest_of_model(parse_source("net:make", tmp_path)) is None


@pytest.mark.parametrize("kind", [SourceKind.RECORDED, SourceKind.ONNX, SourceKind.CALLABLE])
def test_which_model_is_meant_is_the_same_in_another_process(tmp_path: Path, kind: SourceKind) -> None:
    signature = Signature(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),), outputs=())
    ref = ModelRef(
        text="m",
        folder=tmp_path,
        kind=kind,
        name="model",
        signature=signature,
        rename={"input": "x"},
        fixed_shape=tmp_path / "rule.json",
        provider="cuda",
        engine=tmp_path / "model.plan",
    )

    assert from_data(ModelRef, to_data(ref)) == ref
    assert ref.is_recorded is (kind is SourceKind.RECORDED)
    assert ref.place is None
