"""What a first spec calls a model: two models that a user can tell apart have two names."""

from __future__ import annotations

import pytest

from paritygate.pipelines.inspecting.naming import guessed_name
from paritygate.pipelines.spec.names import check_name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("mods:series", "mods-series"),
        ("mods:gate", "mods-gate"),
        ("mods:load_gate", "mods-load_gate"),
        ("mods:Gate.small", "mods-Gate.small"),
        ("models.scores:ranker", "scores-ranker"),
        ("models.scores:load", "scores"),
        ("scores:get_model", "scores"),
        ("scores:buildModel", "scores"),
        ("scores:make", "scores"),
        ("scores:create", "scores"),
        ("scores:model", "scores"),
        ("scores:Scores", "scores"),
        ("folder/net v2.onnx", "net-v2"),
        ("net.keras", "net"),
        ("folder/-..onnx", "model"),
    ],
)
def test_a_name_is_of_the_file_or_of_module_and_callable(model: str, name: str) -> None:
    found = guessed_name(model)

    assert check_name("model", found.name) == name
    assert found.guess
