"""PyTorch modules that take more than the first exporter, from spec to report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.pipelines.conftest import make_desk

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

pytestmark = pytest.mark.torch

_NETS = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = torch.nn.Embedding(20, 4), torch.nn.Linear(4, 3)

    def forward(self, ids, mask, cache):
        new = self.table(ids)
        present = torch.cat([cache, new], 1)
        scores = new @ present.transpose(1, 2) + (1.0 - mask[:, None]) * -10000.0
        return {"mean": self.head(scores.softmax(-1) @ present), "present": present}


class Packed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head = torch.nn.GRU(4, 4, batch_first=True), torch.nn.Linear(4, 3)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][0])


def decoder():
    return Decoder().eval()


def packed():
    return Packed().eval()
"""
_FLOATS = "float32"


def _tensor(dtype: str, *shape: object) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape)}


def _decoder_batches() -> dict[str, Any]:
    random, found = np.random.default_rng(0), {}
    for index, (new, past) in enumerate([(1, 4), (2, 3), (3, 6), (1, 7)] * 8):
        found[f"{index}/ids"] = random.integers(0, 20, (4, new))
        found[f"{index}/mask"] = np.ones((4, new + past), np.float32)
        found[f"{index}/cache"] = random.standard_normal((4, past, 4)).astype(np.float32)
    return found


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, Called]:
    """Return the desk and the run of a decoder whose declared sizes do not add up by themselves."""
    desk = make_desk(tmp_path_factory.mktemp("decoder"))
    desk.module("exporters_nets", _NETS)
    np.savez(desk.folder / "inputs.npz", **_decoder_batches())
    model = {
        "name": "decoder",
        "source": "exporters_nets:decoder",
        "inputs": {
            "ids": _tensor("int64", "batch", "new"),
            "mask": _tensor(_FLOATS, "batch", "total"),
            "cache": _tensor(_FLOATS, "batch", "past", 4),
        },
        "outputs": {
            "mean": _tensor(_FLOATS, "batch", "new", 3),
            "present": _tensor(_FLOATS, "batch", "total", 4),
        },
        "dims": {
            "batch": {"min": 1, "opt": 4, "max": 8},
            "new": {"min": 1, "max": 4},
            "past": {"min": 1, "max": 16},
            "total": {"min": 2, "max": 16},
        },
    }
    desk.spec(model=model, decisions={}, targets=["onnx-fp32", "torchscript-fp32"], probes=["shapes", "batches"])
    return desk, desk.json("run", "--verbose", "spec.yaml")


def test_a_decoder_with_a_cache_goes_from_spec_to_release(decoder: tuple[Desk, Called]) -> None:
    desk, called = decoder
    assert called.code == 0, str(called)
    assert {name: result["verdict"] for name, result in called.data["runs"][0]["variants"].items()} == {
        "onnx-fp32": "pass",
        "torchscript-fp32": "pass",
    }
    assert desk.releases == ["decoder/1"]


def _packed_model(**parts: object) -> dict[str, Any]:
    return {
        "name": "packed",
        "source": "exporters_nets:packed",
        "inputs": {"x": _tensor(_FLOATS, "batch", "time", 4), "lengths": _tensor("int64", "batch")},
        "outputs": {"logits": _tensor(_FLOATS, "batch", 3)},
        "dims": {"batch": {"min": 1, "opt": 4, "max": 8}, "time": {"min": 1, "max": 9}},
        **parts,
    }


@pytest.fixture(name="packed")
def _packed(desk: Desk) -> Desk:
    desk.module("exporters_nets", _NETS)
    x = np.random.default_rng(0).standard_normal((120, 5, 4)).astype(np.float32)
    np.savez(desk.folder / "inputs.npz", x=x, lengths=np.arange(120) % 5 + 1)
    return desk


def test_the_report_says_which_exporter_said_what(packed: Desk) -> None:
    packed.spec(model=_packed_model(), promote={"alias": None})
    called = packed.call("run", "spec.yaml", "--verbose")
    assert called.code == 0, str(called)
    assert "note: exported by torchscript; dynamo did not convert it: torch.export cannot trace" in called.out
    (path,) = (packed.folder / "artifacts" / "runs").rglob("report.md")
    report = path.read_text(encoding="utf-8")
    assert "dynamo: torch.export cannot trace the module: TypeError" in report
    assert "torchscript: converted" in report


def test_the_exporter_of_the_spec_is_the_only_one_tried(packed: Desk) -> None:
    packed.spec(model=_packed_model(exporter="dynamo"))
    called = packed.call("export", "spec.yaml", "--verbose")
    assert called.code == 4
    assert "torch.export cannot trace the module" in called.err
    assert "torchscript" not in called.err


def test_an_exporter_that_there_is_not_is_refused_with_those_there_are(packed: Desk) -> None:
    packed.spec(model=_packed_model(exporter="onnx"))
    called = packed.call("export", "spec.yaml", "--verbose")
    assert called.code == 2
    assert "model.exporter" in called.err
    assert "'dynamo' or 'torchscript'" in called.err


def test_an_exporter_for_a_file_is_refused(desk: Desk) -> None:
    desk.onnx()
    desk.samples()
    desk.spec(model={"name": "tiny", "source": "model.onnx", "rename": {"output_0": "logits"}, "exporter": "dynamo"})
    called = desk.call("export", "spec.yaml", "--verbose")
    assert called.code == 2
    assert "model.exporter is dynamo, which exports PyTorch modules" in called.err
    assert "model.onnx is a model of kind 'onnx'" in called.err
    assert "hint: remove model.exporter" in called.err
