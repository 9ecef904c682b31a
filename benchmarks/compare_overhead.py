"""What comparing costs beside inference: `compare` against the plainest loop that runs both models.

Run it with `make bench`, or `python benchmarks/compare_overhead.py --rows 1000 10000 --runs 3`. Both are
timed as whole processes, one after the other, so that a drift of the machine hits both; what counts is
the ratio within one run, not the seconds. The bar is 1.15 for a conv net with 10 logits (repeat 1). The
last row, outputs of a million values each, has no bar: there the statistics cost more than the model.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BATCH = 16
# From this many outputs on, the net is a single convolution whose map is the output.
WIDE = 1_000_000
# The plainest loop: both models, and the running max, mean and std of the difference. Nothing is checked.
PLAIN_LOOP = """
import sys
import numpy as np
import onnxruntime as ort
reference, candidate, samples = sys.argv[1:4]
sessions = [ort.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in (reference, candidate)]
rows = np.load(samples)["image"]
largest = total = squares = count = 0.0
for start in range(0, len(rows), 16):
    feed = {"image": rows[start : start + 16]}
    expected, actual = (session.run(["logits"], feed)[0].astype(np.float64) for session in sessions)
    difference = np.abs(actual - expected)
    largest = max(largest, float(difference.max()))
    total += float(difference.sum())
    squares += float((difference**2).sum())
    count += difference.size
mean = total / count
print(largest, mean, (squares / count - mean * mean) ** 0.5)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One row of the table."""

    name: str
    rows: int
    image: int
    outputs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What one process cost: seconds on the wall and on the processors, peak memory; children included."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def write_model(path: Path, *, image: int, outputs: int, noise: float) -> None:
    """Write a conv net `image[batch, 3, image, image] -> logits[batch, outputs]`, its weights seeded.

    Args:
        path: The file.
        image: Height and width.
        outputs: Number of logits; see `WIDE`.
        noise: Relative change of the weights, so that reference and candidate differ.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    change = np.random.default_rng(1)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        fan_in = int(np.prod(shape[1:]))
        values = random.normal(0, np.sqrt(2 / fan_in), shape) * (1 + noise * change.normal(size=shape))
        return numpy_helper.from_array(values.astype(np.float32), name)

    nodes, weights, last, channels = [], [], "image", 3
    is_wide = outputs >= WIDE
    for index, width in enumerate((16,) if is_wide else (16, 32, 64, 64, 128)):
        weights.append(weight(f"w{index}", width, channels, 3, 3))
        stride = 1 if is_wide or index in {0, 3} else 2
        nodes.append(helper.make_node("Conv", [last, f"w{index}"], [f"c{index}"], pads=[1] * 4, strides=[stride] * 2))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"]))
        last, channels = f"r{index}", width
    if is_wide:
        nodes.append(helper.make_node("Flatten", [last], ["logits"]))
    else:
        weights.append(weight("head", outputs, channels))
        nodes += [
            helper.make_node("GlobalAveragePool", [last], ["pool"]),
            helper.make_node("Flatten", ["pool"], ["flat"]),
            helper.make_node("Gemm", ["flat", "head"], ["logits"], transB=1),
        ]
    graph = helper.make_graph(
        nodes,
        "convnet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, image, image])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", outputs])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(path))


def measure(command: Sequence[str]) -> Cost:
    """Run a command and return what it cost, children included.

    Raises:
        RuntimeError: The command failed.
    """
    started = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - started
        if process.returncode != 0:
            output.seek(0)
            msg = f"{' '.join(command)} ended with {process.returncode}: {output.read().decode()[-2000:]}"
            raise RuntimeError(msg)
    return Cost(wall_s=wall, cpu_s=usage.ru_utime + usage.ru_stime, peak_mib=usage.ru_maxrss / 1024)


def run_case(case: Case, folder: Path, runs: int) -> dict[str, object]:
    """Measure one case and return its row: medians of each side and of the ratio, run by run."""
    reference, candidate, samples = folder / "reference.onnx", folder / "candidate.onnx", folder / "samples.npz"
    # In a process of its own: what this one once held would count as the peak of those that it starts.
    sizes = [str(number) for number in (case.rows, case.image, case.outputs)]
    subprocess.run([sys.executable, __file__, "--prepare", str(folder), *sizes], check=True)
    plain = [sys.executable, "-c", PLAIN_LOOP, str(reference), str(candidate), str(samples)]
    ours = [sys.executable, "-m", "paritygate", "compare", str(reference), str(candidate), "--samples", str(samples)]
    ours += ["--batch-size", str(BATCH), "--precision", "fp16", "--quiet", "--probes", "none"]
    measure(plain)  # Warm the file cache for both.
    pairs = [(measure(plain), measure(ours)) for _ in range(runs)]

    def median(values: list[float]) -> float:
        return round(statistics.median(values), 3)

    return {
        "case": case.name,
        "rows": case.rows,
        "plain_wall_s": median([a.wall_s for a, _ in pairs]),
        "compare_wall_s": median([b.wall_s for _, b in pairs]),
        "wall_ratio": median([b.wall_s / a.wall_s for a, b in pairs]),
        "cpu_ratio": median([b.cpu_s / a.cpu_s for a, b in pairs]),
        "plain_peak_mib": median([a.peak_mib for a, _ in pairs]),
        "compare_peak_mib": median([b.peak_mib for _, b in pairs]),
    }


def prepare(folder: Path, rows: int, image: int, outputs: int) -> None:
    """Write both models and the samples of a case."""
    write_model(folder / "reference.onnx", image=image, outputs=outputs, noise=0.0)
    write_model(folder / "candidate.onnx", image=image, outputs=outputs, noise=1e-6)
    images = np.random.default_rng(2).standard_normal((rows, 3, image, image), dtype=np.float32)
    np.savez(folder / "samples.npz", image=images)


def main() -> None:
    """Measure every case and print one line each, then all as JSON."""
    if sys.argv[1:2] == ["--prepare"]:
        prepare(Path(sys.argv[2]), *map(int, sys.argv[3:6]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1000, 10000], help="numbers of rows of the conv net")
    parser.add_argument("--runs", type=int, default=3, help="pairs of runs a case")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    cases = [Case(name="conv net, 10 logits", rows=rows, image=128, outputs=10) for rows in options.rows]
    cases.append(Case(name="1,048,576 values a row", rows=128, image=256, outputs=16 * 256 * 256))
    table = []
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="paritygate-bench-") as folder:
            row = run_case(case, Path(folder), options.runs)
        table.append(row)
        sys.stdout.write(
            f"{row['case']}, {row['rows']} rows: wall ratio {row['wall_ratio']}, cpu ratio {row['cpu_ratio']} "
            f"({row['compare_wall_s']} s beside {row['plain_wall_s']} s), "
            f"peak {row['compare_peak_mib']} MiB beside {row['plain_peak_mib']} MiB\n"
        )
        sys.stdout.flush()
    result = {
        "benchmark": "compare_overhead",
        "processors": os.cpu_count(),
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "batch": BATCH,
        "runs": options.runs,
        "rows": table,
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
