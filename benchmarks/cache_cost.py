"""What the stage cache costs and spares: the same spec run without it, with it for the first time, and again.

Run it with `python benchmarks/cache_cost.py klue-sts`, a packaged spec or a file. Everything is in CPU seconds of the
command and of all that it starts, measured in one run on one machine, and as a share of the run without the cache. What
a run takes of which nothing has changed is besides held against an import of NumPy on the same machine, since other
work there slows both down alike; it is to import no framework and to start no child.
Speed is not measured, since a benchmark of the models takes what time it is given.

Linux alone: elsewhere nothing tells what a job reads, and there is no cache.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from paritygate.backends import BACKENDS
from paritygate.machine import machine_facts

RUNS = {
    "without the cache": ["--no-cache"],
    "the first time": [],
    "again": [],
    "once more": [],
}
# What a run takes of which nothing has changed, at most.
MOST_CPU_S = 1.0
# Says which of the modules named are imported by a command, and how many children it starts.
_LOOK = """
import json, sys
started = []
starts = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.system"}
sys.addaudithook(lambda event, _: started.append(event) if event in starts else None)
from paritygate.__main__ import main
place, modules, sys.argv = sys.argv[1], sys.argv[2].split(","), ["paritygate", *sys.argv[3:]]
try:
    main()
finally:
    imported = [name for name in modules if name in sys.modules]
    open(place, "w").write(json.dumps({"frameworks": imported, "children": len(started)}))
"""


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


def looked_at(words: list[str], place: Path) -> dict[str, Any]:
    """Return which frameworks a command imports, and how many children it starts."""
    modules = ",".join(backend.module for backend in BACKENDS.values())
    spent([sys.executable, "-c", _LOOK, str(place), modules, *words])
    found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return found


def measured(spec: str) -> dict[str, Any]:
    """Return what each of the runs took, and its share of the one without the cache."""
    with tempfile.TemporaryDirectory(prefix="paritygate-cache-cost-") as root:
        words = ["run", spec, "--root", root, "--no-benchmark", "--no-promote"]
        command = [sys.executable, "-m", "paritygate", *words]
        found = {}
        for name, options in RUNS.items():
            found[name] = spent([*command, *options])
            # Of files that were written just now, digests are not remembered.
            time.sleep(2.5)
        numpy_s = spent([sys.executable, "-c", "import numpy"])["cpu_s"]
        look = looked_at(words, Path(root, "look.json"))
        size = sum(path.stat().st_size for path in Path(root, "cache").rglob("*") if path.is_file())
    base = found["without the cache"]["cpu_s"]
    return {
        "spec": spec,
        "runs": {name: {**item, "share": item["cpu_s"] / base} for name, item in found.items()},
        "cache_mb": size / 1e6,
        "again": {**look, "numpy_import_cpu_s": numpy_s, "numpy_imports": found["once more"]["cpu_s"] / numpy_s},
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
            print(f"  {name:<18}{item['cpu_s']:8.2f} CPU s{item['wall_s']:8.1f} s{item['share']:8.1%}")
        again = result["again"]
        frameworks = ", ".join(again["frameworks"]) or "no framework"
        print(f"  once more: as much as {again['numpy_imports']:.1f} imports of NumPy; it imports {frameworks}")
        print(f"  and starts {again['children']} children")
    if arguments.out:
        data = {
            "benchmark": "cache_cost",
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "machine": {**machine_facts(), "cores": os.cpu_count(), "load": os.getloadavg()[0]},
            "most_cpu_s": MOST_CPU_S,
            "results": results,
        }
        arguments.out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
