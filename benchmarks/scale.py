"""Measure how comparisons and runs grow: rows, workers, specs. Results are printed, with the load of the machine.

    python benchmarks/scale.py rows [--rows 100000 1000000 10000000]
    python benchmarks/scale.py engines [--rows 2000000]
    python benchmarks/scale.py fleet [--specs 200]
    python benchmarks/scale.py stubs [--specs 1000]

`engines` needs a Python with Ray for its Ray rows, such as that of `make servers-test`:
`.venv-servers/ray/bin/python benchmarks/scale.py engines`. All models have one thread, so that N workers are compared
with one.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx

_BATCH = 1024
_WIDTH = 16
_OUTPUTS = 10
_BILLION = 10**9
_LOOK_S = 0.02
# What a comparison by workers says when they begin.
_SHARDS = b" shards, "
# In place of `run`: 10 ms, and an outcome as `run` writes it.
_STUB = """
import json, pathlib, sys, time
time.sleep(0.01)
spec = sys.argv[-1]
outcome = {"spec": spec, "model": pathlib.Path(spec).stem, "release": {"version": 1, "record": 1}}
pathlib.Path(sys.argv[sys.argv.index("--json") + 1]).write_text(json.dumps({"runs": [outcome]}))
"""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a command cost."""

    code: int
    seconds: float
    cpu_s: float  # of it and its processes
    peak_mib: float  # of its own process
    err: str
    start_s: float  # until the first shard is given to a worker


def _call(*words: str) -> Ran:
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    peak, start = 0, 0.0
    with (
        tempfile.TemporaryFile() as err,
        subprocess.Popen(
            [sys.executable, "-m", "paritygate", *words], stdout=subprocess.DEVNULL, stderr=err
        ) as process,
    ):
        while process.poll() is None:
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
                peak = max([peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))])
            if not start and _SHARDS in _text_of(err):
                start = time.monotonic() - begin
            time.sleep(_LOOK_S)
        seconds = time.monotonic() - begin
        text = _text_of(err).decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ran(code=process.returncode, seconds=seconds, cpu_s=cpu, peak_mib=peak / 1024, err=text, start_s=start)


def _text_of(file: IO[bytes]) -> bytes:
    # The place in the file is also that of the process that writes it.
    return os.pread(file.fileno(), 1 << 20, 0)


def _checked(*words: str, codes: Sequence[int] = (0,)) -> Ran:
    ran = _call(*words)
    if ran.code not in codes:
        sys.exit(f"{' '.join(words)} ended with {ran.code}:\n{ran.err}")
    return ran


def _linear(path: Path, error: float, seed: int = 7) -> None:
    weight = np.random.default_rng(seed).standard_normal((_WIDTH, _OUTPUTS)).astype(np.float32)
    weight[3, 4] += np.float32(error)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "weight"], ["logits"])],
        "linear",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", _WIDTH])],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", _OUTPUTS])],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), str(path))


def _samples(rows: int) -> None:
    array = np.lib.format.open_memmap("x.npy", mode="w+", dtype=np.float32, shape=(rows, _WIDTH))
    random = np.random.default_rng(1)
    for first in range(0, rows, 1 << 20):
        part = array[first : first + (1 << 20)]
        part[:] = random.standard_normal(part.shape, dtype=np.float32)
    array.flush()


def _record(rows: int) -> Ran:
    """Write samples, models and the reference, and return the cost of the reference."""
    _samples(rows)
    _linear(Path("model.onnx"), 0.0)
    _linear(Path("candidate.onnx"), 1e-3)
    return _checked(
        "record", "model.onnx", "--samples", "x.npy", "--batch-size", str(_BATCH), "--out", f"reference-{rows}"
    )


def _compared(rows: int) -> list[str]:
    samples = ("--samples", "x.npy", "--batch-size", str(_BATCH), "--decision", "logits:argmax")
    return ["compare", f"reference-{rows}", "candidate.onnx", *samples, "--precision", "fp16"]


def _shard(rows: int, number: int, of: int) -> tuple[Ran, Path]:
    out = Path(f"part-{rows}-{number}-{of}.json")
    return _checked(*_compared(rows), "--shard", f"{number}/{of}", "--out", str(out)), out


def _without_times(data: Any) -> Any:  # noqa: ANN401 - JSON data
    if isinstance(data, dict):
        kept = {name: item for name, item in data.items() if name != "machine" and not name.endswith("seconds")}
        return {name: _without_times(item) for name, item in kept.items()}
    return [_without_times(item) for item in data] if isinstance(data, list) else data


def _digest(path: str) -> str:
    """Return the digest of a verdict, without times and the machine, and remove its file."""
    data = json.loads(Path(path).read_bytes())
    Path(path).unlink()
    return hashlib.sha256(json.dumps(_without_times(data)).encode()).hexdigest()[:12]


def rows(sizes: Sequence[int]) -> None:
    """Print cost and state of one shard of so many rows, a line through them, and what 10^9 rows cost."""
    print("| rows | record, CPU s | shard, CPU s | its peak, MiB | part, bytes | merge of 1 part, CPU s |")
    print("|---|---|---|---|---|---|")
    costs = []
    for size in sizes:
        recorded = _record(size)
        ran, part = _shard(size, 1, 1)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        merged = _checked("merge", str(part), "-q", codes=(0, 1, 3))
        costs.append(ran.cpu_s)
        print(
            f"| {size:,} | {recorded.cpu_s:.1f} | {ran.cpu_s:.1f} | {peak:.0f} | {part.stat().st_size:,} "
            f"| {merged.cpu_s:.2f} |",
            flush=True,
        )
    slope, start = np.polyfit(sizes, costs, 1)
    # The samples are those of the last size.
    of = min(16, math.ceil(size / _BATCH))
    parts = [_shard(size, number, of)[1] for number in range(1, of + 1)]
    merged = _checked("merge", *map(str, parts), "-q", codes=(0, 1, 3))
    alone = _checked("merge", str(Path(f"part-{size}-1-1.json")), "-q", codes=(0, 1, 3))
    each = (merged.cpu_s - alone.cpu_s) / max(of - 1, 1)
    largest = max(path.stat().st_size for path in parts)
    print(f"\nfit: {start:.2f} s a shard and {slope * 1e6:.2f} s a million rows; {each * 1000:.0f} ms a merged part")
    for shards in (100, 1000):
        hours = (start * shards + slope * _BILLION) / 3600
        print(
            f"10^9 rows in {shards} shards: {hours:.2f} worker hours, parts {largest * shards / 2**20:.0f} MiB, "
            f"merged in {alone.cpu_s + each * (shards - 1):.0f} s"
        )


def engines(size: int) -> None:
    """Print a table of the same comparison in one process, in several, and on Ray."""
    os.environ["PARITYGATE_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    _record(size)
    columns = ("engine", "workers", "s", "of these, start", "CPU s", "times the loop", "driver, MiB", "digest")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    begin = time.monotonic()
    ran, part = _shard(size, 1, 1)
    _checked("merge", str(part), "-q", "--json", "said.json", codes=(0, 1, 3))
    loop = time.monotonic() - begin
    print(
        f"| loop | 1 | {loop:.1f} | - | {ran.cpu_s:.1f} | 1.00 | {ran.peak_mib:.0f} | {_digest('said.json')} |",
        flush=True,
    )
    kinds = ["processes", *(["ray"] if importlib.util.find_spec("ray") else [])]
    for kind in kinds:
        for workers in (1, 2):
            more = ("--engine", kind, "--workers", str(workers), "--json", "said.json")
            ran = _checked(*_compared(size), *more, codes=(0, 1, 3))
            print(
                f"| {kind} | {workers} | {ran.seconds:.1f} | {ran.start_s:.1f} | {ran.cpu_s:.1f} "
                f"| {loop / ran.seconds:.2f}, without start {loop / (ran.seconds - ran.start_s):.2f} "
                f"| {ran.peak_mib:.0f} | {_digest('said.json')} |",
                flush=True,
            )
    if "ray" not in kinds:
        print("Ray is not installed, so its rows are missing")


def fleet(number: int) -> None:
    """Print the cost of so many specs beyond that of each alone, and that of the second run."""
    os.environ["PARITYGATE_CACHE"] = str(Path("cache").absolute())
    Path("specs").mkdir()
    _samples(200)
    for at in range(number + 1):
        name = f"m{at:04}"
        _linear(Path(f"{name}.onnx"), 0.0, seed=at)
        spec = {
            "model": {"name": name, "source": str(Path(f"{name}.onnx").absolute()), "rename": {"logits": "y"}},
            "samples": {"source": str(Path("x.npy").absolute())},
            "targets": ["onnx-fp32"],
            "probes": "none",
        }
        folder = "specs" if at else "."
        Path(f"{folder}/{name}.yaml").write_text(json.dumps(spec), encoding="utf-8")
    alone = _checked("run", "m0000.yaml", "--no-benchmark", "-q")
    for what in ("first", "again"):
        ran = _checked("run", "specs", "--workers", "2", "--no-benchmark", "-q")
        print(
            f"{what}: {number} specs in {ran.seconds:.1f} s, {ran.cpu_s / number:.2f} s of CPU each "
            f"(alone {alone.cpu_s:.2f}), own process {ran.peak_mib:.0f} MiB",
            flush=True,
        )


def stubs(number: int) -> None:
    """Print what a summary of so many runs of 10 ms costs."""
    from paritygate.pipelines.fleet import fleet as module
    from paritygate.pipelines.report.fleet import counts_of, render_fleet
    from paritygate.pipelines.scale.engine import Engine

    module._COMMAND = _STUB  # noqa: SLF001 - the runs are stubs
    request = module.FleetRequest(
        specs=[f"m{at:04}.yaml" for at in range(number)],
        engine=Engine(kind="processes", workers=2),
        words=(),
        folder=Path.cwd(),
    )
    entries: list[module.FleetEntry] = []
    begin = time.monotonic()
    module.run_fleet(request, entries.append, print)
    ran = time.monotonic() - begin
    page = render_fleet(entries, Path.cwd())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{counts_of(entries)}; {ran:.1f} s, page of {len(page.encode()):,} bytes in "
        f"{time.monotonic() - begin - ran:.2f} s, this process {peak:.0f} MiB"
    )


def main() -> None:
    """Measure one of the subjects in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", choices=["rows", "engines", "fleet", "stubs"])
    parser.add_argument("--rows", type=int, nargs="+", default=None)
    parser.add_argument("--specs", type=int, default=None)
    args = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        if args.subject == "rows":
            rows(args.rows or [10**5, 10**6, 10**7])
        elif args.subject == "engines":
            engines((args.rows or [2 * 10**6])[0])
        elif args.subject == "fleet":
            fleet(args.specs or 200)
        else:
            stubs(args.specs or 1000)
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
