"""Compare in 1, 7 and as many parts as there are batches: one verdict, and what parts and merging cost.

    python benchmarks/shards.py [--rows 10000]

The jobs run in this process, so no start of a process is in the figures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from paritygate.codec import to_data
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.models import parse_model
from paritygate.pipelines.compare.shards.merged import merge_parts
from paritygate.pipelines.jobs import compare, record, shard
from paritygate.pipelines.process import child
from paritygate.pipelines.run import record as recording
from paritygate.pipelines.run.record import RecordRequest, record_model
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.samples.source import SampleSource

_JOBS = {"record": record, "compare": compare, "shard": shard}
_SIZE = 32


def _linear(path: Path, error: float) -> None:
    weight = np.random.default_rng(7).standard_normal((16, 10)).astype(np.float32)
    weight[3, 4] += np.float32(error)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "weight"], ["logits"])],
        "linear",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 16])],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", 10])],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), str(path))


def _here(job: child.ChildJob, *_: object, **__: object) -> Any:  # noqa: ANN401 - the job's JSON
    return _JOBS[job.name].run(job.all_args, lambda *_: None)


def _without_times(data: Any) -> Any:  # noqa: ANN401 - JSON data
    if isinstance(data, dict):
        kept = {name: item for name, item in data.items() if name != "machine" and not name.endswith("seconds")}
        return {name: _without_times(item) for name, item in kept.items()}
    return [_without_times(item) for item in data] if isinstance(data, list) else data


def main() -> None:
    """Print one line for each number of parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    child.run_child = recording.run_child = _here  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        here = Path(name)
        np.save(here / "x.npy", np.random.default_rng(1).standard_normal((rows, 16)).astype(np.float32))
        _linear(here / "model.onnx", 0.0)
        _linear(here / "candidate.onnx", 1e-3)
        samples = SampleSource(text="x.npy", folder=here, batch_size=_SIZE)
        request = RecordRequest(
            model="model.onnx",
            samples=samples,
            out=here / "reference",
            valid_where={},
            is_non_finite_declared=False,
            seed=0,
            device="cpu",
        )
        record_model(request, time_limit_s=600, progress=lambda *_: None)
        job = ComparisonJob(
            reference=parse_model("reference", here),
            candidate=parse_model("candidate.onnx", here),
            samples=samples,
            rules=GateRules(tolerance=parse_tolerance(Precision.FP16, {}), min_rows=30),
        )
        (here / "job").mkdir()
        args = {"job": to_data(job), "folder": str(here / "job"), "time_limit_s": 600.0}
        before = time.process_time()
        compare.run(args, lambda *_: None)
        print(f"plain compare of {rows:,} rows: {time.process_time() - before:.2f} s of CPU", flush=True)
        for of in (1, 7, -(-rows // _SIZE)):
            before, paths = time.process_time(), [here / f"part-{number}-{of}.json" for number in range(1, of + 1)]
            for number, path in enumerate(paths, start=1):
                shard.run({**args, "shard": [number, of], "out": str(path)}, lambda *_: None)
            measured, before = time.process_time() - before, time.process_time()
            result = merge_parts(paths[::-1])
            text = json.dumps(_without_times(to_data(result)))
            print(
                f"{of} parts: {measured:.2f} s of CPU, largest part {max(path.stat().st_size for path in paths):,} "
                f"bytes, merged in {time.process_time() - before:.2f} s, {result.verdict}, "
                f"digest {hashlib.sha256(text.encode()).hexdigest()[:12]}",
                flush=True,
            )


if __name__ == "__main__":
    main()
