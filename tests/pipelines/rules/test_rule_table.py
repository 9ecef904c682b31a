"""Each rule is one row: the command, the function, the spec and printed commands agree on it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import click
import pytest

import paritygate as pg
from paritygate.errors import UsageError
from paritygate.pipelines.cli.commands.judging.compare import command
from paritygate.pipelines.rules.gate_rules import (
    gate_rules_of,
    rules_of_outputs,
    values_of_options,
    values_of_python,
    words_of_rules,
)
from paritygate.pipelines.rules.table import RULES, Kind, Scope
from paritygate.pipelines.spec.schema import ResolvedSpec, Spec
from paritygate.precision import Variant
from paritygate.validate.gate.rules import EdgeRule, GateRules

# What a spec or the samples say, and no option.
_WITHOUT_OPTION = {"columns", "strata"}
_MADE_TOGETHER = {"tolerance", "decisions"}
_IN_PYTHON: dict[str, Any] = {
    "precision": "fp16",
    "decisions": {"logits": "argmax,axis=1", "p": "threshold=>=3"},
    "constant_decisions": {"p": "one class"},
    "tolerance": {"max_abs_diff": 1e-3, "decision_mismatches": 2, "logits:max_abs_diff": [0.5, None]},
    "outputs": (),
    "argmax_of": {"label": "logits"},
    "matches": ("d:boxes=box,scores=p",),
    "ignore": {"debug": "random by design"},
    "axes": {"logits": 1, "p": 0},
    "valid_where": {"logits": "mask"},
    "non_finite": "match",
    "seed": 5,
    "edge": "fail",
}


def _in_python(**given: Any) -> GateRules:  # noqa: ANN401
    defaults = {name: item.default for name, item in inspect.signature(pg.compare).parameters.items()}
    return gate_rules_of(values_of_python({**defaults, **given}))


def _on_command_line(*words: str) -> GateRules:
    context = command.make_context("compare", ["a.onnx", "b.onnx", "--samples", "x.npz", *words])
    return gate_rules_of(values_of_options(context.params))


def test_each_rule_is_an_argument_and_an_option_with_the_same_default() -> None:
    arguments = inspect.signature(pg.compare).parameters
    options = {param.name: param for param in command.params if isinstance(param, click.Option)}

    for rule in RULES:
        assert arguments[rule.argument].kind is inspect.Parameter.KEYWORD_ONLY
        assert rule.name in options[rule.argument].opts
        if rule.default is not None:
            assert arguments[rule.argument].default == rule.default == options[rule.argument].default


def test_the_rows_make_every_field_once_that_options_say() -> None:
    made = [rule.field for rule in RULES if rule.field]

    assert len(made) == len(set(made))
    assert {*GateRules.__struct_fields__} == {*made, *_MADE_TOGETHER, *_WITHOUT_OPTION}


def test_each_key_stands_in_the_spec() -> None:
    output = Spec.model_fields["outputs"].annotation.__args__[1]  # type: ignore[union-attr]
    for rule in RULES:
        part, _, name = rule.key.partition(".")
        assert not part or part in Spec.model_fields
        assert not name or name in output.model_fields


def test_the_command_and_python_make_the_same_rules() -> None:
    words = [*words_of_rules(_in_python(**_IN_PYTHON), *Scope)]

    assert _on_command_line(*words) == _in_python(**_IN_PYTHON)
    assert _on_command_line() == _in_python()
    assert _on_command_line(
        "--repeat",
        "2",
        "--min-rows",
        "9",
        "--probes",
        "masks",
        "--min-cosine-similarity",
        "e=0.5",
        "--min-sqnr",
        "e=30",
    ) == (_in_python(repeat=2, min_rows=9, probes=["masks"], min_cosine_similarity={"e": 0.5}, min_sqnr={"e": 30.0}))


def test_a_spec_makes_the_same_rules() -> None:
    spec = Spec.model_validate(
        {
            "model": {"name": "m", "source": "a.onnx"},
            "samples": {"source": "x.npz"},
            "targets": ["onnx-fp16"],
            "decisions": {"logits": {"argmax": True}},
            "argmax_of": {"label": "logits"},
            "outputs": {
                "debug": {"ignore": "random by design"},
                "logits": {"valid_where": "mask", "min_cosine_similarity": 0.9, "min_sqnr": 40},
            },
            "axes": {"logits": 1},
            "non_finite": "match",
            "edge": "off",
            "seed": 3,
            "repeat": 2,
            "min_rows": 9,
            "probes": ["masks"],
        }
    )
    variant = Variant.parse("onnx-fp16")

    assert ResolvedSpec(spec=spec, folder=Path(), origin="here").rules(variant) == _in_python(
        precision="fp16",
        decisions={"logits": "argmax"},
        argmax_of={"label": "logits"},
        ignore={"debug": "random by design"},
        valid_where={"logits": "mask"},
        min_cosine_similarity={"logits": 0.9},
        min_sqnr={"logits": 40.0},
        axes={"logits": 1},
        non_finite="match",
        edge="off",
        seed=3,
        repeat=2,
        min_rows=9,
        probes="masks",
    )


def test_rules_of_some_outputs_name_no_other() -> None:
    rules = rules_of_outputs(_in_python(**_IN_PYTHON, min_cosine_similarity={"p": 0.5}), ["logits"])

    assert set(rules.outputs_named()) == {"logits"}
    assert rules.valid_where == {"logits": "mask"}
    # The label is not compared, but logits are decided on.
    assert "decision_mismatches" in rules.tolerance.declared
    without = rules_of_outputs(_in_python(**_IN_PYTHON), ["box"])
    assert without.tolerance.declared == {"max_abs_diff"}


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.kind is Kind.WHOLE], ids=lambda rule: rule.argument)
@pytest.mark.parametrize("given", ["3", 1.5, -1])
def test_a_number_that_is_none_is_wrong_usage(rule: Any, given: object) -> None:  # noqa: ANN401
    with pytest.raises(UsageError):
        _in_python(**{rule.argument: given})


def test_an_edge_is_one_of_its_rules() -> None:
    assert set(next(rule.allowed for rule in RULES if rule.argument == "edge")) == set(map(str, EdgeRule))
