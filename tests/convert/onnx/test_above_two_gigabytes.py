"""Models whose weights do not fit into one protocol buffer, which ends at 2 GiB: beside the file, they convert."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from paritygate.convert.onnx.rewrite import is_too_large
from paritygate.models.onnx.file import external_files, read_onnx

if TYPE_CHECKING:
    from tests.convert.conftest import Bench

# Two matrices of this width have 2.3 GB in float32.
_WIDTH = 17_000


def _model(*, is_external: bool) -> onnx.ModelProto:
    weights = []
    size = 4 * _WIDTH * _WIDTH
    for at, name in enumerate(("first", "second")):
        weight = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[_WIDTH, _WIDTH])
        if is_external:
            weight.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "weights.bin"), ("offset", at * size), ("length", size)):
                weight.external_data.add(key=key, value=str(value))
        weights.append(weight)
    nodes = [helper.make_node("MatMul", ["x", "first"], ["h"]), helper.make_node("MatMul", ["h", "second"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", _WIDTH]) for name in "xy"]
    graph = helper.make_graph(nodes, "large", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_whether_a_model_fits_into_one_file_is_told_by_the_shapes_of_its_weights() -> None:
    # Protobuf raises where it is asked for a size above 2 GiB.
    assert is_too_large(_model(is_external=False))
    assert not is_too_large(_model(is_external=True))


@pytest.mark.thorough
def test_a_model_above_two_gigabytes_is_copied_with_the_file_of_its_weights(bench: Bench) -> None:
    # A sparse file: its zeros take no place.
    with (bench.folder / "weights.bin").open("wb") as stream:
        stream.truncate(2 * 4 * _WIDTH * _WIDTH)
    source = bench.folder / "source.onnx"
    source.write_bytes(_model(is_external=True).SerializeToString())

    converted = bench.convert("onnx", source, rename={"y": "scores"})

    assert external_files(read_onnx(converted.main)) == ("weights.bin",)
    assert [spec.name for spec in converted.conversion.signature.outputs] == ["scores"]
    assert not converted.run({"x": np.ones((1, _WIDTH), np.float32)})["scores"].any()
