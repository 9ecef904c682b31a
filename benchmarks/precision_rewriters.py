"""Our FP16 rewriter beside the two that are commonly used: is the result valid, how large, how far off, what is kept.

Run it with `python benchmarks/precision_rewriters.py`. A rewriter that is not installed is said to be so:
onnxconverter_common comes with `pip install onnxconverter-common`, onnxruntime.transformers with ONNX Runtime. All get
the same models, keep inputs and outputs in FP32, and are told of the same nodes to keep in FP32.

Differences are largest absolute ones from the FP32 model in ONNX Runtime: once of the result in ONNX Runtime, whose CPU
provider computes FP16 in FP32 and so hides overflow, and once in onnx's ReferenceEvaluator, which really rounds. Where
nodes are to be kept, they carry values that FP16 cannot hold: only where every one of them, and every value between
them, is FP32 does the second difference stay small.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from paritygate.convert.onnx.onnx_to_low_precision import rewrite_precision
from paritygate.precision import Precision

Arrays = Mapping[str, NDArray[Any]]
# Larger differences than this are no rounding: a node that was to be kept was not.
HONOURED_BELOW = 1e-2


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A model, inputs for it, and the nodes that have to stay in FP32."""

    name: str
    model: onnx.ModelProto
    inputs: Arrays
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewriter:
    """A tool: its name, the distribution it is in, and how it is called."""

    name: str
    distribution: str
    rewrite: Callable[[onnx.ModelProto, Sequence[str]], onnx.ModelProto]


@dataclass(kw_only=True, slots=True)
class Row:
    """What one tool made of one model."""

    case: str
    tool: str
    seconds: float | None = None
    valid: str = "-"
    loads: str = "-"
    size_ratio: float | None = None
    difference: float | None = None
    real_difference: float | None = None
    kept: str = "-"
    notes: list[str] = field(default_factory=list)


def _ours(model: onnx.ModelProto, keep: Sequence[str]) -> onnx.ModelProto:
    return rewrite_precision(model, precision=Precision.FP16, kept=dict.fromkeys(keep, "kept as asked")).model


def _by_module(module: str) -> Callable[[onnx.ModelProto, Sequence[str]], onnx.ModelProto]:
    def rewrite(model: onnx.ModelProto, keep: Sequence[str]) -> onnx.ModelProto:
        convert = import_module(module).convert_float_to_float16
        result: onnx.ModelProto = convert(model, keep_io_types=True, node_block_list=list(keep) or None)
        return result

    return rewrite


REWRITERS = (
    Rewriter(name="paritygate", distribution="paritygate", rewrite=_ours),
    Rewriter(
        name="onnxconverter_common",
        distribution="onnxconverter-common",
        rewrite=_by_module("onnxconverter_common.float16"),
    ),
    Rewriter(
        name="onnxruntime.transformers",
        distribution="onnxruntime",
        rewrite=_by_module("onnxruntime.transformers.float16"),
    ),
)


def _parsed(text: str, **weights: Any) -> onnx.ModelProto:  # noqa: ANN401 - anything numpy takes
    model = onnx.parser.parse_model(f'< ir_version: 8, opset_import: ["" : 17] > {text}')
    for name, values in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
    return model


def _perceptron() -> Case:
    random = np.random.default_rng(0)
    weights = [random.standard_normal((256, 256), dtype=np.float32) / 16 for _ in range(8)]
    body = " ".join(f"a{k} = MatMul (h{k}, w{k}) h{k + 1} = Tanh (a{k})" for k in range(8)).replace("h0", "x")
    model = _parsed(
        f"g (float[N,256] x) => (float[N,256] y) {{ {body} y = Softmax (h8) }}",
        **{f"w{k}": weight for k, weight in enumerate(weights)},
    )
    return Case(
        name="eight dense layers", model=model, inputs={"x": random.standard_normal((16, 256), dtype=np.float32)}
    )


def _dual_use() -> Case:
    model = _parsed("g (float[N,4] x) => (float[N,4] logits, float[N,4] y) { logits = Neg (x) y = Softmax (logits) }")
    return Case(
        name="output read inside", model=model, inputs={"x": np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)}
    )


def _branches() -> Case:
    model = _parsed(
        "g (bool flag, float[N,4] x) => (float[N,4] y) { z = Mul (x, w) y = If (flag) <"
        " then_branch = yes () => (float[N,4] t) { a = Exp (z) t = Add (a, w) },"
        " else_branch = no () => (float[N,4] e) { e = Neg (z) }> }",
        w=np.array([1, 2, 3, 4], np.float32),
    )
    return Case(
        name="If, outer-scope values",
        model=model,
        inputs={"flag": np.ones((), np.bool_), "x": np.ones((2, 4), np.float32)},
    )


def _mask() -> Case:
    body = "m = Sub (one, mask) n = Mul (m, lowest) s = Add (x, n) y = Softmax (s)"
    model = _parsed(
        f"g (float[N,4] x, float[N,4] mask) => (float[N,4] y) {{ {body} }}",
        one=np.array(1, np.float32),
        lowest=np.array(np.finfo(np.float32).min),
    )
    inputs = {"x": np.ones((2, 4), np.float32), "mask": np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.float32)}
    return Case(name="finfo.min mask", model=model, inputs=inputs)


def _sizes() -> Case:
    body = "s = Shape (x) f = Cast <to = 1> (s) h = Mul (f, half) i = Cast <to = 7> (h) e = Expand (one, i) y = Exp (e)"
    model = _parsed(
        f"g (float[N] x) => (float[M] y) {{ {body} }}", half=np.array(0.5, np.float32), one=np.array(1, np.float32)
    )
    return Case(name="size arithmetic", model=model, inputs={"x": np.zeros(8198, np.float32)})


def _overflow(*, fan_out: bool) -> Case:
    # A norm written out: squares of 2000 and their mean are beyond FP16, what comes before and after is not.
    body = "a = Mul (x, big) b = Mul (a, a) m = ReduceMean <axes = [1]> (b) r = Sqrt (m) y = Div (a, r)"
    keep = ["Mul_1", "ReduceMean_2", "Sqrt_3"]
    if fan_out:
        body = (
            "a = Mul (x, big) b = Mul (a, a) m = ReduceMean <axes = [1]> (b) c = Sub (b, m) d = Div (c, m) "
            "e = Add (d, one) y = Tanh (e)"
        )
        keep = ["Mul_1", "ReduceMean_2", "Sub_3", "Div_4"]
    model = _parsed(
        f"g (float[N,4] x) => (float[N,4] y) {{ {body} }}",
        big=np.array(1000, np.float32),
        one=np.array(1, np.float32),
    )
    inputs = {"x": np.array([[1, -2, 0.5, 1.5], [2, 1, -1, 0.25]], np.float32)}
    name = "keep-set with fan-out" if fan_out else "keep-set in a row"
    return Case(name=name, model=model, inputs=inputs, keep=tuple(keep))


def _thousand_layers() -> Case:
    random = np.random.default_rng(0)
    names = ["x", *(f"h{k}" for k in range(999)), "y"]
    nodes = [helper.make_node("Gemm", [names[k], f"w{k}"], [names[k + 1]], name=f"Gemm_{k}") for k in range(1000)]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 1]) for name in ("x", "y")]
    weights = [
        numpy_helper.from_array((1 + 0.01 * random.standard_normal((1, 1))).astype(np.float32), f"w{k}")
        for k in range(1000)
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Case(name="a thousand layers", model=model, inputs={"x": np.ones((4, 1), np.float32)})


def _from_file(path: Path) -> Case:
    model = onnx.load(str(path))
    random = np.random.default_rng(0)
    inputs: dict[str, NDArray[Any]] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_value or (4 if axis == 0 else 16) for axis, dim in enumerate(tensor.shape.dim)]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        is_float = np.issubdtype(dtype, np.floating)
        inputs[value.name] = (random.standard_normal(shape) if is_float else np.ones(shape)).astype(dtype)
    return Case(name=path.stem, model=model, inputs=inputs)


def _in_onnxruntime(model: onnx.ModelProto, inputs: Arrays) -> list[NDArray[Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[NDArray[Any]] = session.run(None, dict(inputs))
    return found


def _really(model: onnx.ModelProto, inputs: Arrays) -> list[NDArray[Any]]:
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(model).run(None, dict(inputs))
    return list(found)


def _difference(actual: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """Return the largest difference; infinite where shapes differ or only one side is finite."""
    worst = 0.0
    for one, other in zip(actual, expected, strict=True):
        if one.shape != other.shape or not np.array_equal(np.isfinite(one), np.isfinite(other)):
            return float("inf")
        worst = max(worst, float(np.max(np.abs(one.astype(np.float64) - other.astype(np.float64)), initial=0)))
    return worst


def _attempt(row: Row, what: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the work makes
    """Return what the work makes; None and a note where it fails, which is a figure of this table."""
    try:
        return work()
    except Exception as err:  # noqa: BLE001 - the tools measured raise what they please
        row.notes.append(f"{what}: {type(err).__name__}: {' '.join(str(err).split())[:160]}")
        return None


def _measured(case: Case, rewriter: Rewriter) -> Row:
    row = Row(case=case.name, tool=rewriter.name)
    try:
        metadata.version(rewriter.distribution)
    except metadata.PackageNotFoundError:
        row.valid = "not installed"
        return row
    given = onnx.ModelProto()
    given.CopyFrom(case.model)
    start = time.perf_counter()
    model = _attempt(row, "rewriting", lambda: rewriter.rewrite(given, case.keep))
    row.seconds = round(time.perf_counter() - start, 3)
    if model is None:
        row.valid = "raised"
        return row
    expected = _in_onnxruntime(case.model, case.inputs)
    _attempt(row, "checker", lambda: onnx.checker.check_model(model, full_check=True))
    row.valid = "NO" if row.notes else "yes"
    row.size_ratio = round(model.ByteSize() / case.model.ByteSize(), 2)
    actual = _attempt(row, "onnxruntime", lambda: _in_onnxruntime(model, case.inputs))
    row.loads = "yes" if actual is not None else "NO"
    row.difference = None if actual is None else _difference(actual, expected)
    really = _attempt(row, "reference evaluator", lambda: _really(model, case.inputs))
    row.real_difference = None if really is None else _difference(really, expected)
    if case.keep:
        is_near = row.real_difference is not None and row.real_difference < HONOURED_BELOW
        row.kept = "yes" if is_near and actual is not None else "NO"
    return row


def _line(*cells: object) -> str:
    widths = (23, 25, 8, 14, 6, 6, 9, 9, 8)
    texts = ("-" if cell is None else f"{cell:.1e}" if _is_small(cell) else str(cell) for cell in cells)
    return " ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()


def _is_small(cell: object) -> bool:
    return isinstance(cell, float) and (cell < 0.01 or cell > 100)  # noqa: PLR2004 - where %.2f says little


def main() -> None:
    """Measure every rewriter on every model, print a line each, then what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="*", help="more ONNX models to measure, in FP32")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    cases = [_perceptron(), _thousand_layers(), _dual_use(), _branches(), _mask(), _sizes()]
    cases += [_overflow(fan_out=False), _overflow(fan_out=True), *map(_from_file, options.models)]
    # What a tool says of single constants as a warning is not a figure of this table.
    warnings.simplefilter("ignore")
    heads = ("model", "rewriter", "seconds", "valid", "loads", "size", "diff ORT", "diff real", "kept")
    sys.stdout.write(_line(*heads) + "\n")
    rows = []
    for case in cases:
        for rewriter in REWRITERS:
            row = _measured(case, rewriter)
            rows.append(row)
            cells = (
                row.case,
                row.tool,
                None if row.seconds is None else f"{row.seconds:.3f}",
                row.valid,
                row.loads,
                row.size_ratio,
            )
            sys.stdout.write(_line(*cells, row.difference, row.real_difference, row.kept) + "\n")
            sys.stdout.flush()
    for row in rows:
        for note in row.notes:
            sys.stdout.write(f"{row.case}, {row.tool}: {note}\n")
    if options.json:
        names = ("case", "tool", "seconds", "valid", "loads", "size_ratio", "difference", "real_difference", "kept")
        result = {
            "benchmark": "precision_rewriters",
            "machine": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "rows": [{name: getattr(row, name) for name in names} for row in rows],
        }
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
