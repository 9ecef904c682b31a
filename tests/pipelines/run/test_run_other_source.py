"""Sources that change between the stages, or with each call: what was converted is not what answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_OTHER = "was made from a different source than the reference: from sha256:"


@pytest.mark.parametrize("fallback", ["source", "none"])
def test_a_source_that_was_changed_after_the_export_is_an_error_and_not_released(desk: Desk, fallback: str) -> None:
    spec = desk.spec(promote={"fallback": fallback})
    assert desk.call("export", "--verbose", spec).code == 0
    # By less than any limit: nothing but the digest tells.
    _scale_weights(desk, 1.000003)
    run = str(desk.run_folder)
    assert desk.call("record", "--run", run).code == 0
    called = desk.json("validate", "--verbose", "--run", run)
    assert called.code == 5, str(called)
    assert _OTHER in called.err
    assert "hint: export and record again: convert-and-validate run SPEC" in called.err
    assert desk.evidence()["variants"][0]["evidence"] == "none"
    promoted = desk.call("promote", "--verbose", "--run", run)
    assert promoted.code == 5, str(promoted)
    assert "required and not passed: onnx-fp32 (error)" in promoted.err
    assert desk.releases == []


def test_where_nothing_is_required_the_source_that_was_changed_is_not_released_either(desk: Desk) -> None:
    spec = desk.spec(required=[])
    assert desk.call("export", "--verbose", spec).code == 0
    _scale_weights(desk, 1.000003)
    run = str(desk.run_folder)
    assert desk.call("record", "--run", run).code == 0
    assert desk.call("validate", "--verbose", "--run", run).code == 0

    promoted = desk.call("promote", "--verbose", "--run", run)

    assert promoted.code == 5, str(promoted)
    assert "nothing to release: no converted variant passed for cpu (onnx-fp32: error)" in promoted.err
    assert _OTHER in str(desk.evidence()["variants"][0]["reason"])
    assert desk.releases == []


def _scale_weights(desk: Desk, scale: float) -> None:
    import numpy as np
    import onnx

    path = str(desk.folder / "model.onnx")
    model = onnx.load(path)
    (weight,) = model.graph.initializer
    scaled = onnx.numpy_helper.to_array(weight) * np.float32(scale)
    weight.CopyFrom(onnx.numpy_helper.from_array(scaled, weight.name))
    onnx.save(model, path)


_RANDOM = """
import torch


def model():
    return torch.nn.Linear(4, 3).eval()
"""
_SCALED = """
import torch

SCALE = 1.0


class Net(torch.nn.Linear):
    def forward(self, input):
        return SCALE * super().forward(input)


def model():
    torch.manual_seed(0)
    return Net(4, 3).eval()
"""
_COUNTING = """
import torch


class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, input):
        if not torch.compiler.is_compiling():
            self.calls += 1
        return super().forward(input)


def model():
    torch.manual_seed(0)
    return Net().eval()
"""


def _module_desk(desk: Desk, name: str, text: str, target: str) -> str:
    desk.module(name, text)
    spec = desk.module_spec(f"{name}:model", targets=[target])
    path = desk.folder / spec
    path.write_text(path.read_text(encoding="utf-8").replace("x:", "input:", 1), encoding="utf-8")
    _rename_samples(desk)
    return spec


def _rename_samples(desk: Desk) -> None:
    import numpy as np

    path = desk.folder / "inputs.npz"
    with np.load(path) as arrays:
        values = arrays["x"]
    np.savez(path, input=values)


@pytest.mark.torch
def test_a_callable_that_is_not_seeded_is_an_error_and_not_released(desk: Desk) -> None:
    called = desk.json("run", "--verbose", _module_desk(desk, "other_source_random", _RANDOM, "torchscript-fp32"))
    assert called.code == 5, str(called)
    assert _OTHER in called.err
    assert "a module:callable has to return the same model every time, so seed it" in called.err
    assert desk.releases == []


@pytest.mark.torch
def test_a_module_that_counts_its_calls_in_a_buffer_is_one_source(desk: Desk) -> None:
    called = desk.json("run", "--verbose", _module_desk(desk, "other_source_counting", _COUNTING, "torchscript-fp32"))
    assert called.code == 0, str(called)


@pytest.mark.torch
@pytest.mark.thorough
def test_a_copy_whose_code_is_not_that_of_the_reference_is_not_said_to_be_the_source_itself(desk: Desk) -> None:
    spec = _module_desk(desk, "other_source_scaled", _SCALED, "torch-fp32")
    assert desk.call("export", "--verbose", spec).code == 0
    desk.module("other_source_scaled", _SCALED.replace("SCALE = 1.0", "SCALE = 2.0"))
    run = str(desk.run_folder)
    assert desk.call("record", "--run", run).code == 0
    called = desk.json("validate", "--verbose", "--run", run)
    assert called.code == 1, str(called)
    (result,) = called.data["runs"][0]["variants"].values() if "runs" in called.data else ()
    (distinct,) = [check for check in result["checks"] if check["name"] == "distinct"]
    assert distinct["detail"].endswith("and not the same code: other_source_scaled.py")
