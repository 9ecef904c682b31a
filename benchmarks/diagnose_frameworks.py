"""Plant faults into ONNX files, and count how often `diagnose` names them against a model of another framework.

The reference is a PyTorch module as it runs, a Keras model converted by tf2onnx, or a Keras model with the weights of
the PyTorch module whose export is the candidate. All names of the candidate are scrambled.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from diagnose import FAULTS, scrambled

from paritygate.errors import ParitygateError
from paritygate.models.source import ModelRef, SourceKind, parse_source
from paritygate.validate.divergence.locate import locate_in
from paritygate.validate.divergence.matching import match, sketches_of
from paritygate.validate.divergence.result import CONTRACT, EQUAL, Divergence
from paritygate.validate.tensors.inner_values import Feed
from paritygate.validate.tensors.opening import open_graphs
from paritygate.validate.tensors.tensor_graph import TensorGraph

_NAMED, _ROWS, _BATCHES = 3, 4, 3
_NEAR = 1e-4
# Operators without values of their own.
_NO_FAULT = frozenset({"Constant", "Identity", "Shape", "Cast"})
_TORCH_CODE = """
import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(wide, wide) for _ in range(4))
        self.first, self.second = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.up, self.down = nn.Linear(wide, 2 * wide), nn.Linear(2 * wide, wide)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-1, -2) * 0.25
        x = self.first(x + self.out(functional.softmax(scores, dim=-1) @ self.value(x)))
        return self.second(x + self.down(functional.gelu(self.up(x))))


class Net(nn.Module):
    def __init__(self, wide=16):
        super().__init__()
        self.layers = nn.ModuleList(Layer(wide) for _ in range(2))
        self.head = nn.Linear(wide, 5)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def load():
    torch.manual_seed(SEED)
    net = Net().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return net
"""
_KERAS_CODE = """
import keras
from keras import layers, ops


def cnn():
    keras.utils.set_random_seed(SEED)
    x = source = keras.Input((16, 16, 3), name="x")
    for at, wide in enumerate((8, 12)):
        x = layers.Conv2D(wide, 3, padding="same", name=f"conv{at}", bias_initializer="random_normal")(x)
        x = layers.BatchNormalization(name=f"norm{at}")(x)
        x = layers.Activation("swish" if at else "relu", name=f"gate{at}")(x)
        x = layers.MaxPooling2D(name=f"pool{at}")(x)
    x = layers.GlobalAveragePooling2D(name="pooled")(x)
    return keras.Model(source, layers.Dense(10, activation="softmax", name="scores")(x))


def transformer():
    import torch_net

    net = torch_net.load()
    x = source = keras.Input((6, 16), name="x")
    for at in range(2):
        parts = {name: layers.Dense(16, name=f"{name}{at}") for name in ("query", "key", "value", "out", "down")}
        up = layers.Dense(32, name=f"up{at}")
        first, second = (layers.LayerNormalization(epsilon=1e-5, name=f"{name}{at}") for name in ("first", "second"))
        scores = ops.matmul(parts["query"](x), ops.transpose(parts["key"](x), (0, 2, 1))) * 0.25
        x = first(x + parts["out"](ops.matmul(ops.softmax(scores, axis=-1), parts["value"](x))))
        x = second(x + parts["down"](ops.gelu(up(x), approximate=False)))
        for name, layer in {**parts, "up": up, "first": first, "second": second}.items():
            part = getattr(net.layers[at], name)
            weight = part.weight.detach().numpy()
            layer.set_weights([weight.T if weight.ndim == 2 else weight, part.bias.detach().numpy()])
    head = layers.Dense(5, name="head")
    model = keras.Model(source, head(ops.mean(x, axis=1)))
    head.set_weights([net.head.weight.detach().numpy().T, net.head.bias.detach().numpy()])
    return model
"""


class _Pair:
    """A reference, an ONNX file that computes the same, and the reference's nodes for each of the file's."""

    def __init__(self, name: str, source: ModelRef, file: Path, feeds: Sequence[Feed]) -> None:
        """Match the clean file with the reference."""
        self.name, self.source, self.feeds, self._file = name, source, feeds, file
        self.model = onnx.load(file)
        self.partners = self._matched(*self._graphs(file))

    def _graphs(self, file: Path) -> tuple[TensorGraph, TensorGraph]:
        candidate = ModelRef(text=file.name, folder=file.parent, kind=SourceKind.ONNX)
        return open_graphs(self.source, candidate, self.feeds)

    def _matched(self, theirs: TensorGraph, ours: TensorGraph) -> dict[str, set[str]]:
        inputs = list(zip(ours.inputs, theirs.inputs, strict=True))
        own = [{name: feed[other] for name, other in inputs} for feed in self.feeds]
        found = match((ours, theirs), (sketches_of(ours, own, {}), sketches_of(theirs, self.feeds, {})), inputs)
        partners: dict[str, set[str]] = {}
        for node in ours.nodes:
            names = [other for name in node.output for other in found.matched(name, _NEAR)]
            makers = [theirs.producers.get(theirs.layouts.get(name, name)) for name in names]
            partners[node.name] = {maker.name for maker in makers if maker is not None}
        return partners

    def diagnosed(self, model: onnx.ModelProto) -> Divergence | None:
        """Return where the changed file parts from the reference; None if it does not run."""
        changed = self._file.with_name("changed.onnx")
        onnx.save(model, changed)
        try:
            return locate_in(*self._graphs(changed), self.feeds)
        except ParitygateError:
            return None

    def is_named(self, found: Divergence, node: onnx.NodeProto, old: Mapping[str, str]) -> bool:
        """Return whether the changed node, or what computes it in the reference, is among the first places.

        Where a node was lost, the candidate has only those that read it.
        """
        places = found.located[:_NAMED]
        ours = {old.get(name, name) for place in places for name in place.candidate_nodes}
        theirs = {name for place in places for name in place.reference_nodes}
        return node.name in ours or bool(self.partners.get(node.name, set()) & theirs)


def _pairs(folder: Path, seed: int) -> list[_Pair]:
    import torch

    from paritygate.convert.tensorflow.function import function_to_onnx
    from paritygate.validate.runners.opening import open_model

    sys.path.insert(0, str(folder))
    (folder / "torch_net.py").write_text(_TORCH_CODE.replace("SEED", str(seed)))
    (folder / "keras_net.py").write_text(_KERAS_CODE.replace("SEED", str(seed)))
    random = np.random.default_rng(seed)
    steps, pictures = (
        [{"x": random.normal(size=(_ROWS, *shape)).astype(np.float32)} for _ in range(_BATCHES)]
        for shape in ((6, 16), (16, 16, 3))
    )
    torch_source = parse_source("torch_net:load", folder)
    exported = folder / "exported.onnx"
    import torch_net

    rows = torch.from_numpy(steps[0]["x"])
    torch.onnx.export(torch_net.load(), (rows,), exported, dynamo=True, input_names=["x"], external_data=False)
    cnn = parse_source("keras_net:cnn", folder)
    runner: Any = open_model(cnn, "cpu")
    function_to_onnx(runner.function, signature=runner.signature, folder=folder, opset=None)
    transformer = parse_source("keras_net:transformer", folder)
    return [
        _Pair("PyTorch, its own export", torch_source, exported, steps),
        _Pair("Keras CNN, by tf2onnx", cnn, folder / "model.onnx", pictures),
        _Pair("Keras, PyTorch's export", transformer, exported, steps),
    ]


def _planted(pair: _Pair, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Plant faults of all kinds by turns, until so many change the outputs."""
    counts: Counter[str] = Counter()
    missed = []
    random = np.random.default_rng(seed)
    kinds = list(FAULTS)
    for number in range(20 * count):
        if counts["visible"] >= count:
            break
        kind = kinds[number % len(kinds)]
        changed = onnx.ModelProto()
        changed.CopyFrom(pair.model)
        at = int(random.integers(len(changed.graph.node)))
        node, original = changed.graph.node[at], pair.model.graph.node[at]
        before = changed.SerializeToString()
        if node.op_type in _NO_FAULT or not FAULTS[kind](changed, node, random):
            continue
        if changed.SerializeToString() == before:
            continue
        candidate, old = scrambled(changed)
        found = pair.diagnosed(candidate)
        if found is None or found.outcome in {EQUAL, CONTRACT}:
            continue
        hit = pair.is_named(found, original, old)
        proven = any(place.proven for place in found.located)
        counts.update({"visible": 1, "named": int(hit), "proven": int(proven)})
        if not hit:
            what = "; ".join(place.what for place in found.located[:1]) or found.detail
            missed.append(f"{pair.name}: {kind} at {original.op_type} ({original.name}): {what}")
    return counts, missed


def main() -> None:
    """Plant `--each` faults into each pair, and print the table and each miss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    # PyTorch would import the folder `triton` beside this file.
    sys.path.remove(str(Path(__file__).resolve().parent))
    start = time.process_time()
    lines, misses = [], []
    with tempfile.TemporaryDirectory() as folder:
        for pair in _pairs(Path(folder), options.seed):
            counts, missed = _planted(pair, options.each, options.seed)
            misses += missed
            lines.append(f"| {pair.name} | {counts['visible']} | {counts['named']} | {counts['proven']} |")
    print(f"| reference, candidate | visible | among {_NAMED} named | proven |", "|---|---|---|---|", sep="\n")
    print("\n".join([*lines, "", f"missed: {len(misses)}", *misses]))
    print(f"{time.process_time() - start:.0f} s of CPU", file=sys.stderr)


if __name__ == "__main__":
    main()
