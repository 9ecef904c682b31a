"""Artifacts that the rewriter made, and ONNX's own test models, in emulation."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from paritygate.convert.onnx.onnx_to_low_precision import rewrite_precision
from paritygate.errors import BackendError, ParitygateError
from paritygate.models.loading import LoadedModel
from paritygate.models.onnx.graph import name_nodes, nodes_in
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.validate.runners.emulated import EmulatedRunner, open_emulated

_FLOAT = TensorProto.FLOAT
# Each with an epsilon that it has with all its bits: what a smaller one guards stays in FP32.
_EPSILONS = [(Precision.FP16, 1e-4), (Precision.BF16, 1e-12)]


def _open(model: onnx.ModelProto, path: Path, precision: Precision) -> EmulatedRunner:
    onnx.save(model, str(path))
    return open_emulated(LoadedModel(ref=ModelRef(text=path.name, folder=path.parent, kind=SourceKind.ONNX)), precision)


def _normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _model(epsilon: float = 1e-12) -> onnx.ModelProto:
    """Return a convolution, a Resize, a mask, a small epsilon, an If and a Loop."""
    then = helper.make_graph(
        [helper.make_node("Exp", ["masked"], ["e"])], "then", [], [helper.make_tensor_value_info("e", _FLOAT, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Tanh", ["masked"], ["t"])], "else", [], [helper.make_tensor_value_info("t", _FLOAT, None)]
    )
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["carried", "scale"], ["scaled"]),
            helper.make_node("Add", ["scaled", "normed"], ["carried_out"]),
            helper.make_node("Identity", ["go"], ["go_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", _FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried_out", _FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Resize", ["conv", "", "scales"], ["resized"], mode="linear"),
        helper.make_node("Mul", ["inverse_mask", "minus"], ["bias"]),
        helper.make_node("Add", ["resized", "bias"], ["masked_scores"]),
        helper.make_node("Softmax", ["masked_scores"], ["masked"], name="softmax"),
        helper.make_node("If", ["is_true"], ["branched"], then_branch=then, else_branch=other),
        helper.make_node("ReduceMean", ["branched"], ["mean"], axes=[-1]),
        helper.make_node("Add", ["mean", "epsilon"], ["positive"]),
        helper.make_node("Div", ["branched", "positive"], ["normed"]),
        helper.make_node("Loop", ["turns", "", "normed"], ["y"], body=body),
    ]
    weights: dict[str, NDArray[Any]] = {
        "w": _normal(8, 3, 3, 3, seed=1),
        "scales": np.array([1, 1, 1.5, 1.5], dtype=np.float32),
        "inverse_mask": np.repeat(np.array([0, 1], dtype=np.float32), [9, 3]),
        "minus": np.array(-1e9, dtype=np.float32),
        "epsilon": np.array(epsilon, dtype=np.float32),
        "scale": np.array([0.7], dtype=np.float32),
        "turns": np.array(5),
    }
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info("x", _FLOAT, ["batch", 3, 8, 8]),
            helper.make_tensor_value_info("is_true", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", _FLOAT, ["batch", 8, 12, 12])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("is_true", [True, False])
@pytest.mark.parametrize(("precision", "epsilon"), _EPSILONS)
def test_an_artifact_answers_as_its_original_does_to_the_bit(
    tmp_path: Path, precision: Precision, epsilon: float, *, is_true: bool
) -> None:
    original = _open(_model(epsilon), tmp_path / "original.onnx", precision)
    rewritten = rewrite_precision(_model(epsilon), precision=precision).model
    artifact = _open(rewritten, tmp_path / "artifact.onnx", precision)
    inputs = {"x": _normal(2, 3, 8, 8), "is_true": np.array(is_true)}
    found = artifact.run(inputs)["y"]
    assert found.dtype == np.float32
    assert np.isfinite(found.astype(np.float32)).all()
    np.testing.assert_array_equal(found, original.run(inputs)["y"])
    assert artifact.facts.precision_found is precision


def test_nodes_kept_in_float32_bring_the_answer_nearer(tmp_path: Path) -> None:
    model = _model()
    name_nodes(model.graph)
    inputs = {"x": _normal(2, 3, 8, 8), "is_true": np.array(1, dtype=bool)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)[0]
    differences = []
    for number, kept in enumerate(([], ["Conv", "Resize", "Add", "Softmax", "Exp", "Div", "ReduceMean", "Mul"])):
        names = {node.name: "kept as asked" for node in nodes_in(model.graph) if node.op_type in kept}
        rewritten = rewrite_precision(model, precision=Precision.BF16, kept=names).model
        found: NDArray[Any] = _open(rewritten, tmp_path / f"{number}.onnx", Precision.BF16).run(inputs)["y"]
        differences.append(float(np.abs(found - expected).mean()))
    assert differences[1] < differences[0] / 1.5


def _node_models() -> Iterator[tuple[str, onnx.ModelProto, list[Any]]]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if case.model is not None:
            model: onnx.ModelProto = case.model
            # The tests are written in a version newer than ONNX Runtime reads.
            model.ir_version = min(model.ir_version, 10)
            arrays: Any = (case.data_sets or [((), ())])[0][0]
            yield case.name, model, [numpy_helper.to_array(a) if hasattr(a, "dims") else a for a in arrays]


def _runs(model: onnx.ModelProto, inputs: list[Any]) -> list[tuple[str, tuple[int, ...]]] | None:
    """Return dtypes and shapes of what ONNX Runtime answers; None where it does not run the model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        outputs = session.run(None, dict(zip([each.name for each in session.get_inputs()], inputs, strict=True)))
        return [(output.dtype.name, output.shape) for output in outputs]
    except Exception:  # noqa: BLE001 - whatever it raises, it does not run it, or not with tensors
        return None


# What is refused on purpose.
_EXCEPTIONS = ("is a BitCast", "has no Cast to bfloat16")


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_every_model_of_onnx_itself_that_runs_runs_emulated(tmp_path: Path, precision: Precision) -> None:
    failures, emulated = [], 0
    for name, model, inputs in _node_models():
        expected = _runs(model, inputs)
        try:
            runner = _open(model, tmp_path / "model.onnx", precision)
            fed = {spec.name: array for spec, array in zip(runner.signature.inputs, inputs, strict=True)}
            found = [(output.dtype.name, output.shape) for output in runner.run(fed).values()]
        except ParitygateError as err:
            is_expected = not isinstance(err, BackendError) or any(text in str(err) for text in _EXCEPTIONS)
            if expected is not None and not is_expected:
                failures.append(f"{name}: {err}")
            continue
        emulated += 1
        if expected is not None and found != expected:
            failures.append(f"{name}: {found}, not {expected}")
    assert not failures, "\n".join(failures)
    assert emulated > 900
