"""What `roles` of a spec would say is shown as an option where there is no spec."""

from __future__ import annotations

import math
import shlex

import pytest
import yaml

from paritygate.pipelines.spec.roles import parse_roles
from paritygate.text import in_full
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.probes.inputs.roles import DeclaredRole, Role
from paritygate.validate.probes.outcome import below_roles, role_option


@pytest.mark.parametrize(
    "said", ["{empty: true}", "{padding: [left, right]}", "{low: -1, high: 3.5}", "{nan: true}", "{shortest: 1}"]
)
def test_the_option_says_of_the_input_what_the_spec_would(said: str) -> None:
    option, value = shlex.split(role_option(f"roles: {{attention_mask: {said}}}"))

    assert option == "--role"
    assert parse_roles(dict([value.split("=", 1)])) == parse_roles({"attention_mask": said})


def test_a_spec_gets_the_line_for_its_own_block() -> None:
    block = yaml.safe_load("roles:\n  mask: {role: mask, of: ids}\n")
    line = below_roles("roles: {mask: {role: mask, of: ids, empty: true}}")

    block["roles"].update(yaml.safe_load(line))

    assert parse_roles(block["roles"])["mask"] == DeclaredRole(role=Role.MASK, of="ids", empty=True)


def test_two_inputs_are_two_options_and_what_is_no_role_stays() -> None:
    both = role_option("roles: {a: {nan: true}} and roles: {b: {empty: true}}")
    dims = "model.dims: {sequence: {min: 1, max: 8}}"

    assert shlex.split(both) == ["--role", "a={nan: true}", "and", "--role", "b={empty: true}"]
    assert role_option(dims) == dims


@pytest.mark.parametrize(
    "number",
    [
        0.0, -1.0, 3.5, 0.1, 1 / 3, 1e-12, 1e-5, 16777217.0, -16777217.0, 2.0**53, 1e16, 1.5e20, 3.4028234663852886e38,
        math.nextafter(1.0, 2.0), 2**63 - 1, 2**64 - 1,
    ],
)  # fmt: skip
def test_a_number_in_a_hint_is_read_back_as_the_same(number: float) -> None:
    _, value = shlex.split(role_option(f"roles: {{x: {{low: -1e300, high: {in_full(number)}}}}}"))

    assert parse_roles(dict([value.split("=", 1)]))["x"].high == float(number)


@pytest.mark.parametrize("threshold", [0.5, 16777217.0, 0.1234567891, 1 / 3, -1e-9])
def test_a_decision_is_read_back_as_it_is_written(threshold: float) -> None:
    rule = parse_decision(f"y:threshold=>={threshold!r}")

    assert (rule.threshold, parse_decision(str(rule))) == (threshold, rule)
