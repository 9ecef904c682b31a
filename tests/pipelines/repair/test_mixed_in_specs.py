"""Targets of mixed precision in a spec: their settings, their limits, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from paritygate.errors import UsageError
from paritygate.pipelines.spec.loading import parse_spec
from paritygate.pipelines.spec.schema import ResolvedSpec
from paritygate.precision import Precision, Variant

_MIXED = Variant.parse("onnx-mixed")


def _spec(target: object, **parts: object) -> ResolvedSpec:
    import yaml

    data = {"model": {"name": "tiny", "source": "model.onnx"}, "samples": {"source": "inputs.npz"}}
    return parse_spec(yaml.safe_dump({**data, "targets": [target], **parts}), folder=Path(), origin="spec.yaml")


def test_a_target_with_settings_has_the_name_of_its_variant() -> None:
    resolved = _spec({"name": "onnx-mixed", "lower": "int8", "max_runs": 7})
    mixed = resolved.mixed(_MIXED)

    assert resolved.target_names == ("onnx-mixed",)
    assert mixed is not None
    assert (mixed.lower, mixed.max_runs) == ("int8", 7)


@pytest.mark.parametrize(("lower", "judged"), [("fp16", Precision.MIXED), ("int8", Precision.INT8)])
def test_it_is_judged_by_the_limits_of_its_lower_precision(lower: str, judged: Precision) -> None:
    rules = _spec({"name": "onnx-mixed", "lower": lower}).rules(_MIXED)

    assert rules.precision is judged


def test_declared_limits_are_those_of_the_target() -> None:
    resolved = _spec({"name": "onnx-mixed", "lower": "fp16"}, tolerance={"onnx-mixed": {"max_abs_diff": 0.5}})

    assert resolved.rules(_MIXED).tolerance.max_abs_diff == 0.5


@pytest.mark.parametrize(
    "target",
    [
        "onnx-mixed",
        "onnx-mixed@batch=1",
        {"name": "onnx-mixed"},
        {"name": "onnx-mixed", "lower": "bf16"},
        {"name": "onnx-mixed", "lower": "fp16", "max_runs": 0},
        {"name": "onnx-mixed", "static": {"batch": 1}},
        {"name": "onnx-fp16", "lower": "fp16"},
        "openvino-mixed",
        {"name": "openvino-mixed", "lower": "fp16"},
        {"name": "openvino-fp32", "lower": "int8"},
    ],
)
def test_other_settings_are_refused(target: object) -> None:
    with pytest.raises(UsageError):
        _spec(target)
