"""Repair generated FP16 models, and count the runs, the operators kept in FP32, and passes on held-out rows.

One model overflows. The other is a RoBERTa of random weights, whose limit is half of its FP16 error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from msgspec.structs import replace
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from paritygate.batch import Batch
from paritygate.errors import UnrepairedError
from paritygate.models.onnx.file import signature_of_onnx
from paritygate.pipelines.calibration.rows import CalibratedRows
from paritygate.pipelines.repair.lowering import LoweredModel, open_fp16
from paritygate.pipelines.repair.mixer import MixedRequest, Mixer
from paritygate.pipelines.repair.rows import divided
from paritygate.pipelines.repair.trials import Judge
from paritygate.precision import Precision
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES

_WIDE, _STEPS, _HEADS = 32, 8, 2
_ROWS, _HELD_OUT, _BATCH = 48, 256, 32
_ROBERTA_ROWS = 48
_WORDS, _TOKENS = 1000, 16
_MOST_RUNS = 60
# The search was made with seeds below this one, so these were not seen.
_FIRST_SEED = 120


class _Builder:
    """Adds nodes and seeded weights to a graph."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, values: Any) -> str:  # noqa: ANN401 - whatever NumPy takes
        """Return the name of a constant."""
        self.weights.append(numpy_helper.from_array(np.asarray(values), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def number(self, value: float) -> str:
        """Return the name of a constant of one number."""
        return self.constant(np.float32(value))

    def weight(self, *shape: int) -> str:
        """Return the name of a normal weight."""
        return self.constant((self.random.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32))

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401 - of any operator
        """Return the output of a new node."""
        output = f"x{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=f"{op_type}_{output}", **attributes))
        return output


def overflowing_transformer(seed: int) -> onnx.ModelProto:
    """Return two layers with a masked attention and a gated block, of which seven operators exceed 65504."""
    made = _Builder(seed)

    def linear(x: str, rows: int, columns: int) -> str:
        return made.node("Add", made.node("MatMul", x, made.weight(rows, columns)), made.weight(columns))

    def parted(x: str, order: list[int]) -> str:
        shape = made.constant(np.array([0, 0, _HEADS, _WIDE // _HEADS]))
        return made.node("Transpose", made.node("Reshape", linear(x, _WIDE, _WIDE), shape), perm=order)

    def attention(x: str, mask: str) -> str:
        query, key, value = (parted(x, order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = made.node("Mul", made.node("MatMul", query, key), made.number((_WIDE / _HEADS) ** -0.5))
        mixed = made.node("MatMul", made.node("Softmax", made.node("Add", scores, mask), axis=-1), value)
        mixed = made.node(
            "Reshape", made.node("Transpose", mixed, perm=[0, 2, 1, 3]), made.constant(np.array([0, 0, _WIDE]))
        )
        return made.node("Add", linear(mixed, _WIDE, _WIDE), x)

    mask = made.node("Mul", made.node("Sub", made.number(1), "mask"), made.number(-1e4))
    x = made.node("Tanh", linear("x", _WIDE, _WIDE))
    for is_loud in (True, False):
        x = attention(x, mask)
        hidden = made.node("Relu", linear(x, _WIDE, 2 * _WIDE))
        if is_loud:
            # Seven of these make or read values beyond the range.
            loud = made.node("Mul", hidden, made.number(6e4))
            loud = made.node("Add", loud, made.node("Neg", made.node("Mul", loud, made.number(0.5))))
            loud = made.node("Relu", made.node("Mul", loud, made.number(2)))
            hidden = made.node("Mul", loud, made.number(1 / 6e4))
            hidden = made.node("Mul", hidden, made.node("Sigmoid", linear(x, _WIDE, 2 * _WIDE)))
        x = made.node("Add", linear(hidden, 2 * _WIDE, _WIDE), x)
    pooled = made.node("ReduceMean", made.node("Tanh", x), axes=[1], keepdims=0)
    output = made.node("Gemm", pooled, made.weight(_WIDE, 4), made.weight(4))
    shape = ["batch", _STEPS, _WIDE]
    inputs = [
        helper.make_tensor_value_info("x", 1, shape),
        helper.make_tensor_value_info("mask", 1, ["batch", 1, 1, _STEPS]),
    ]
    outputs = [helper.make_tensor_value_info(output, 1, ["batch", 4])]
    graph = helper.make_graph(made.nodes, "overflowing", inputs, outputs, made.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rows_of_transformer(seed: int, count: int) -> list[Batch]:
    """Return rows of the transformer."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, _STEPS + 1, size=count)
    mask = (np.arange(_STEPS) < lengths[:, None]).astype(np.float32).reshape(count, 1, 1, _STEPS)
    x = random.normal(size=(count, _STEPS, _WIDE)).astype(np.float32)
    return _batches({"x": x, "mask": mask}, seed)


def _batches(inputs: Mapping[str, NDArray[Any]], seed: int) -> list[Batch]:
    count = len(next(iter(inputs.values())))
    return [
        Batch(
            inputs={name: array[at : at + _BATCH] for name, array in inputs.items()},
            ids=[f"{seed}-{row}" for row in range(at, min(at + _BATCH, count))],
        )
        for at in range(0, count, _BATCH)
    ]


def write_roberta(seed: int, path: Path) -> None:
    """Write a RoBERTa of six layers with seeded random weights."""
    import torch
    from transformers import RobertaConfig, RobertaForSequenceClassification

    torch.manual_seed(seed)
    config = RobertaConfig(
        vocab_size=_WORDS,
        hidden_size=128,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=_TOKENS + 2,
        num_labels=3,
        attn_implementation="eager",
    )
    ids = torch.randint(5, _WORDS, (2, _TOKENS))
    names = ("input_ids", "attention_mask")
    torch.onnx.export(
        RobertaForSequenceClassification(config).eval(),
        (ids, torch.ones_like(ids)),
        str(path),
        input_names=list(names),
        output_names=["logits"],
        dynamic_axes={name: {0: "batch"} for name in (*names, "logits")},
        opset_version=17,
        dynamo=False,
    )


def rows_of_roberta(seed: int, count: int) -> list[Batch]:
    """Return rows of the RoBERTa."""
    random = np.random.default_rng(seed)
    lengths = random.integers(4, _TOKENS + 1, size=count)
    mask = (np.arange(_TOKENS) < lengths[:, None]).astype(np.int64)
    ids = random.integers(5, _WORDS, size=(count, _TOKENS)) * mask + (1 - mask)
    return _batches({"input_ids": ids, "attention_mask": mask}, seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The outcome for one seed; `share` is of the tolerance on held-out rows, None of what was not repaired."""

    runs: int
    kept: int
    switches: int
    multiply_adds_low: float
    share: float | None
    seconds: float


def _repaired(path: Path, rows: Sequence[Batch], held_out: Sequence[Batch], limit: float | None, most: int) -> Outcome:
    """Search a set, and judge it on held-out rows; `limit` is a share of the FP16 error, or None for the defaults."""
    started = time.process_time()
    lowered = open_fp16(path, signature_of_onnx(onnx.load(path)))
    tolerance = DEFAULT_TOLERANCES[Precision.MIXED]
    if limit is not None:
        largest = limit * _fp16_error(lowered, rows)
        names = frozenset({"max_abs_diff", "mean_abs_diff", "max_row_rel_diff"})
        tolerance = replace(
            tolerance, max_abs_diff=largest, mean_abs_diff=largest, max_row_rel_diff=1.0, declared=names
        )
    request = MixedRequest(
        lower=Precision.FP16, max_runs=most, rules=GateRules(tolerance=tolerance), judged_rows=_HELD_OUT
    )
    with tempfile.TemporaryDirectory() as place:
        mixer = Mixer(lowered, divided(rows), request, Path(place), lambda *_: None)
        try:
            mixer.choose()
        except UnrepairedError:
            mixer.kept = frozenset()
        none = CalibratedRows(inputs=tuple(rows[0].inputs), fill={}, digests=frozenset())
        repair = mixer.repair(none, file_bytes=0, fp32_bytes=0)
        seconds = time.process_time() - started
        judge = Judge(
            lowered.model.keeping(lowered.model.switches), held_out, request.rules, Path(place), rows=_HELD_OUT
        )
        trial = judge.trial(lowered.model.keeping(mixer.kept))
    return Outcome(
        runs=repair.runs,
        kept=len(mixer.kept),
        switches=repair.switches,
        multiply_adds_low=repair.multiply_adds_low or 0.0,
        share=trial.measured if mixer.kept else None,
        seconds=seconds,
    )


def _fp16_error(lowered: LoweredModel, rows: Sequence[Batch]) -> float:
    full, low = lowered.model.keeping(lowered.model.switches), lowered.model.keeping(())
    answers = [(full.run(batch.inputs), low.run(batch.inputs)) for batch in rows]
    return max(float(np.abs(one[name] - other[name]).max()) for one, other in answers for name in one)


def _transformer(seed: int, folder: Path) -> Outcome:
    onnx.save(overflowing_transformer(seed), folder / "model.onnx")
    rows = rows_of_transformer(seed + 1000, _ROWS)
    return _repaired(folder / "model.onnx", rows, rows_of_transformer(seed + 2000, _HELD_OUT), None, _MOST_RUNS)


def _roberta(seed: int, folder: Path) -> Outcome:
    write_roberta(seed, folder / "model.onnx")
    rows = rows_of_roberta(seed + 1000, _ROBERTA_ROWS)
    return _repaired(folder / "model.onnx", rows, rows_of_roberta(seed + 2000, _HELD_OUT), 0.5, _MOST_RUNS)


def _line(name: str, outcomes: Sequence[Outcome]) -> str:
    passed = [item for item in outcomes if item.share is not None and item.share <= 1]
    shares = [item.share for item in outcomes if item.share is not None]
    low = min(item.multiply_adds_low for item in outcomes)
    runs = sorted(item.runs for item in outcomes)
    kept = sorted(item.kept for item in outcomes)
    return (
        f"| {name} | {len(passed)} of {len(outcomes)} | {max(shares, default=float('inf')):.2f} | "
        f"{runs[len(runs) // 2]}, {runs[-1]} | {kept[len(kept) // 2]} of {outcomes[0].switches} | {low:.0%} | "
        f"{sum(item.seconds for item in outcomes) / len(outcomes):.1f} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds of each model")
    parser.add_argument("--model", choices=["transformer", "roberta"], action="append", help="one or both")
    chosen = parser.parse_args(arguments)
    # The folder of this file has a `triton`, which PyTorch would import.
    sys.path[:] = [place for place in sys.path if Path(place) != Path(__file__).parent]
    models: dict[str, Callable[[int, Path], Outcome]] = {"transformer": _transformer, "roberta": _roberta}
    print("| FP16 model | held-out passes | worst share | runs: median, most | kept: median | low, least | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in chosen.model or models:
        with tempfile.TemporaryDirectory() as folder:
            print(
                _line(name, [models[name](_FIRST_SEED + seed, Path(folder)) for seed in range(chosen.seeds)]),
                flush=True,
            )


if __name__ == "__main__":
    main()
