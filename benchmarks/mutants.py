"""Plant drawn faults into a copy of the product, one at a time, and count those that its tests find.

    python benchmarks/mutants.py --out build/mutants.json
    python benchmarks/mutants.py --count 1 --only validate
    python benchmarks/mutants.py --tests OTHER/tests --compare build/mutants.json

The seed is fixed: 30 faults in each of the four parts. For each one, the tests of the folder that mirrors the file run
until the first failure, for 60 seconds at most; tests of files that name the changed module come first. A fault is
*killed* by a failure, *survived* if all tests passed, and *timeout* if the time was up before. This is slow, so it is
run before and after a change of the tests, not in CI. `--tests` runs the tests of another checkout on the same product.
`--compare` exits with 1 if a fault survives that the other table says was killed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mutations import PARTS, Mutation, draw

ROOT = Path(__file__).resolve().parents[1]
SEED = 20261126
KILLED, SURVIVED, TIMEOUT = "killed", "survived", "timeout"
ALL_PASSED, SOME_FAILED, INTERRUPTED, NOTHING_COLLECTED = 0, 1, 2, 5
PYTEST = ("-m", "pytest", "-x", "-q", "-m", "not thorough", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line")


def copy_tree(root: Path, folder: Path, tests: Path) -> None:
    """Copy the files that git knows or does not ignore, links as links; `tests` takes the place of the tests."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"],  # noqa: S607 - on the path
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if name.startswith("tests/") or not (root / name).exists():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, folder / name, follow_symlinks=False)
    shutil.copytree(tests, folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))


def folder_of_tests(tree: Path, path: str) -> Path:
    """Return the folder of tests that mirrors a file of the product, or the nearest one above it."""
    folder = tree / "tests" / Path(path.removeprefix("src/")).parent
    while not folder.is_dir():
        folder = folder.parent
    return folder


def files_of_tests(folder: Path, path: str) -> list[str]:
    """Return the files of tests below a folder: first those that name the module, then the others."""
    module = path.removeprefix("src/").removeprefix("paritygate/").removesuffix(".py").replace("/", ".")
    parent, _, stem = module.rpartition(".")
    named = re.compile(rf"paritygate\.{re.escape(module)}\b|from paritygate\.?{re.escape(parent)} import .*\b{stem}\b")
    found = sorted(folder.rglob("test_*.py"))
    return [str(file) for file in sorted(found, key=lambda file: not named.search(file.read_text(encoding="utf-8")))]


def run_tests(tree: Path, path: str, seconds: float) -> tuple[str, str]:
    """Run the tests that mirror a file, and return the outcome and the test that failed.

    Raises:
        SystemExit: If pytest could not run the tests.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_WAIT_POLICY": "passive"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *PYTEST, f"--basetemp={tree.parent / 'pytest'}"]
    command += files_of_tests(folder_of_tests(tree, path), path)
    # A session of its own, so that what the tests have started ends with them.
    process = subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return TIMEOUT, ""
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode in {ALL_PASSED, NOTHING_COLLECTED}:
        return SURVIVED, ""
    text = out.decode(errors="replace")
    if process.returncode not in {SOME_FAILED, INTERRUPTED}:
        # A fault at import time ends pytest, or breaks it, before any test; anything else is not a finding.
        return KILLED, f"pytest ended with {process.returncode}"
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", text, re.MULTILINE)
    return KILLED, failed[1] if failed else ""


def check_unchanged(tree: Path, mutations: Sequence[Mutation], seconds: float) -> None:
    """Run the tests of every folder on the product as it is.

    Raises:
        SystemExit: If a test fails without a fault, since it would kill every mutant.
    """
    paths = {str(folder_of_tests(tree, mutation.path)): mutation.path for mutation in mutations}
    for folder, path in paths.items():
        outcome, test = run_tests(tree, path, seconds)
        if outcome == KILLED:
            sys.exit(f"a test fails without any fault, below {folder}: {test}")


def try_mutation(tree: Path, mutation: Mutation, seconds: float) -> dict[str, Any]:
    """Plant a fault, run its tests, take the fault away, and return its row of the table."""
    file = tree / mutation.path
    kept = file.read_bytes()
    times = file.stat()
    file.write_bytes(mutation.apply(kept))
    started = time.monotonic()
    try:
        outcome, test = run_tests(tree, mutation.path, seconds)
    finally:
        file.write_bytes(kept)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    return {
        "name": mutation.name,
        "part": mutation.part,
        "path": mutation.path,
        "line": mutation.line,
        "where": mutation.where,
        "kind": mutation.kind,
        "before": mutation.before,
        "after": mutation.after.strip("; \n"),
        "outcome": outcome,
        "test": test,
        "seconds": round(time.monotonic() - started, 1),
    }


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Print how many faults of each part were killed, survived, or ran out of time."""
    print(f"\n{'part':16}{KILLED:>10}{SURVIVED:>10}{TIMEOUT:>10}")
    for part in (*PARTS, "all"):
        seen = Counter(row["outcome"] for row in rows if part in {row["part"], "all"})
        if seen:
            print(f"{part:16}{seen[KILLED]:>10}{seen[SURVIVED]:>10}{seen[TIMEOUT]:>10}")


def lost(rows: Sequence[dict[str, Any]], earlier: Sequence[dict[str, Any]]) -> list[str]:
    """Return the faults that survived in one of two tables and were killed in the other, earlier or later one."""
    killed = {row["name"] for row in earlier if row["outcome"] == KILLED}
    return [row["name"] for row in rows if row["outcome"] == SURVIVED and row["name"] in killed]


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=30, help="faults in each part")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be given again")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--seconds", type=float, default=60.0, help="limit for the tests of one fault")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests", help="folder of tests to run, of any checkout")
    parser.add_argument("--out", type=Path, default=Path("build/mutants.json"))
    parser.add_argument("--compare", type=Path, help="the table of an earlier call")
    return parser.parse_args()


def main() -> None:
    """Draw, plant, test, and write the table after every fault."""
    asked = arguments()
    mutations = [item for item in draw(ROOT, seed=asked.seed, count=asked.count) if item.part in (asked.only or PARTS)]
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name).resolve() / "tree"
        copy_tree(ROOT, tree, asked.tests.resolve())
        check_unchanged(tree, mutations, asked.seconds)
        for mutation in mutations:
            row = try_mutation(tree, mutation, asked.seconds)
            rows.append(row)
            print(f"{row['outcome']:9}{row['seconds']:6.1f} s  {row['path']}:{row['line']} {row['kind']}", flush=True)
            asked.out.write_text(json.dumps({"seed": asked.seed, "mutants": rows}, indent=2) + "\n", encoding="utf-8")
    print_table(rows)
    if asked.compare:
        gone = lost(rows, json.loads(asked.compare.read_text(encoding="utf-8"))["mutants"])
        print("\n".join(["", "killed before and survived now:", *gone]) if gone else "\nno killed fault survives now")
        sys.exit(1 if gone else 0)


if __name__ == "__main__":
    main()
