"""A fault that one change of the inputs undoes is named; another fault is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.pipelines.compare.causes.conftest import DESIGNS, SIZE, Fault, compared, named, node, normal

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench

_RGB = {"bgr": np.array([2, 1, 0], np.int64)}
_REVERSED = Fault(nodes=[node("Gather", ["x", "bgr"], "x1", axis=1)], weights=_RGB)
_EXCHANGED = Fault(nodes=[node("Transpose", ["x"], "x1", perm=[0, 1, 3, 2])])
_SHAPES = {
    "last": np.array([0, SIZE, SIZE, 3], np.int64),
    "first": np.array([0, 3, SIZE, SIZE], np.int64),
}
_RESHAPED = Fault(
    nodes=[node("Transpose", ["x"], "l", perm=[0, 2, 3, 1]), node("Reshape", ["l", "first"], "x1")], weights=_SHAPES
)
_RESHAPED_BACK = Fault(
    nodes=[node("Reshape", ["x", "last"], "l"), node("Transpose", ["l"], "x1", perm=[0, 3, 1, 2])], weights=_SHAPES
)


def _affine(scale: object, shift: object) -> Fault:
    """Plant `x * scale + shift`, in an operator whose constants are not constants of the graph's first steps."""
    weights = {
        "scale": np.asarray(scale, np.float32).reshape(1, -1, 1, 1),
        "shift": np.asarray(shift, np.float32).reshape(1, -1, 1, 1),
    }
    nodes = [node("Abs", ["x"], "abs"), node("Sign", ["x"], "sign"), node("Mul", ["abs", "sign"], "same")]
    return Fault(
        nodes=[*nodes, node("Mul", ["same", "scale"], "s"), node("Add", ["s", "shift"], "x1")], weights=weights
    )


def _normalising(mean: list[float], std: list[float]) -> Fault:
    return _affine(1 / np.array(std), -np.array(mean) / np.array(std))


_IMAGENET = _normalising([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (_REVERSED, "channels_reversed"),
        (_EXCHANGED, "sizes_exchanged"),
        (_RESHAPED, "layout"),
        (_RESHAPED_BACK, "layout"),
        (_affine(1 / 255, 0), "scaled"),
        (_IMAGENET, "normalised_again"),
    ],
)
def test_an_input_that_is_changed_once_more_is_named(bench: Bench, design: str, fault: Fault, kind: str) -> None:
    outcome = compared(bench, design, candidate=fault)

    assert outcome.code == 1
    assert named(outcome) == [kind]
    (cause,) = outcome.result["causes"]
    assert cause["after"] < cause["before"] / 10
    assert cause["rows"] > 0


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    ("left_out", "values", "kind"),
    [
        (_affine(1 / 255, 0), "bytes", "scaled"),
        (_IMAGENET, "unit", "not_normalised"),
        (_affine(1 / 127.5, -1), "bytes", "not_normalised"),
        (_normalising([0.5], [0.5]), "normal", "not_normalised"),
    ],
)
def test_a_step_that_the_candidate_lacks_is_named(
    bench: Bench, design: str, left_out: Fault, values: str, kind: str
) -> None:
    assert named(compared(bench, design, reference=left_out, kind=values)) == [kind]


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    ("nodes", "is_in_candidate"),
    [
        ([node("Sub", ["x", "mean"], "s"), node("Div", ["s", "std"], "x1")], False),
        ([node("Sub", ["x", "mean"], "s"), node("Div", ["s", "std"], "x1")], True),
        ([node("Mul", ["x", "std"], "s"), node("Add", ["mean", "s"], "x1")], False),
    ],
)
def test_a_normalisation_by_any_constants_is_named_where_a_file_holds_them(
    bench: Bench, design: str, nodes: list[Any], *, is_in_candidate: bool
) -> None:
    weights = {"mean": np.array([3.1, 2, 1.7], np.float32), "std": np.array([0.3, 0.7, 0.2], np.float32)}
    fault = Fault(nodes=nodes, weights={name: value.reshape(1, 3, 1, 1) for name, value in weights.items()})
    reference, candidate = (Fault(), fault) if is_in_candidate else (fault, Fault())

    outcome = compared(bench, design, reference=reference, candidate=candidate)

    assert named(outcome) == ["normalised_again" if is_in_candidate else "not_normalised"]


def _steps(*constants: tuple[str, float | list[float]]) -> Fault:
    """Plant operators with constants that a graph begins with."""
    nodes, weights, name = [], {}, "x"
    for at, (operator, value) in enumerate(constants):
        after = "x1" if at == len(constants) - 1 else f"step{at}"
        # Exporters write equal constants once, and refer to them.
        nodes += [node("Identity", [f"given{at}"], f"value{at}"), node(operator, [name, f"value{at}"], after)]
        weights[f"given{at}"] = np.asarray(value, np.float32).reshape(1, -1, 1, 1)
        name = after
    return Fault(nodes=nodes, weights=weights)


_MEAN, _STD = ("Sub", [0.485, 0.456, 0.406]), ("Div", [0.229, 0.224, 0.225])


@pytest.mark.parametrize(
    ("candidate", "kind"),
    [
        (_steps(_MEAN, _STD, _MEAN, _STD), "normalised_again"),
        (_steps(("Div", 255.0), _MEAN, _STD), "scaled"),
        (_steps(("Sub", 0.5), ("Div", 0.5)), "other_normalisation"),
        (_steps(_MEAN), "other_normalisation"),
        (_steps(_STD), "other_normalisation"),
        (Fault(), "not_normalised"),
    ],
    ids=["twice", "divided by 255", "half and half", "without std", "without mean", "none"],
)
def test_what_both_files_begin_with_says_how_they_differ(bench: Bench, candidate: Fault, kind: str) -> None:
    outcome = compared(bench, "convolutions", reference=_steps(_MEAN, _STD), candidate=candidate, kind="unit")

    assert named(outcome) == [kind]
    values = next(words["values"] for words in outcome.result["causes"][0]["words"] if words["key"] == f"cause.{kind}")
    if kind == "normalised_again":
        assert values["std"] == pytest.approx([0.229, 0.224, 0.225], rel=1e-4)
    if kind == "scaled":
        assert values["factor"] == pytest.approx(255, rel=1e-4)


def test_channels_last_where_first_were_recorded_is_a_layout(bench: Bench) -> None:
    fault = Fault(nodes=[node("Transpose", ["x"], "x1", perm=[0, 3, 1, 2])], shape=("batch", SIZE, SIZE, 3))
    outcome = compared(bench, "convolutions", candidate=fault)

    assert "accepts_inputs" in outcome.failed
    assert named(outcome) == ["layout"]
    (cause,) = outcome.result["causes"]
    assert cause["before"] is None
    assert cause["after"] < 1


@pytest.mark.parametrize(
    ("design", "values"), [("convolutions", "unit"), ("dense", "bytes"), ("softmax", "unit"), ("dense", "normal")]
)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(instead={"b": normal(24, 5, seed=77)}),
        Fault(nodes=[node("Tanh", ["x"], "x1")]),
        Fault(
            nodes=[node("Mul", ["x", "cut"], "x1")], weights={"cut": (np.arange(SIZE) < SIZE - 1).astype(np.float32)}
        ),
        Fault(nodes=[node("Gather", ["x", "gbr"], "x1", axis=1)], weights={"gbr": np.array([1, 2, 0], np.int64)}),
        _affine([1, 0.5, 1], 0),
        _affine(1, 0.3),
    ],
    ids=["weight", "activation", "truncated", "permuted", "channel", "offset"],
)
def test_another_fault_is_not_named(bench: Bench, design: str, values: str, fault: Fault) -> None:
    if "b" in fault.instead and design == "dense":
        fault = Fault(instead={"b": normal(8, 5, seed=77)})
    outcome = compared(bench, design, candidate=fault, kind=values)

    assert outcome.code == 1
    assert named(outcome) == []
