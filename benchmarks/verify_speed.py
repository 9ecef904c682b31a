"""How fast a release is verified, beside plain SHA-256 of the same files by as many threads, in one run.

Run it with `python benchmarks/verify_speed.py --size 10`; a size in GB that does not fit the disk is made smaller.
The release is to be verified at 90 % of the speed of plain SHA-256 or better. Both are measured in turn, each time in a
new process, and the fastest of each counts: what else the machine does slows them down alike, but not at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from paritygate.artifact import Artifact, file_digests
from paritygate.files import digest_of_files, read_json
from paritygate.machine import machine_facts
from paritygate.pipelines.release.repository.candidate import (
    Provenance,
    ReleaseCandidate,
    VariantCandidate,
    VariantEvidence,
)
from paritygate.pipelines.release.repository.release import promote
from paritygate.precision import Variant
from paritygate.signature import Signature, TensorSpec

LEAST_SHARE = 0.9
MODEL, VARIANT = "large", "onnx-fp32"
# The files are copied once, and some space stays.
COPIES, SPARE_GB = 2, 2.0
_BLOCK = 16 << 20

_PLAIN = """
import hashlib, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
def digest(path):
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
paths = [path for path in Path(sys.argv[1]).rglob("*") if path.is_file()]
begin, cpu = time.perf_counter(), time.process_time()
with ThreadPoolExecutor(int(sys.argv[2])) as threads:
    list(threads.map(digest, paths))
print(time.perf_counter() - begin, time.process_time() - cpu)
"""
_VERIFY = """
import sys, time
from pathlib import Path
from paritygate.pipelines.release.repository.inspect import verify_release
calls = []
begin, cpu = time.perf_counter(), time.process_time()
found = verify_release(Path(sys.argv[1]), sys.argv[2], 1, lambda _, done, total: calls.append(done / total))
print(time.perf_counter() - begin, time.process_time() - cpu)
assert found.is_intact and calls[-1] == 1.0, found
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """Hold the least time and the least CPU time of one way, of all its runs."""

    wall: float
    cpu: float


def released(place: Path, size: int, files: int) -> Path:
    """Return a repository with one release of random files."""
    folder = place / "run" / VARIANT
    folder.mkdir(parents=True)
    block = os.urandom(_BLOCK)
    for number in range(files):
        name = "model.onnx" if number == 0 else f"weights-{number}.bin"
        with (folder / name).open("wb") as stream:
            for start in range(0, size // files, _BLOCK):
                stream.write(block[: min(_BLOCK, size // files - start)])
    specs = {name: (TensorSpec(name=name, dtype="float32", shape=("batch", 4)),) for name in ("x", "y")}
    digests = file_digests(folder)
    signature = Signature(inputs=specs["x"], outputs=specs["y"])
    Artifact(
        variant=Variant.parse(VARIANT), folder=folder, main="model.onnx", signature=signature, files=digests
    ).save()
    evidence = VariantEvidence(
        verdict="pass", artifact=digest_of_files(digests), kind="verified", device="cpu", runtime="none"
    )
    variant = VariantCandidate(
        name=VARIANT, folder=folder, record=read_json(folder / "artifact.json"), evidence=evidence
    )
    source = "sha256:" + "0" * 64
    provenance = Provenance(source=source, samples=source, reference=source, tools={}, device={}, tolerances={})
    promote(
        place / "repository",
        ReleaseCandidate(model=MODEL, variants=(variant,), provenance=provenance, evidence={}, alias="prod"),
    )
    shutil.rmtree(place / "run")
    return place / "repository"


def seconds(code: str, *words: str) -> Seconds:
    """Return what a program in a process of its own prints."""
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    wall, cpu = map(float, done.stdout.split())
    return Seconds(wall=wall, cpu=cpu)


def measured(place: Path, size_gb: float, files: int, rounds: int) -> dict[str, Seconds]:
    """Make a release, and measure each way in turn."""
    repository = released(place, int(size_gb * 1e9), files)
    folder = str(repository / "store" / MODEL / "1")
    ways: dict[str, Callable[[], Seconds]] = {
        "plain, 1 thread": lambda: seconds(_PLAIN, folder, "1"),
        "plain": lambda: seconds(_PLAIN, folder, "4"),
        "verify": lambda: seconds(_VERIFY, str(repository), MODEL),
    }
    # The first one brings the files into memory, as far as they fit.
    ways["plain"]()
    found: dict[str, list[Seconds]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            found[name].append(run())
    return {
        name: Seconds(wall=min(run.wall for run in runs), cpu=min(run.cpu for run in runs))
        for name, runs in found.items()
    }


def main() -> int:
    """Measure, print the speeds, and return 1 if a verification is too slow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=float, default=10.0, metavar="GB")
    parser.add_argument("--files", type=int, default=8, metavar="N", help="Into how many files it is divided.")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="More where other programs run.")
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()), help="Where the release is made.")
    parser.add_argument("--out", type=Path, help="Write the figures here as JSON.")
    arguments = parser.parse_args()
    room = max(0.1, shutil.disk_usage(arguments.place).free / 1e9 / COPIES - SPARE_GB)
    size_gb = min(arguments.size, room)
    with tempfile.TemporaryDirectory(dir=arguments.place, prefix="paritygate-verify-speed-") as name:
        found = measured(Path(name), size_gb, arguments.files, arguments.rounds)
    for way, took in found.items():
        print(f"{way:<18}{took.wall:8.2f} s{size_gb * 1000 / took.wall:8.0f} MB/s{took.cpu:8.2f} CPU s")
    share = found["plain"].wall / found["verify"].wall
    share_of_cpu = found["plain"].cpu / found["verify"].cpu
    print(f"{size_gb:.1f} GB in {arguments.files} files: verified at {share:.0%} of the speed of plain SHA-256")
    print(f"(by CPU seconds: {share_of_cpu:.0%})")
    if arguments.out:
        machine = {**machine_facts(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
        date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        sizes = {"size_gb": size_gb, "files": arguments.files}
        ways = {way: asdict(took) for way, took in found.items()}
        shares = {"share": share, "share_of_cpu": share_of_cpu}
        data = {"benchmark": "verify_speed", "date": date, "machine": machine, **sizes, "ways": ways, **shares}
        arguments.out.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return 0 if share >= LEAST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
