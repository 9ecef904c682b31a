"""What a source answers after its code was changed is no noise of what it answered when it was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_MODEL = """
import torch

from parts import SCALE


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return SCALE * self.linear(x)


def load():
    return Model().eval()
"""


def _spec(desk: Desk, *, width: int = 3, **parts: object) -> None:
    desk.spec(
        model={
            "name": "tiny",
            "source": "own:load",
            "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
            "outputs": {"logits": {"dtype": "float32", "shape": ["batch", width]}},
        },
        **parts,
    )


def _spec_of_file(desk: Desk, *, width: int, **parts: object) -> None:
    desk.onnx(width=width)
    desk.spec(**parts)


@pytest.fixture
def source(desk: Desk) -> Desk:
    """A source in two files of code, whose FP16 variant fails by a little."""
    desk.module("own", _MODEL)
    desk.module("parts", "SCALE = 1.0")
    desk.samples()
    _spec(desk, targets=["onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 3e-4}}, decisions={})
    return desk


def test_another_source_excuses_no_variant_that_failed(source: Desk) -> None:
    first = source.json("run", "--no-promote", "spec.yaml")
    assert first.code == 1, str(first)
    source.module("parts", "SCALE = 1.0005")

    again = source.call("validate", "--run", "latest")

    assert again.code == 1, str(again)
    assert "the source differs from that of the recorded reference: parts.py was changed" in " ".join(
        str(again).split()
    )
    released = source.call("promote", "--run", "latest")
    assert released.code != 0, str(released)


@pytest.mark.thorough
def test_two_runs_of_sources_with_other_code_are_told_apart(source: Desk) -> None:
    source.json("run", "--no-promote", "spec.yaml")
    before = source.runs[-1].name
    source.module("parts", "SCALE = 2.0")
    source.json("run", "--no-promote", "spec.yaml")

    called = source.call("report", "--run", "latest", "--against", before)

    assert called.code == 0, str(called)
    text = (source.runs[-1] / f"report-against-{before}.md").read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith("| digest of its code |")]
    old, new = (cell.strip() for cell in row.split("|")[2:4])
    assert old != new
    assert "Spec, source, samples and versions are the same in both." not in text


_SAMPLES = """
import numpy as np

from paritygate.batch import Batch


def rows():
    x = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)
    for start in range(0, 120, 40):
        part = x[start : start + 40]
        yield Batch(inputs={"x": part}, ids=[str(start + row) for row in range(40)], gold=part.sum(axis=1))
"""


def _gold(max_drop: float) -> dict[str, object]:
    return {"gold": {"metric": "pearson", "output": "logits", "tolerance": {"max_drop": max_drop}}}


# One of the two by a file: a child that imports PyTorch takes seconds.
@pytest.mark.parametrize(
    ("spec", "before", "after"),
    [
        (_spec_of_file, {"decisions": {"logits": {"threshold": 0.0}}}, {"decisions": {"logits": {"threshold": 0.25}}}),
        pytest.param(_spec, _gold(0.2), _gold(0.1), marks=pytest.mark.thorough),
    ],
)
def test_another_boundary_of_a_decision_or_a_metric_converts_nothing(
    source: Desk,
    monkeypatch: pytest.MonkeyPatch,
    spec: Callable[..., None],
    before: dict[str, object],
    after: dict[str, object],
) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    source.module("own", _MODEL.replace("Linear(4, 3)", "Linear(4, 1)"))
    source.module("drawn", _SAMPLES)
    parts = {"targets": ["onnx-fp32"], "tolerance": {}, "decisions": {}, "samples": {"source": "drawn:rows"}}
    spec(source, width=1, **parts | before)
    first = source.json("run", "--no-promote", "spec.yaml")
    assert first.code == 0, str(first)
    assert {job["not_kept"] for job in first.data["runs"][0]["jobs"]} == {""}, first.data["runs"][0]["jobs"]

    spec(source, width=1, **parts | after)
    called = source.json("run", "--no-promote", "spec.yaml")

    jobs = called.data["runs"][0]["jobs"]
    assert "the conversion of tiny to onnx-fp32" in [job["job"] for job in jobs], jobs
    assert all(job["taken_from"] for job in jobs), jobs
