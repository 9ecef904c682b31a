"""Converts, judges and checks many architectures: `python benchmarks/zoo/zoo.py --out build/zoo [CASE ...]`.

A case is converted and judged by the command `run` of paritygate. `check.py`, which uses nothing of paritygate, says
which of the files are right. `faults.py` then plants faults into the ONNX file, each of which `compare` has to find.
Every case ends in one line of `results.jsonl`; cases that have one are skipped, so that a run that was broken off goes
on. `SHARD=1/4` in the environment takes every fourth case, the first one first. `table.py` makes docs/zoo.md of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases import CASES

if TYPE_CHECKING:
    from case import Case

HERE = Path(__file__).resolve().parent
TIME_LIMIT = 3600.0
FAULTS = ("structural", "rare", "outside")


class StepError(Exception):
    """A step of a case did not come to an end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is asked of every case: only these targets if any, which probes, which faults, and on which device."""

    targets: Sequence[str]
    probes: str
    faults: Sequence[str]
    device: str


def environment() -> dict[str, str]:
    """Return what child processes are given: the zoo on the path, and no network."""
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "passive"}


def python(*arguments: str, folder: Path, log: str) -> subprocess.CompletedProcess[str]:
    """Run a step; what it says goes to a log in the folder of the case."""
    command, settings = [sys.executable, *arguments], {"cwd": folder, "env": environment(), "timeout": TIME_LIMIT}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    (folder / f"{log}.log").write_text(done.stdout + done.stderr)
    return done


def paritygate(command: str, folder: Path, log: str) -> subprocess.CompletedProcess[str]:
    """Run a command of paritygate."""
    return python("-m", "paritygate", *command.split(), "--quiet", folder=folder, log=log)


def answer_of(done: subprocess.CompletedProcess[str]) -> Any:
    """Return the JSON object that a script of the zoo printed last."""
    if done.returncode:
        raise StepError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def write_spec(case: Case, targets: Sequence[str], declared: Mapping[str, Any], folder: Path) -> None:
    """Write the spec of a case, and the module that names its model."""
    (folder / "zoo_case.py").write_text(f'from cases import CASES\n\nmodel = CASES["{case.name}"].build\n')
    sizes = {"batch": (1, 16), **case.sizes}
    used = {dim for drawn in case.inputs.values() for dim in drawn.shape.split()}
    spec = {
        "model": {
            "name": case.name,
            "source": "zoo_case:model",
            **declared,
            "dims": {name: {"min": least, "max": most} for name, (least, most) in sizes.items() if name in used},
        },
        "samples": {"source": "samples.npz"},
        "targets": list(targets),
        "required": ["onnx-fp32"],
        **case.spec,
    }
    (folder / "spec.yaml").write_text(json.dumps(spec, indent=1))


def judge(folder: Path, asked: Asked) -> dict[str, Any]:
    """Run the spec, and return what became of each variant."""
    options = f"--device {asked.device}" + ("" if asked.probes == "all" else f" --probes {asked.probes}")
    done = paritygate(f"run spec.yaml --no-promote --root root --json run.json {options}", folder, "run")
    written = folder / "run.json"
    run = json.loads(written.read_text())["runs"][0] if written.exists() else {}
    if "variants" not in run:
        msg = f"run: exit code {done.returncode}: {done.stderr.strip()[-600:]}"
        raise StepError(msg)
    variants = {name: verdict_of(result) for name, result in run["variants"].items() if result}
    variants |= {f"{name} (emulated)": verdict_of(result) for name, result in run["emulated"].items() if result}
    for name, failure in run["failures"].items():
        variants[name] = {"verdict": "not converted", "why": failure["message"][:600]}
    return {"exit_code": run["exit_code"], "folder": run["run"], "variants": variants}


def verdict_of(result: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict of a comparison, why it is not a pass, what was found at the edge, and what it leaves open."""
    wrong = [
        f"{check['name']}{'' if check['output'] is None else ' of ' + check['output']}: {check['detail']}"
        for check in result["checks"]
        if check["status"] in ("fail", "error", "inconclusive")
    ]
    error = result.get("error")
    return {
        "verdict": result["verdict"],
        "why": "; ".join(wrong)[:600] or (str(error)[:600] if error else ""),
        "edge": [finding["edge"] for finding in result["edge_findings"]],
        "not_covered": [note for probe in result["probes"]["asked"].values() for note in probe["notes"]],
    }


def run_case(case: Case, folder: Path, asked: Asked) -> dict[str, Any]:
    """Take a case through all steps, and return its line."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    line: dict[str, Any] = {"case": case.name, "family": case.family, "probes": asked.probes, "variants": {}}
    started = time.monotonic()
    targets = [name for name in case.targets if not asked.targets or name in asked.targets]
    check = (str(HERE / "check.py"), case.name)
    try:
        declared = answer_of(python(*check, "--declare", "--samples", "samples.npz", folder=folder, log="declare"))
        write_spec(case, targets, declared, folder)
        judged = judge(folder, asked)
        line["variants"] = judged["variants"]
        made = {name: Path(judged["folder"]) / name for name in targets if (Path(judged["folder"]) / name).is_dir()}
        files = [f"{name}={path}" for name, path in made.items()]
        checked = answer_of(python(*check, *files, "--device", asked.device, folder=folder, log="check"))
        for name, found in checked.items():
            line["variants"].setdefault(name, {"verdict": "no result"})["checked"] = found
        if "onnx-fp32" in made:
            model = made["onnx-fp32"] / "model.onnx"
            line["operators"] = answer_of(
                python(str(HERE / "faults.py"), "operators", str(model), folder=folder, log="operators")
            )
            line["faults"] = {name: plant(case, name, model, folder, asked.device) for name in asked.faults}
    except (StepError, subprocess.TimeoutExpired) as error:
        line["error"] = str(error)[:800]
    line["seconds"] = round(time.monotonic() - started)
    return line


def plant(case: Case, fault: str, model: Path, folder: Path, device: str) -> dict[str, Any]:
    """Plant a fault into a right ONNX file, and return what `compare` says of it."""
    planted = folder / f"{fault}.onnx"
    try:
        said: dict[str, Any] = answer_of(
            python(str(HERE / "faults.py"), fault, str(model), str(planted), case.name, folder=folder, log=fault)
        )
    except StepError as error:
        return {"verdict": "not planted", "what": str(error)[-300:]}
    if "what" not in said or not planted.exists():
        return {"verdict": "not planted", **said}
    result = folder / f"{fault}.json"
    sides = f"{model.relative_to(folder)} {fault}.onnx"
    options = f"--samples samples.npz --device {device} --json {fault}.json"
    done = paritygate(f"compare {sides} {options}", folder, f"compare-{fault}")
    if not result.exists():
        return {**said, "verdict": "no result", "why": done.stderr.strip()[-400:]}
    return {**said, **verdict_of(json.loads(result.read_text()))}


def outcome(line: dict[str, Any]) -> str:
    """Say in one line what came of a case."""
    parts = [f"{line['case']:<22} {line['seconds']:>5} s"]
    if "error" in line:
        parts.append(f"BROKE OFF: {line['error'][:200]}")
    for name, variant in line["variants"].items():
        checked = variant.get("checked", {}).get("state", "-")
        parts.append(f"{name}: {variant['verdict']}/{checked}")
    parts += [f"{name} fault: {found['verdict']}" for name, found in line.get("faults", {}).items()]
    return "  ".join(parts)


def chosen(names: Sequence[str]) -> list[Case]:
    """Return the cases of this shard, in the order of the table."""
    cases = [CASES[name] for name in names] if names else list(CASES.values())
    part, _, parts = os.environ.get("SHARD", "1/1").partition("/")
    return cases[int(part) - 1 :: int(parts)]


def main() -> None:
    """Run what was asked for and is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--out", type=Path, default=Path("build/zoo"))
    parser.add_argument("--targets", help="only these of the targets of a case, such as onnx-fp32,openvino-fp32")
    parser.add_argument("--probes", default="all", help="as `run` takes it; all if absent")
    parser.add_argument("--faults", default=",".join(FAULTS), help="the faults to plant; none if empty")
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cpu", help="where the files answer; cpu if absent"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folders of cases, which are large")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = arguments.out.resolve() / "results.jsonl"
    done = {json.loads(line)["case"] for line in results.read_text().splitlines()} if results.exists() else set()
    asked = Asked(
        targets=arguments.targets.split(",") if arguments.targets else (),
        probes=arguments.probes,
        faults=list(filter(None, arguments.faults.split(","))),
        device=arguments.device,
    )
    for case in chosen(arguments.cases):
        if case.name in done:
            continue
        folder = arguments.out.resolve() / case.name
        line = run_case(case, folder, asked)
        with results.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        print(outcome(line), flush=True)
        if not arguments.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
