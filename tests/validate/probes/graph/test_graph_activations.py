"""What implementations of a bounded function differ by, as the graph of a model tells it for each column."""

from __future__ import annotations

import math

import onnx
import onnx.parser
import pytest

from paritygate.validate.probes.graph.activations import activation_floors

F = 3e-7


def _floors(body: str, *, weights: str = "", outputs: str = "float[batch, 4] y") -> dict[str, list[float]]:
    """Return the floors of a graph that takes `x` of width 4."""
    text = f"""
    <ir_version: 9, opset_import: ["" : 18, "ai.onnx.ml" : 3]>
    model (float[batch, 4] x) => ({outputs}) {f"<{weights}>" if weights else ""} {{ {body} }}
    """
    return {name: floor.tolist() for name, floor in activation_floors(onnx.parser.parse_model(text)).items()}


@pytest.mark.parametrize("operator", ["Sigmoid", "Tanh", "Erf"])
def test_a_bounded_function_has_a_floor(operator: str) -> None:
    assert _floors(f"y = {operator}(x)") == {"y": [F]}


@pytest.mark.parametrize("body", ["y = Relu(x)", "y = Softmax <axis = 1> (x)", "y = Exp(x)", "y = Identity(x)"])
def test_another_function_has_none(body: str) -> None:
    assert _floors(body) == {}


def test_what_mixes_values_ends_the_way_back() -> None:
    weights = "float[4, 4] w = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}"

    assert _floors("s = Sigmoid(x) y = MatMul(s, w)", weights=weights) == {}


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        ("y = Identity(s)", ""),
        ("d = Cast <to = 11> (s) y = Cast <to = 1> (d)", ""),
        ("y = Reshape(s, shape)", "int64[2] shape = {-1, 4}"),
        ("t = Transpose <perm = [1, 0]> (s) y = Transpose <perm = [1, 0]> (t)", ""),
        ("y = Slice(s, zero, four, one)", "int64[1] zero = {0}, int64[1] four = {4}, int64[1] one = {1}"),
        ("l, r = Split <axis = 1, num_outputs = 2> (s) y = Concat <axis = 1> (l, r)", ""),
        ("y = Sub(one, s)", "float one = {1}"),
        ("y = Sub(s, one)", "float one = {1}"),
        ("y = Add(s, shift)", "float[4] shift = {1, 2, 3, 4}"),
        ("y = Neg(s)", ""),
    ],
)
def test_what_moves_no_value_keeps_it(body: str, weights: str) -> None:
    found = _floors(f"s = Sigmoid(x) {body}", weights=weights)

    assert set(found) == {"y"}
    assert set(found["y"]) == {F}


@pytest.mark.parametrize(
    ("body", "factors"),
    [
        ("y = Mul(s, f)", [100, 1e-5, -2, 1]),
        ("y = Mul(f, s)", [100, 1e-5, -2, 1]),
        ("y = Div(s, f)", [1 / 100, 1e5, 1 / 2, 1]),
        ("t = Mul(s, f) y = Sub(one, t)", [100, 1e-5, 2, 1]),
    ],
)
def test_a_constant_factor_multiplies_the_floor_of_its_column(body: str, factors: list[float]) -> None:
    found = _floors(f"s = Sigmoid(x) {body}", weights="float[4] f = {100, 0.00001, -2, 1}, float one = {1}")

    assert found["y"] == pytest.approx([F * abs(factor) for factor in factors])


def test_a_factor_in_a_node_counts_as_well() -> None:
    assert _floors("s = Tanh(x) f = Constant <value_float = 0.5> () y = Mul(s, f)")["y"] == pytest.approx([F / 2])


@pytest.mark.parametrize(
    "body",
    ["y = Div(f, s)", "y = Div(s, zero)", "y = Mul(s, x)", "y = Add(s, x)", "y = Exp(s)", "l = Log(s) y = Mul(l, x)"],
)
def test_what_is_computed_with_the_function_has_a_floor_that_is_not_known(body: str) -> None:
    (found,) = _floors(f"s = Sigmoid(x) {body}", weights="float f = {2}, float zero = {0}")["y"]

    assert math.isnan(found)


def test_the_columns_of_a_concat_have_floors_of_their_own() -> None:
    body = "l, r = Split <axis = 1, num_outputs = 2> (x) s = Sigmoid(l) t = Mul(s, f) y = Concat <axis = {}> (t, r)"
    weights = "float f = {0.1}"

    assert _floors(body.replace("{}", "1"), weights=weights)["y"] == pytest.approx([F / 10, F / 10, 0, 0])
    assert _floors(body.replace("{}", "-1"), weights=weights)["y"] == pytest.approx([F / 10, F / 10, 0, 0])
    # Of rows, no column is bounded in all of them.
    assert _floors(body.replace("{}", "0"), weights=weights, outputs="float[b, 2] y") == {}


def test_columns_that_are_taken_out_keep_theirs() -> None:
    body = "s = Sigmoid(x) t = Mul(s, f)"
    weights = (
        "float[4] f = {1, 2, 4, 8}, int64[2] places = {3, 1}, int64[1] two = {2}, int64[1] four = {4}, "
        "int64[1] one = {1}"
    )
    narrow = "float[batch, 2] y"

    assert _floors(f"{body} y = Gather <axis = 1> (t, places)", weights=weights, outputs=narrow)["y"] == pytest.approx(
        [8 * F, 2 * F]
    )
    assert _floors(f"{body} y = Slice(t, two, four, one)", weights=weights, outputs=narrow)["y"] == pytest.approx(
        [4 * F, 8 * F]
    )
    found = _floors(
        f"{body} a, b = Split <axis = 1, num_outputs = 2> (t)",
        weights=weights,
        outputs="float[batch, 2] a, float[batch, 2] b",
    )
    assert found["a"] == pytest.approx([F, 2 * F])
    assert found["b"] == pytest.approx([4 * F, 8 * F])


def test_columns_that_are_moved_have_the_smallest_floor() -> None:
    body = "s = Sigmoid(x) t = Mul(s, f) y = Transpose <perm = [1, 0]> (t)"

    found = _floors(body, weights="float[4] f = {1, 2, 4, 8}", outputs="float[4, batch] y")

    assert found["y"] == pytest.approx([F])


def test_columns_in_steps_have_the_smallest_floor() -> None:
    weights = (
        "float[4] f = {1, 2, 4, 8}, int64[1] zero = {0}, int64[1] four = {4}, int64[1] one = {1}, int64[1] two = {2}"
    )

    found = _floors(
        "s = Sigmoid(x) t = Mul(s, f) y = Slice(t, zero, four, one, two)",
        weights=weights,
        outputs="float[batch, 2] y",
    )

    assert found["y"] == pytest.approx([F])


def test_trees_that_end_in_a_logistic_function_have_one() -> None:
    def tree(transform: str) -> onnx.ModelProto:
        node = onnx.helper.make_node(
            "TreeEnsembleRegressor",
            ["x"],
            ["y"],
            domain="ai.onnx.ml",
            n_targets=1,
            nodes_treeids=[0],
            nodes_nodeids=[0],
            nodes_modes=["LEAF"],
            nodes_featureids=[0],
            nodes_values=[0.0],
            nodes_truenodeids=[0],
            nodes_falsenodeids=[0],
            target_ids=[0],
            target_nodeids=[0],
            target_treeids=[0],
            target_weights=[1.0],
            post_transform=transform,
        )
        kinds = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["b", 1]) for name in "xy"]
        graph = onnx.helper.make_graph([node], "tree", kinds[:1], kinds[1:])
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("ai.onnx.ml", 3)])

    assert activation_floors(tree("LOGISTIC"))["y"].tolist() == [F]
    assert activation_floors(tree("NONE")) == {}
