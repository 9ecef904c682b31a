"""Plant faults of a conversion into ONNX files, and count how many changes taken from the source repair.

The source is an ONNX file, or a PyTorch module as it runs; all names of the converted file are scrambled. A file counts
as repaired if the gate passes it on other rows than those that the changes were found by.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from diagnose import FAULTS, cnn, scrambled, transformer
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.convert.onnx.changes import change_file, read_to_change
from paritygate.errors import ParitygateError
from paritygate.models.source import ModelRef, SourceKind, parse_source
from paritygate.pipelines.repair.proposals import Proposer
from paritygate.pipelines.repair.trials import Judge
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.runners.opening import open_model
from paritygate.validate.tensors.onnx_values import tensor_graph_of
from paritygate.validate.tensors.opening import open_graphs

_ROWS, _BATCHES, _HELD_OUT = 4, 3, 40
_WIDE, _STEPS, _CLASSES = 16, 6, 5
_TORCH_CODE = """
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self, wide=16):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(wide, wide) for _ in range(4))
        self.first, self.second = nn.LayerNorm(wide, eps=1e-3), nn.LayerNorm(wide)
        self.mix = nn.Conv1d(wide, wide, 3, padding=1)
        self.up, self.down = nn.Linear(wide, 2 * wide), nn.Linear(2 * wide, wide)
        self.head = nn.Linear(wide, 5)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-1, -2) * 0.25
        x = self.first(x + self.out(functional.softmax(scores, dim=-1) @ self.value(x)))
        x = x + functional.leaky_relu(self.mix(x.transpose(1, 2)), 0.2).transpose(1, 2)
        x = self.second(x + self.down(functional.gelu(self.up(x))))
        return functional.elu(self.head(x.mean(1)), alpha=0.5)


def load():
    torch.manual_seed(SEED)
    net = Net().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return net
"""
REPAIRED, WRONG, UNREPAIRED, HIDDEN = "repaired", "proposed, does not pass", "unrepaired", "passes as it is"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A trained model, its correct conversion, and the shape of a row."""

    name: str
    ref: ModelRef
    model: onnx.ModelProto
    row: tuple[int, ...]

    def feeds(self, seed: int, batches: int) -> list[dict[str, NDArray[Any]]]:
        """Return seeded rows in batches."""
        random = np.random.default_rng(seed)
        return [{"x": random.normal(size=(_ROWS, *self.row)).astype(np.float32)} for _ in range(batches)]


def sources(folder: Path, seed: int) -> list[Source]:
    """Return a convolutional network and a transformer as ONNX files, and a transformer of PyTorch."""
    found = []
    for name, build in (("cnn", cnn), ("transformer", transformer)):
        model, feeds = build(seed)
        onnx.save(model, folder / f"{name}.onnx")
        ref = ModelRef(text=f"{name}.onnx", folder=folder, kind=SourceKind.ONNX, name=name)
        found.append(Source(name=name, ref=ref, model=model, row=feeds[0]["x"].shape[1:]))
    return [*found, _of_torch(folder, seed)]


def _of_torch(folder: Path, seed: int) -> Source:
    """Return a PyTorch module with its own export."""
    import torch

    sys.path.insert(0, str(folder))
    (folder / "repair_net.py").write_text(_TORCH_CODE.replace("SEED", str(seed)))
    import repair_net

    file, row = folder / "exported.onnx", (_STEPS, _WIDE)
    rows = (torch.zeros(_ROWS, *row),)
    names = {"input_names": ["x"], "output_names": ["y"]}
    torch.onnx.export(repair_net.load(), rows, file, dynamo=True, external_data=False, **names)
    inputs = TensorSpec(name="x", dtype="float32", shape=(_ROWS, *row))
    outputs = TensorSpec(name="y", dtype="float32", shape=(_ROWS, _CLASSES))
    ref = replace(parse_source("repair_net:load", folder), signature=Signature(inputs=(inputs,), outputs=(outputs,)))
    return Source(name="PyTorch", ref=ref, model=onnx.load(file), row=row)


def outcome_of(source: Source, wrong: onnx.ModelProto, folder: Path, seed: int) -> str:
    """Return what comes of a wrong conversion."""
    path = folder / "candidate.onnx"
    onnx.save(scrambled(wrong)[0], path)
    candidate = ModelRef(text=path.name, folder=folder, kind=SourceKind.ONNX, name="candidate")
    held_out = [
        Batch(inputs=feed, ids=[f"{at}-{row}" for row in range(_ROWS)])
        for at, feed in enumerate(source.feeds(seed + 1, _HELD_OUT))
    ]
    rules = GateRules(tolerance=DEFAULT_TOLERANCES[Precision.FP32])
    judge = Judge(open_model(source.ref, "cpu"), held_out, rules, folder, rows=_ROWS * _HELD_OUT)
    if not judge.trial(open_model(candidate, "cpu")).failed:
        return HIDDEN
    feeds = source.feeds(seed, _BATCHES)
    reference, _ = open_graphs(source.ref, candidate, feeds)
    model = read_to_change(path)
    proposer = Proposer(model, tensor_graph_of(model, path, reference.meter), reference, feeds)
    proposal = proposer.propose(lambda *_: None)
    if not len(proposal.changes):
        return UNREPAIRED
    change_file(path, proposal.changes, proposer.origin)
    return WRONG if judge.trial(open_model(candidate, "cpu")).failed else REPAIRED


def planted(model: onnx.ModelProto, kind: str, random: np.random.Generator) -> onnx.ModelProto | None:
    """Return the model with a fault of a kind at a random node; None if no node takes it."""
    for at in random.permutation(len(model.graph.node)):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        before = changed.SerializeToString()
        if FAULTS[kind](changed, changed.graph.node[int(at)], random) and changed.SerializeToString() != before:
            return changed
    return None


def table(counts: Mapping[str, Counter[str]]) -> list[str]:
    """Return the table."""
    head = ["| fault | planted | repaired | proposed, wrong | unrepaired |", "|---|---|---|---|---|"]
    total: Counter[str] = sum(counts.values(), Counter())
    return [
        *head,
        *(
            f"| {kind} | {count.total()} | {count[REPAIRED]} | {count[WRONG]} | {count[UNREPAIRED]} |"
            for kind, count in (*counts.items(), ("all", total))
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Plant `--each` faults of each kind into each model, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    # The folder of this file has a `triton`, which PyTorch would import.
    sys.path[:] = [place for place in sys.path if Path(place) != Path(__file__).parent]
    start = time.process_time()
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in FAULTS}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for source in sources(folder, options.seed):
            for at, kind in enumerate(FAULTS):
                random = np.random.default_rng((options.seed, at))
                for number in range(options.each):
                    wrong = planted(source.model, kind, random)
                    try:
                        outcome = HIDDEN if wrong is None else outcome_of(source, wrong, folder, 1000 + number)
                    except ParitygateError as err:
                        # The drawn change makes no model that runs.
                        print(f"{source.name}, {kind}: {err}", file=sys.stderr)
                        continue
                    if outcome != HIDDEN:
                        counts[kind][outcome] += 1
                    if outcome in {WRONG, UNREPAIRED}:
                        print(f"{source.name}, {kind}: {outcome}", file=sys.stderr)
    print("\n".join(table(counts)))
    print(f"{time.process_time() - start:.0f} s of CPU", file=sys.stderr)


if __name__ == "__main__":
    main()
