"""Writes down what users and other programs see of paritygate, so that two versions of it can be compared.

    PYTHONPATH=TREE/src python benchmarks/snapshots.py OUT
    diff --recursive OUT_BEFORE OUT_AFTER

Everything goes through the command line of the paritygate that Python finds, each command on one processor core. `OUT`
gets a folder a case: `terminal.txt` with what was printed, `files.txt` with the names of the files made, and every JSON
and Markdown file that users keep. Figures are rounded to six significant digits. What no two runs agree in is struck
out: times, paths, run ids, the names of host, system and user, and the digests of files that hold such things. Reports
as HTML, which have the tables of `report.md`, and the files of child processes in `jobs/` are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from snapshot_cases import CASES, write_inputs

STRUCK_OUT = "<varies>"
# Values of these keys in JSON, and columns of these names in tables of Markdown.
VARYING_KEYS = frozenset({
    "content_bytes", "created", "host", "pack_bytes", "platform", "time", "who",
    "reference_samples_seconds", "reference_seconds", "samples_seconds", "seconds",
})  # fmt: skip
# Files that hold a digest of data with times in it, as the records of a repository's log do.
VARYING_RECORDS = frozenset({"packed.json", "probes.json", "record.json"})
# TensorFlow writes equal models in other bytes every time, and TorchScript files hold the paths of the model's code: no
# digest in these cases can be compared.
OTHER_BYTES_EVERY_TIME = frozenset({"run-klue-sts-tf", "run-klue-sts-torchscript"})
VARYING_COLUMNS = frozenset({"candidate s", "reference s"})
VARYING_TEXT = (
    (re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}"), "<run>"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z|\+00:00)?"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "<seconds> s"),
    (re.compile(r"(all of it, over the samples alone \| )[\d.]+"), r"\1<varies>"),
    (re.compile(r"(fingerprint\.pb \| )\d+ bytes"), r"\1<varies>"),
)
FIGURE = re.compile(r"(?<![\w.])(\d+\.\d+)(e[-+]?\d+)?(?!\w|\.\d)")
DIGITS = 6
MARK = ".made-by-snapshots"
LANES = 4
# One thread for each library that would take as many as there are cores; no GPU, no colours, one width.
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    **dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"),
    "OMP_WAIT_POLICY": "passive",
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "120",
    "NO_COLOR": "1",
}


def rounded(match: re.Match[str]) -> str:
    """Return a figure in a text with as many significant digits as count, or as it is where it has fewer."""
    has_more = len(match[1].replace(".", "").lstrip("0")) > DIGITS
    return f"{float(match[0]):.{DIGITS}g}" if has_more else match[0]


def strike_out_text(text: str, names: Mapping[str, str]) -> str:
    """Return a text without what varies, figures rounded; `names` are what stands for paths and digests."""
    for value in sorted(names, key=len, reverse=True):
        text = text.replace(value, names[value])
    for pattern, name in VARYING_TEXT:
        text = pattern.sub(name, text)
    return FIGURE.sub(rounded, text)


def strike_out_data(data: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON data
    """Return JSON data without what varies, figures rounded; what is null stays so."""
    if isinstance(data, dict):
        return {
            strike_out_text(key, names): STRUCK_OUT
            if key in VARYING_KEYS and value is not None
            else strike_out_data(value, names)
            for key, value in data.items()
        }
    if isinstance(data, list):
        return [strike_out_data(item, names) for item in data]
    if isinstance(data, float):
        return float(f"{data:.{DIGITS}g}")
    return strike_out_text(data, names) if isinstance(data, str) else data


def strike_out_columns(text: str) -> str:
    """Return Markdown without the columns that vary."""
    lines, varying = [], set[int]()
    for line in text.splitlines():
        cells = line.split(" | ")
        if len(cells) == 1:
            varying = set()
        elif not varying:
            varying = {place for place, cell in enumerate(cells) if cell in VARYING_COLUMNS}
        elif not line.startswith("| ---"):
            cells = [STRUCK_OUT if place in varying else cell for place, cell in enumerate(cells)]
        lines.append(" | ".join(cells))
    return "\n".join(lines) + "\n"


def strike_out(path: Path, names: Mapping[str, str]) -> str:
    """Return what a file holds, as a snapshot has it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.dumps(strike_out_data(json.loads(text), names), indent=2, ensure_ascii=False) + "\n"
    return strike_out_text(strike_out_columns(text), names)


def place_of_package() -> Path:
    """Return the folder that paritygate is imported from."""
    spec = importlib.util.find_spec("paritygate")
    if spec is None or spec.origin is None:
        sys.exit("paritygate cannot be imported: install it, or name the folder that holds it in PYTHONPATH")
    return Path(spec.origin).resolve().parents[1]


def paritygate(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one command in a folder."""
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(place_of_package())}
    # Children would compile the package anew where the environment forbids to keep what was compiled.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "paritygate", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def names_in(folder: Path, work: Path) -> dict[str, str]:
    """Return what stands for the paths, the system, and the digests of files that hold what varies."""
    names = {str(place_of_package()): "<package>", str(work): "<work>", sys.prefix: "<python>"}
    names[platform.platform()] = "<platform>"
    if folder.name in OTHER_BYTES_EVERY_TIME:
        for path in files_of(folder, "*.json", "*.md"):
            names |= dict.fromkeys(re.findall(r"\b[0-9a-f]{64}\b", path.read_text(encoding="utf-8")), STRUCK_OUT)
    for path in files_of(folder, "*.json", "*.md", "*.html", "*.tar"):
        names[hashlib.sha256(path.read_bytes()).hexdigest()] = f"<digest of {path.name}>"
        if path.name in VARYING_RECORDS or path.parent.parent.name == "log":
            record = json.loads(path.read_text(encoding="utf-8"))
            names[record["digest"].removeprefix("sha256:")] = f"<digest in {path.name}>"
    return names


def files_of(folder: Path, *patterns: str) -> list[Path]:
    """Return the files below a folder that users keep, in order."""
    found = {path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()}
    return sorted(path for path in found if "jobs" not in path.relative_to(folder).parts)


def take(case: str, commands: str, *, work: Path, out: Path) -> None:
    """Run the commands of a case, one a line, and write its snapshot."""
    started = time.monotonic()
    place = work / case
    place.mkdir()
    terminal, codes = [], []
    for line in commands.strip().splitlines():
        runs = sorted(place.glob("runs/*/*"))
        words = line.replace("CASE", case).replace("RUN", str(runs[0]) if runs else "no-run").split()
        done = paritygate(words, work)
        codes.append(done.returncode)
        terminal.append(f"$ convert-and-validate {' '.join(words)}\n{done.stdout}")
        terminal.append(f"--- standard error\n{done.stderr}--- exit code {done.returncode}\n\n")
    names = names_in(place, work)
    snapshot = out / case
    snapshot.mkdir(parents=True)
    (snapshot / "terminal.txt").write_text(strike_out_text("".join(terminal), names), encoding="utf-8")
    listed = "".join(f"{path.relative_to(place)}\n" for path in files_of(place, "*"))
    (snapshot / "files.txt").write_text(strike_out_text(listed, names), encoding="utf-8")
    for path in files_of(place, "*.json", "*.md"):
        kept = snapshot / strike_out_text(str(path.relative_to(place)), names).replace("<run>", "RUN")
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(strike_out(path, names), encoding="utf-8")
    print(f"{case}: exit codes {codes}, {time.monotonic() - started:.0f} s", flush=True)


def help_commands(work: Path) -> str:
    """Return the commands that print all helps."""
    listed = paritygate(["--help"], work).stdout.partition("Commands:")[2]
    return "\n".join(["--help", *(f"{name} --help" for name in re.findall(r"^  (\S+) ", listed, re.MULTILINE))])


def take_all(names: Sequence[str], out: Path) -> None:
    """Take the snapshots of all cases, side by side, each lane on a core of its own."""
    cores: queue.Queue[int] = queue.Queue()
    for core in sorted(os.sched_getaffinity(0))[:LANES]:
        cores.put(core)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name).resolve()
        write_inputs(work)
        with ThreadPoolExecutor(cores.qsize(), initializer=lambda: os.sched_setaffinity(0, {cores.get()})) as lanes:
            cases = {**CASES, "help": help_commands(work)}
            taken = [lanes.submit(take, name, cases[name], work=work, out=out) for name in names or cases]
            for one in taken:
                one.result()


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the folder anew and take the snapshots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--case", action="append", help="Only this one; may be repeated.")
    options = parser.parse_args(arguments)
    out: Path = options.out
    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        sys.exit(f"{out} holds what this script did not write: name another folder, or remove it")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / MARK).touch()
    take_all(options.case or (), out)


if __name__ == "__main__":
    main()
