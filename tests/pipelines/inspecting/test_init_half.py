"""A checkpoint in half precision: `init` and `run` report that the source computes in it, and no operator is blamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.models.half_precision import LOAD_IN_FP32
from paritygate.validate.reference.recording import Recording

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

pytestmark = pytest.mark.torch

_MODULE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.linear = torch.nn.Linear(16, 3)

    def forward(self, input_ids):
        return {"logits": self.linear(torch.nn.functional.gelu(self.norm(self.embedding(input_ids))).mean(1))}

class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)

def bf16():
    return Net().bfloat16()

def fp16():
    return Net().half()

def fp32():
    return Net().bfloat16().float()

def rows():
    return Rows().bfloat16()
"""
_QUICK = ("--target", "onnx-fp32", "--no-promote", "--probes", "none", "--no-benchmark")


def _made(desk: Desk, name: str) -> list[str]:
    desk.module("net", _MODULE)
    np.savez(desk.folder / "ids.npz", input_ids=np.random.default_rng(0).integers(1, 50, (120, 6)))
    called = desk.json("init", f"net:{name}", "--samples", "ids.npz", "--out", "new.yaml", "--name", "tiny")
    assert called.code == 0, called
    return [note for note in called.data["notes"] if note.startswith("model.source: ")]


def test_what_runtimes_lack_for_bfloat16_is_no_fault_of_an_operator(desk: Desk) -> None:
    (note,) = _made(desk, "bf16")
    assert "bfloat16" in note
    assert LOAD_IN_FP32 in note

    called = desk.json("run", "new.yaml", *_QUICK)

    assert called.code == 4, called
    said = " ".join((called.out + called.err).split())
    assert "half precision (bfloat16)" in said
    assert LOAD_IN_FP32 in said
    assert "operator" not in said
    assert "Div" not in said


def test_a_float16_source_is_run_and_reported(desk: Desk) -> None:
    assert _made(desk, "fp16")

    called = desk.json("run", "new.yaml", *_QUICK)

    assert "half precision (float16)" in " ".join(called.out.split())
    assert Recording.load(desk.run_folder / "reference").runtime["half_precision"] == "float16"


def test_a_checkpoint_that_was_loaded_in_fp32_computes_in_fp32(desk: Desk) -> None:
    assert _made(desk, "fp32") == []

    called = desk.json("run", "new.yaml", *_QUICK)

    assert called.code == 0, called
    assert "half precision" not in called.out


def test_float_rows_for_a_bfloat16_module_lead_to_fp32(desk: Desk) -> None:
    desk.module("net", _MODULE)

    called = desk.call("init", "net:rows", "--samples", "inputs.npz", "--out", "new.yaml")

    assert called.code == 2
    assert LOAD_IN_FP32 in " ".join(called.err.split())
