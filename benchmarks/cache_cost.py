"""What the stage cache costs and spares: the same spec run without it, with it for the first time, and again.

Run it with `python benchmarks/cache_cost.py klue-sts`, a packaged spec or a file. Everything is in CPU seconds of the
command and of all that it starts, measured in one run on one machine, and as a share of the run without the cache.
Speed is not measured, since a benchmark of the models takes what time it is given.

Linux alone: elsewhere nothing tells what a job reads, and there is no cache.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RUNS = {
    "without the cache": ["--no-cache"],
    "the first time": [],
    "again": [],
    "once more": [],
}


def spent(command: list[str]) -> dict[str, float]:
    """Run a command, and return its CPU seconds and its wall seconds.

    Raises:
        SystemExit: It failed.
    """
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in {0, 1, 3}:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"cpu_s": cpu, "wall_s": wall}


def measured(spec: str) -> dict[str, Any]:
    """Return what each of the runs took, and its share of the one without the cache."""
    with tempfile.TemporaryDirectory(prefix="paritygate-cache-cost-") as root:
        command = [sys.executable, "-m", "paritygate", "run", spec, "--root", root, "--no-benchmark", "--no-promote"]
        found = {}
        for name, options in RUNS.items():
            found[name] = spent([*command, *options])
            # Of files that were written just now, digests are not remembered.
            time.sleep(2.5)
        size = sum(path.stat().st_size for path in Path(root, "cache").rglob("*") if path.is_file())
    base = found["without the cache"]["cpu_s"]
    return {
        "spec": spec,
        "runs": {name: {**item, "share": item["cpu_s"] / base} for name, item in found.items()},
        "cache_mb": size / 1e6,
    }


def main() -> None:
    """Measure the specs that are named, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="*", default=["klue-sts"])
    parser.add_argument("--out", type=Path, help="Write the figures here as JSON.")
    arguments = parser.parse_args()
    results = [measured(spec) for spec in arguments.specs]
    for result in results:
        print(f"{result['spec']}: the cache holds {result['cache_mb']:.0f} MB")
        for name, item in result["runs"].items():
            print(f"  {name:<18}{item['cpu_s']:8.1f} CPU s{item['wall_s']:8.1f} s{item['share']:8.0%}")
    if arguments.out:
        arguments.out.write_text(json.dumps({"results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
