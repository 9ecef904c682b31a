"""What `roles` of a spec would say is shown as an option where there is no spec."""

from __future__ import annotations

import shlex

import pytest

from paritygate.pipelines.spec.roles import parse_roles
from paritygate.validate.probes.edges import role_option


@pytest.mark.parametrize(
    "said", ["{empty: true}", "{padding: [left, right]}", "{low: -1, high: 3.5}", "{nan: true}", "{shortest: 1}"]
)
def test_the_option_says_of_the_input_what_the_spec_would(said: str) -> None:
    option, value = shlex.split(role_option(f"roles: {{attention_mask: {said}}}"))

    assert option == "--role"
    assert parse_roles(dict([value.split("=", 1)])) == parse_roles({"attention_mask": said})


def test_two_inputs_are_two_options_and_what_is_no_role_stays() -> None:
    both = role_option("roles: {a: {nan: true}} and roles: {b: {empty: true}}")
    dims = "model.dims: {sequence: {min: 1, max: 8}}"

    assert shlex.split(both) == ["--role", "a={nan: true}", "and", "--role", "b={empty: true}"]
    assert role_option(dims) == dims
