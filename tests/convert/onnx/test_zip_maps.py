"""ZipMap, by which classifiers answer mappings: it is taken apart, and read as the table that it is made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.convert.conftest import Bench, assert_near

from paritygate.errors import InputFileError
from paritygate.models.onnx.file import check_onnx

_ROWS = np.array([[1.0, 2.0], [-3.0, 0.5], [0.0, 0.0]], np.float32)
_MAP = helper.make_sequence_type_proto(
    helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
)


def _classifier(
    folder: Path, *, table: str = "scaled", outputs: tuple[str, ...] = (), opset: int = 17, **classes: list[int | str]
) -> Path:
    """Write a model that answers twice its input, as mappings from class to value."""
    nodes = [
        helper.make_node("Scaler", ["x"], ["scaled"], domain="ai.onnx.ml", offset=[0.0], scale=[2.0]),
        helper.make_node("ZipMap", [table], ["probabilities"], domain="ai.onnx.ml", **classes),
    ]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2]) for name in outputs]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [helper.make_value_info("probabilities", _MAP), *made],
    )
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), *([helper.make_opsetid("", opset)] if opset else [])]
    path = folder / "source.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def _operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(str(path)).graph.node]


def test_an_output_of_mappings_becomes_the_table_that_they_are_made_of(bench: Bench) -> None:
    converted = bench.convert("onnx", _classifier(bench.folder, classlabels_strings=["no", "yes"]))

    assert [str(spec) for spec in converted.conversion.signature.outputs] == ["probabilities: float32[?, 2]"]
    assert converted.conversion.notes == (
        "the ZipMap of 'probabilities' was taken apart: a table, whose columns are the classes 'no', 'yes'",
    )
    assert _operators(converted.main) == ["Scaler"]
    check_onnx(converted.main)
    assert_near(converted.run({"x": _ROWS})["probabilities"], 2 * _ROWS)


@pytest.mark.parametrize(("table", "outputs"), [("scaled", ("scaled",)), ("x", ())])
@pytest.mark.parametrize("opset", [17, 0])
def test_a_table_whose_name_is_needed_keeps_it(bench: Bench, table: str, outputs: tuple[str, ...], opset: int) -> None:
    source = _classifier(bench.folder, table=table, outputs=outputs, opset=opset, classlabels_int64s=[3, 7])

    converted = bench.convert("onnx", source)

    assert _operators(converted.main) == ["Scaler", "Identity"]
    assert converted.conversion.notes[0].endswith("whose columns are the classes 3, 7")
    found = converted.run({"x": _ROWS})
    assert_near(found["probabilities"], 2 * _ROWS if table == "scaled" else _ROWS)
    assert list(found) == ["probabilities", *outputs]


def test_a_mapping_that_loses_columns_is_refused(bench: Bench) -> None:
    source = _classifier(bench.folder, classlabels_strings=["no", "no"])

    with pytest.raises(InputFileError, match=r"makes 'probabilities' has wrong classes \(got \['no', 'no'\]") as caught:
        bench.convert("onnx", source)
    assert caught.value.hint == "convert the model again with skl2onnx and options={'zipmap': False}"


def test_what_else_is_no_tensor_is_refused(bench: Bench) -> None:
    path = _classifier(bench.folder, classlabels_strings=["no", "yes"])
    model = onnx.load(str(path))
    model.graph.node[1].op_type, model.graph.node[1].domain = "SequenceConstruct", ""
    del model.graph.node[1].attribute[:]
    onnx.save(model, str(path))

    with pytest.raises(InputFileError, match="'probabilities' is a sequence_type, not a tensor"):
        bench.convert("onnx", path)
