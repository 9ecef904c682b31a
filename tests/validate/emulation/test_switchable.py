"""A switchable graph answers like the file that a converter makes of the same choice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from paritygate.convert.onnx.onnx_to_low_precision import lowered_nodes, rewrite_precision
from paritygate.models.loading import LoadedModel
from paritygate.models.onnx.file import signature_of_onnx
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.validate.emulation.switchable import CastRounding, make_switchable
from paritygate.validate.runners.emulated import open_emulated
from paritygate.validate.runners.switchable import SwitchableModel

_WIDE = 6


def _model() -> onnx.ModelProto:
    """Return a model whose values have several readers, with constants of both kinds, one beyond the range."""
    random = np.random.default_rng(5)
    weights = {"w": random.normal(size=(_WIDE, _WIDE)), "mask": np.array([0, 0, 0, 0, 0, -1e9])}
    nodes = [
        helper.make_node("Constant", [], ["half"], name="constant", value_float=0.7),
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Mul", ["a", "half"], ["b"], name="scale"),
        helper.make_node("Add", ["b", "mask"], ["c"], name="mask"),
        helper.make_node("Softmax", ["c"], ["d"], name="softmax", axis=-1),
        helper.make_node("Transpose", ["a"], ["t"], name="turn", perm=[1, 0]),
        helper.make_node("Greater", ["b", "half"], ["e"], name="compare"),
        helper.make_node("Where", ["e", "d", "b"], ["f"], name="choose"),
        helper.make_node("MatMul", ["f", "t"], ["g"], name="second product"),
        helper.make_node("Tanh", ["g"], ["y"], name="squash"),
    ]
    graph = helper.make_graph(
        nodes,
        "choices",
        [helper.make_tensor_value_info("x", 1, ["n", _WIDE])],
        [helper.make_tensor_value_info("y", 1, ["n", "m"])],
        [numpy_helper.from_array(np.asarray(values, np.float32), name) for name, values in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("seed", range(4))
def test_every_choice_answers_like_the_converted_file(seed: int, tmp_path: Path) -> None:
    model, random = _model(), np.random.default_rng(seed)
    work, lowered = lowered_nodes(model, precision=Precision.FP16)
    switchable = make_switchable(work, lowered, CastRounding(precision=Precision.FP16), None)
    one = SwitchableModel(switchable, signature_of_onnx(model))
    kept = [name for name in one.switches if random.random() < 0.4]
    made = rewrite_precision(model, precision=Precision.FP16, kept=dict.fromkeys(kept, "chosen"))
    onnx.save(made.model, tmp_path / "model.onnx")
    file = ModelRef(text="model.onnx", folder=tmp_path, kind=SourceKind.ONNX, name="mixed")
    rows = {"x": random.normal(size=(5, _WIDE)).astype(np.float32)}

    answer = one.keeping(kept).run(rows)["y"]

    np.testing.assert_array_equal(answer, open_emulated(LoadedModel(ref=file), Precision.MIXED).run(rows)["y"])
    assert (answer != one.keeping(one.switches).run(rows)["y"]).any()


def test_with_all_nodes_kept_it_is_the_original() -> None:
    from onnx.reference import ReferenceEvaluator

    model = _model()
    work, lowered = lowered_nodes(model, precision=Precision.FP16)
    one = SwitchableModel(
        make_switchable(work, lowered, CastRounding(precision=Precision.FP16), None), signature_of_onnx(model)
    )
    rows = {"x": np.random.default_rng(1).normal(size=(5, _WIDE)).astype(np.float32)}
    (expected,) = ReferenceEvaluator(model).run(None, rows)

    np.testing.assert_allclose(one.keeping(one.switches).run(rows)["y"], expected, rtol=1e-5, atol=1e-6)
