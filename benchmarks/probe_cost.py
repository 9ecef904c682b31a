"""What probes cost: the whole gate, with its defaults, against one pass of both models over the samples.

Run it with `python -m benchmarks.probe_cost --rows 1024 4096`. Reference and candidate are the ONNX export of the
sentence-pair fixture, once as exported and once with another name in its bytes. Everything is from one process a case:
the seconds that `compare` says it took over the samples and for each probe. The bar is 3 times one pass, for more than
1,000 rows. The wall time of the same command with `--probes none`, right before, is beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 16
BAR = 3.0


def export(folder: Path) -> tuple[Path, Path]:
    """Export the fixture, and return it and a copy that differs in its bytes alone."""
    import onnx

    command = [sys.executable, "-m", "paritygate", "export", "klue-sts", "--target", "onnx-fp32", "--quiet"]
    subprocess.run([*command, "--root", str(folder)], check=True, stdout=subprocess.DEVNULL)
    (reference,) = folder.glob("runs/klue-sts/*/onnx-fp32/model.onnx")
    model = onnx.load(str(reference))
    model.graph.name = "the same graph under another name"
    candidate = folder / "candidate.onnx"
    onnx.save(model, str(candidate))
    return reference, candidate


def write_samples(folder: Path, rows: int) -> Path:
    """Write so many sentence pairs, in batches of one length each."""
    from tools.sts.pairs import calibration_pairs

    from paritygate.fixtures.sts.tokenizer import encode_batch

    pairs = [(pair.sentence1, pair.sentence2) for pair in calibration_pairs(rows)]
    arrays = {}
    for start in range(0, rows, BATCH):
        for name, array in encode_batch(pairs[start : start + BATCH]).items():
            arrays[f"b{start:06d}/{name}"] = array
    path = folder / f"samples-{rows}.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]  # keys are free in a mapping
    return path


def compare(sides: tuple[Path, Path], samples: Path, *options: str) -> tuple[float, dict[str, Any]]:
    """Return the wall seconds of a comparison, and its result."""
    target = samples.with_suffix(".json")
    command = [sys.executable, "-m", "paritygate", "compare", *map(str, sides), "--samples", str(samples)]
    started = time.monotonic()
    command += ["--decision", "logits:threshold=3", "--quiet", "--json", str(target), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started, json.loads(target.read_text(encoding="utf-8"))


def measure_case(sides: tuple[Path, Path], samples: Path) -> dict[str, Any]:
    """Return what probes cost on these samples."""
    plain, _ = compare(sides, samples, "--probes", "none")
    whole, result = compare(sides, samples)
    probes = result["probes"]
    one_pass = probes["samples_seconds"] + probes["reference_samples_seconds"]
    by_probe = {
        name: {
            "rows": probe["rows"],
            "seconds": round(probe["seconds"], 3),
            "reference_seconds": round(probe["reference_seconds"] or 0.0, 3),
        }
        for name, probe in probes["asked"].items()
    }
    of_probes = sum(item["seconds"] + item["reference_seconds"] for item in by_probe.values())
    ratio = (one_pass + of_probes) / one_pass
    return {
        "rows": result["rows"],
        "one_pass_s": round(one_pass, 3),
        "probes_s": round(of_probes, 3),
        "gate_over_one_pass": round(ratio, 3),
        "is_within_bar": ratio <= BAR,
        "wall_with_probes_s": round(whole, 3),
        "wall_without_s": round(plain, 3),
        "probes": by_probe,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results if a file is named; the exit code is 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sides = export(folder)
        cases = [measure_case(sides, write_samples(folder, rows)) for rows in options.rows]
    found = {
        "benchmark": "probe_cost",
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "batch": BATCH,
        "bar": BAR,
        "cases": cases,
    }
    text = json.dumps(found, indent=2) + "\n"
    sys.stdout.write(text)
    if options.json is not None:
        options.json.write_text(text, encoding="utf-8")
    return 0 if all(case["is_within_bar"] for case in cases if case["rows"] > 1000) else 1  # noqa: PLR2004 - the bar's


if __name__ == "__main__":
    sys.exit(main())
