"""Which nodes run where: read from real sessions, and judged by what the file's nodes compute."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from paritygate.validate.runners.onnxruntime_placement import (
    GraphNode,
    PlacedNode,
    judge,
    nodes_of,
    placed_nodes,
    say_nodes,
)

_CPU, _GPU = "CPUExecutionProvider", "CUDAExecutionProvider"
_FLOAT, _INT64 = TensorProto.FLOAT, TensorProto.INT64


def _model(
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: dict[str, int] | None = None,
    output: int = _FLOAT,
    weights: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, kind, ["a", "b"]) for name, kind in (inputs or {"x": _FLOAT}).items()],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8, functions=list(functions))


def _floats(model: onnx.ModelProto) -> set[str]:
    return {node.operator for node in nodes_of(model) if node.computes_floats}


def _session(model: onnx.ModelProto, *providers: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=list(providers) or [_CPU])


def _scaled_by_its_width() -> onnx.ModelProto:
    """Return `x / sqrt(width of x)`, as exporters write attention: the divisor is a float that is all shape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="shape"),
        helper.make_node("Gather", ["shape", "one"], ["width"], name="width"),
        helper.make_node("Cast", ["width"], ["wide"], name="cast", to=_FLOAT),
        helper.make_node("Sqrt", ["wide"], ["root"], name="root"),
        helper.make_node("Div", ["x", "root"], ["y"], name="scale"),
    ]
    return _model(nodes, weights={"one": np.array(1)})


# What the nodes of a file compute


def test_floats_made_of_shapes_alone_are_arithmetic() -> None:
    assert _floats(_scaled_by_its_width()) == {"Div"}


def test_integers_made_of_inputs_are_arithmetic_until_they_pick_floats() -> None:
    nodes = [
        helper.make_node("Add", ["ids", "ids"], ["twice"]),
        helper.make_node("Gather", ["table", "twice"], ["y"]),
    ]
    model = _model(nodes, inputs={"ids": _INT64}, weights={"table": np.zeros((9, 3), np.float32)})
    assert _floats(model) == {"Gather"}


def test_floats_that_become_integers_are_computed() -> None:
    model = _model([helper.make_node("ArgMax", ["x"], ["y"])], output=_INT64)
    assert _floats(model) == {"ArgMax"}


def test_what_weights_alone_make_is_not_computed_from_inputs() -> None:
    nodes = [helper.make_node("Neg", ["w"], ["minus"]), helper.make_node("Add", ["x", "minus"], ["y"])]
    assert _floats(_model(nodes, weights={"w": np.zeros(1, np.float32)})) == {"Add"}


def test_values_of_unknown_type_count_as_floats() -> None:
    nodes = [helper.make_node("Strange", ["ids"], ["odd"], domain="own"), helper.make_node("Neg", ["odd"], ["y"])]
    model = _model(nodes, inputs={"ids": _INT64})
    assert _floats(model) == {"own.Strange", "Neg"}


def test_nodes_inside_of_nodes_are_judged_with_the_values_around_them() -> None:
    def branch(operator: str) -> onnx.GraphProto:
        out = f"of_{operator}"
        values = [helper.make_tensor_value_info(out, _FLOAT, None)]
        return helper.make_graph([helper.make_node(operator, ["x"], [out])], operator, [], values)

    choice = helper.make_node("If", ["flag"], ["kept"], then_branch=branch("Sin"), else_branch=branch("Cos"))
    flag = np.array(True)  # noqa: FBT003 - a scalar
    model = _model([choice, helper.make_node("Neg", ["kept"], ["y"])], weights={"flag": flag})
    # The If itself computes nothing.
    assert _floats(model) == {"Sin", "Cos", "Neg"}


def test_nodes_of_local_functions_are_judged() -> None:
    inside = [helper.make_node("Tanh", ["a"], ["b"], name="inner")]
    function = helper.make_function("own", "Squash", ["a"], ["b"], inside, [helper.make_opsetid("", 17)])
    model = _model([helper.make_node("Squash", ["x"], ["y"], domain="own", name="call")], functions=[function])
    assert nodes_of(model) == (GraphNode(operator="Tanh", name="call/inner", computes_floats=True),)


# Where real sessions run them


def test_a_session_on_the_cpu_tells_every_node() -> None:
    placed = placed_nodes(_session(_scaled_by_its_width()))
    assert placed is not None
    assert {node.provider for node in placed} == {_CPU}
    assert sorted((node.operator, node.name) for node in placed) == [
        ("Cast", "cast"), ("Div", "scale"), ("Gather", "width"), ("Shape", "shape"), ("Sqrt", "root"),
    ]  # fmt: skip
    found = judge(placed, nodes_of(_scaled_by_its_width()), cpu=_CPU)
    assert [node.name for node in found.computing] == ["scale"]
    assert (found.arithmetic, found.undecided, dict(found.counts)) == (4, (), {_CPU: 5})


def test_a_provider_that_takes_no_node_leaves_all_to_the_cpu_without_a_word() -> None:
    other = "AzureExecutionProvider"
    if other not in onnxruntime.get_available_providers():
        pytest.skip(f"this build of onnxruntime has no {other}")
    session = _session(_scaled_by_its_width(), other, _CPU)
    # By the session's own word it is the other provider that runs.
    assert session.get_providers()[0] == other
    placed = placed_nodes(session)
    assert placed is not None
    assert [node.name for node in judge(placed, nodes_of(_scaled_by_its_width()), cpu=_CPU).computing] == ["scale"]


def test_a_session_that_does_not_tell_is_known_as_such() -> None:
    session_of_an_old_version = SimpleNamespace()
    assert placed_nodes(session_of_an_old_version) is None


# What is judged where names do not help


def _node(operator: str, name: str = "", *, floats: bool) -> GraphNode:
    return GraphNode(operator=operator, name=name, computes_floats=floats)


def _placed(operator: str, name: str = "", provider: str = _CPU) -> PlacedNode:
    return PlacedNode(provider=provider, operator=operator, name=name)


def test_nodes_on_the_gpu_are_not_judged() -> None:
    found = judge([_placed("Conv", "c", _GPU)], [_node("Conv", "c", floats=True)], cpu=_CPU)
    assert (found.computing, found.arithmetic, dict(found.counts)) == ((), 0, {_GPU: 1})


def test_a_name_that_two_nodes_share_computes_if_one_does() -> None:
    nodes = [_node("Mul", "m", floats=True), _node("Mul", "m", floats=False)]
    assert judge([_placed("Mul", "m")], nodes, cpu=_CPU).computing == (_placed("Mul", "m"),)


@pytest.mark.parametrize(
    ("kinds", "on_cpu", "computing", "undecided"),
    [
        ((False, False), 2, 0, 0),
        ((True, True), 1, 1, 0),
        ((True, False), 1, 0, 1),
        ((True, False), 2, 1, 1),
        ((), 1, 1, 0),
    ],
    ids=["none computes", "all compute", "one of either", "more than are harmless", "not in the file"],
)
def test_nodes_without_a_name_are_judged_by_those_of_their_operator(
    kinds: tuple[bool, ...], on_cpu: int, computing: int, undecided: int
) -> None:
    nodes = [_node("Mul", floats=floats) for floats in kinds]
    found = judge([_placed("Mul")] * on_cpu, nodes, cpu=_CPU)
    assert (len(found.computing), len(found.undecided)) == (computing, undecided)
    assert found.arithmetic == on_cpu - computing - undecided


def test_a_name_that_the_runtime_gave_is_judged_by_the_nodes_that_it_does_not_name() -> None:
    nodes = [_node("Mul", "kept", floats=False), _node("Mul", "merged", floats=True)]
    placed = [_placed("Mul", "kept"), _placed("Mul", "merged/Fusion")]
    found = judge(placed, nodes, cpu=_CPU)
    assert [node.name for node in found.computing] == ["merged/Fusion"]
    assert found.arithmetic == 1


def test_what_the_optimised_graph_explains_leaves_fewer_harmless_ones_to_the_others() -> None:
    nodes = [_node("Gather", floats=True), _node("Gather", floats=False)]
    placed = [_placed("Gather"), _placed("Gather", "Gather_token_1")]
    found = judge(placed, nodes, cpu=_CPU, optimised=lambda: [_node("Gather", "Gather_token_1", floats=False)])
    assert (found.computing, found.undecided, found.arithmetic) == ((_placed("Gather"),), (), 1)


def test_the_optimised_graph_is_looked_at_only_where_the_file_does_not_tell() -> None:
    def never() -> list[GraphNode]:
        pytest.fail("it was asked for")

    found = judge([_placed("Mul", "m")], [_node("Mul", "m", floats=False)], cpu=_CPU, optimised=never)
    assert found.computing == ()


@pytest.mark.parametrize("operator", ["Shape", "Size", "If", "Loop", "MemcpyToHost"])
def test_what_computes_nothing_may_stand_anywhere(operator: str) -> None:
    found = judge([_placed(operator, "new")], [], cpu=_CPU)
    assert (found.computing, found.undecided, found.arithmetic) == ((), (), 1)


def test_nodes_are_said_by_operator_the_most_frequent_first() -> None:
    nodes = [_placed("Det", f"d{number}") for number in range(5)] + [_placed("Add"), _placed("Sin", "s")]
    assert say_nodes(nodes) == "5 Det (d0, d1, d2, ...), 1 Add, 1 Sin (s)"
