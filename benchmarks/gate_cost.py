"""What the gate costs, stage by stage: a whole recipe beside plain inference of the same samples, in one run.

Run it with `python benchmarks/gate_cost.py bert gpt cnn distilbert`; the models are those of `gate_cost_models.py`.
Everything is in CPU seconds of this process and of all that it starts, so that a busy machine changes little, and in
multiples of one pass of PyTorch over the samples, without anything else. On an idle machine of two cores, the whole
recipe is to take 30 s for the BERT, 90 s for the decoder and 20 s for the CNN; and probes of the reference at most 4
times the samples' own pass and 5 s. The seconds of imports are a part of those of the stages.

Linux alone: what a process spent is read in /proc.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TARGETS = ("onnx-fp32", "onnx-fp16", "openvino-fp32", "torchscript-fp32")
SHAPES = {
    "bert": {
        "inputs": {
            "input_ids": {"dtype": "int64", "shape": ["batch", "sequence"]},
            "attention_mask": {"dtype": "int64", "shape": ["batch", "sequence"]},
        },
        "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 2]}},
    },
    "gpt": {
        "inputs": {"input_ids": {"dtype": "int64", "shape": ["batch", "sequence"]}},
        "outputs": {"logits": {"dtype": "float32", "shape": ["batch", "sequence", 50257]}},
    },
    "cnn": {
        "inputs": {"pixels": {"dtype": "float32", "shape": ["batch", 3, 64, 64]}},
        "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 10]}},
    },
}
SHAPES["distilbert"] = SHAPES["bert"]
AIMS = {"bert": 30.0, "gpt": 90.0, "cnn": 20.0, "distilbert": 20.0}
PROBES_TIMES, PROBES_BESIDES = 4.0, 5.0
_TICKS = os.sysconf("SC_CLK_TCK")


def family_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, of what it started that runs, and of what it waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text(encoding="utf-8").split()]
    except OSError:
        # It ended, and its parent has its seconds.
        return 0.0
    return sum(map(int, stat[11:15])) / _TICKS + sum(map(family_seconds, children))


@dataclass(kw_only=True, slots=True)
class Meter:
    """Takes down what each stage cost, from one word of progress to the next."""

    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stage: str = ""
    before: float = 0.0

    def begin(self, stage: str) -> None:
        """End the stage before, and begin this one."""
        now = family_seconds(os.getpid())
        if self.stage:
            # What ended since is counted a moment later where it was not waited for yet.
            self.spent[self.stage] += max(0.0, now - self.before)
            now = max(now, self.before)
        self.stage, self.before = stage, now

    def of(self, part: str) -> Callable[[str, int, int], None]:
        """Return what takes the progress of a part of the run."""
        self.begin(f"{part}: starting")

        def report(stage: str, _done: int, _total: int) -> None:
            # The end of one child is the beginning of the next.
            stage = re.sub(r"pass \d+ of \d+", "the samples", stage)
            if f"{part}: {stage}" != self.stage:
                self.begin(f"{part}: {stage}")

        return report


def inference_seconds(name: str, folder: Path) -> float:
    """Write the samples, and return the CPU seconds of one pass over them by PyTorch alone."""
    # Beside it here lie folders called like packages, such as triton.
    script = shutil.copy(HERE / "gate_cost_models.py", folder)
    command = [sys.executable, str(script), name, str(folder / f"{name}.npz")]
    return float(min(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)))


def write_spec(name: str, folder: Path) -> Path:
    """Write the spec of a model beside its samples, and return its path."""
    spec = {
        "model": {"name": name, "source": f"gate_cost_models:{name}", **SHAPES[name]},
        "samples": {"source": f"{name}.npz"},
        "targets": list(TARGETS),
        "required": [],
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


def watch_imports(path: Path) -> None:
    """Have the processes that are started from now on write the seconds of their imports to a file."""
    others = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(HERE / "import_seconds"), *others]))
    os.environ["IMPORT_SECONDS"] = str(path)


def import_seconds(path: Path) -> dict[str, float]:
    """Return the CPU seconds of imports in all processes, by package, the largest first."""
    spent: dict[str, float] = defaultdict(float)
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        name, seconds = json.loads(line)
        spent[name] += seconds
    return {name: round(spent[name], 2) for name in sorted(spent, key=lambda name: -spent[name])}


def measure(name: str) -> dict[str, Any]:
    """Return what each stage of a recipe costs."""
    from paritygate.pipelines.report.write import write_reports
    from paritygate.pipelines.run.export import export_stage
    from paritygate.pipelines.run.record import record_stage
    from paritygate.pipelines.run.validate import validate_stage
    from paritygate.pipelines.run.workspace import new_run
    from paritygate.pipelines.run_spec import spec_to_run

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        inference = inference_seconds(name, folder)
        spec = spec_to_run(str(write_spec(name, folder)), samples_path=None, targets=(), probes=None)
        run = new_run(spec, root=folder / "artifacts")
        watch_imports(folder / "imports.jsonl")
        meter, started = Meter(), time.monotonic()
        failures = export_stage(run, time_limit_s=3600, progress=meter.of("export"))
        record_stage(run, time_limit_s=3600, progress=meter.of("record"))
        results = validate_stage(run, time_limit_s=3600, progress=meter.of("validate"))
        meter.of("report")
        write_reports(run)
        meter.begin("end")
        wall = time.monotonic() - started
        imports = import_seconds(folder / "imports.jsonl")
    verdicts = {name: failure.message for name, failure in failures.items()}
    verdicts |= {name: result.verdict_words for name, result in results.items()}
    spent = dict(meter.spent)
    probes = sum(seconds for stage, seconds in spent.items() if stage.startswith("record: running the reference"))
    return {
        "model": name,
        "rows": max((result.rows for result in results.values()), default=0),
        "verdicts": verdicts,
        "inference_cpu_s": round(inference, 2),
        "probes_of_reference_cpu_s": round(probes, 2),
        "allowed_for_these_cpu_s": round(PROBES_TIMES * inference + PROBES_BESIDES, 2),
        "cpu_s": round(sum(spent.values()), 2),
        "wall_s": round(wall, 2),
        "imports_cpu_s": imports,
        "aim_wall_s": AIMS[name],
        "stages": {
            stage: {"cpu_s": round(seconds, 2), "passes": round(seconds / inference, 1)}
            for stage, seconds in spent.items()
        },
    }


def printed(case: dict[str, Any]) -> str:
    """Return one model's table."""
    lines = [f"{case['model']}: {case['rows']} rows, a pass of inference {case['inference_cpu_s']} s of CPU"]
    lines += [f"  {name}: {verdict}" for name, verdict in case["verdicts"].items()]
    lines += [f"  {item['cpu_s']:8.2f} s {item['passes']:7.1f} x  {stage}" for stage, item in case["stages"].items()]
    imports = case.get("imports_cpu_s", {})
    listed = ", ".join(f"{name} {seconds}" for name, seconds in itertools.islice(imports.items(), 5))
    if imports:
        lines += [f"  {sum(imports.values()):8.2f} s            of these in imports: {listed}"]
    probes, allowed = case["probes_of_reference_cpu_s"], case["allowed_for_these_cpu_s"]
    lines += [f"  {probes:8.2f} s            probes of the reference, of {allowed} s allowed"]
    lines += [f"  {case['cpu_s']:8.2f} s            all; on the clock {case['wall_s']} s, aim {case['aim_wall_s']} s"]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help=", ".join(SHAPES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if unknown := set(options.models) - set(SHAPES):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    cases = []
    for name in options.models or SHAPES:
        cases.append(measure(name))
        print(printed(cases[-1]), flush=True)
    found = {
        "benchmark": "gate_cost",
        "date": time.strftime("%Y-%m-%d"),
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "targets": list(TARGETS),
        "cases": cases,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
