"""The recipes of shards: the shell of each runs with the variables that its system sets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from tests.ci.test_ci_files import GITHUB_SHELL, environment
from tests.pipelines.conftest import Desk

_SHARDS = 2
_INPUTS = ("reference", "model-fp16.onnx", "inputs.npz")
# Submits a script as `sbatch` does: here it runs at once, with the variables of each task.
_SBATCH = r"""#!/bin/bash
set -eu
options=() ; while [[ "$1" == --* ]]; do options+=("$1"); shift; done
echo "${options[*]}" >> "$SUBMITTED"
for option in "${options[@]}"; do
  case "$option" in --array=*) tasks=$(seq ${option#--array=1-});; esac
done
for task in ${tasks-}; do
  SLURM_JOB_ID=5$task SLURM_ARRAY_TASK_ID=$task bash "$@" >&2
done
if test -z "${tasks-}"; then SLURM_JOB_ID=9 bash "$@" >&2; fi
echo "5;cluster"
"""


def _inputs(folder: Path) -> Path:
    """Write a recording, a candidate and samples of three batches."""
    desk = Desk(folder=folder)
    desk.onnx("model.onnx")
    desk.onnx("model-fp16.onnx")
    model = onnx.load(str(folder / "model-fp16.onnx"))
    model.doc_string = "another file"
    onnx.save(model, str(folder / "model-fp16.onnx"))
    np.savez(folder / "inputs.npz", x=np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32))
    recorded = desk.call(
        "record", "model.onnx", "--samples", "inputs.npz", "--batch-size", "8", "--out", str(folder / "reference")
    )
    assert recorded.code == 0, recorded
    return folder


def _machine(folder: Path, inputs: Path) -> Path:
    folder.mkdir()
    for name in _INPUTS:
        (shutil.copytree if (inputs / name).is_dir() else shutil.copy2)(inputs / name, folder / name)
    return folder


def _ran(command: Sequence[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        command, cwd=folder, env=environment(**variables), check=False, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    return ran


def _check_result(path: Path) -> None:
    result: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert (result["verdict"], result["rows"]) == ("pass", 40)


@pytest.mark.thorough
def test_the_array_of_slurm_measures_each_shard_and_merges_after_it(tmp_path: Path, project_root: Path) -> None:
    folder, tools = _inputs(tmp_path), tmp_path / "tools"
    tools.mkdir()
    (tools / "sbatch").write_text(_SBATCH, encoding="utf-8")
    (tools / "sbatch").chmod(0o755)
    variables = environment(SHARDS=str(_SHARDS), PARTS="parts", SUBMITTED=str(tmp_path / "submitted"))
    script = ["bash", str(project_root / "ci/slurm.sh"), *_INPUTS[:2], "--samples", _INPUTS[2], "--batch-size", "8"]
    path = f"{tools}{os.pathsep}{variables['PATH']}"

    subprocess.run([*script, "--precision", "fp16"], cwd=folder, env={**variables, "PATH": path}, check=True)

    _check_result(folder / "parts/result.json")
    submitted = (tmp_path / "submitted").read_text(encoding="utf-8").splitlines()
    assert submitted == [f"--parsable --array=1-{_SHARDS}", "--dependency=afterok:5"]


@pytest.mark.thorough
def test_the_indexed_job_of_kubernetes_measures_each_shard_and_merges_after_it(
    tmp_path: Path, project_root: Path
) -> None:
    folder = _inputs(tmp_path)
    jobs = list(yaml.safe_load_all((project_root / "ci/kubernetes.yaml").read_text(encoding="utf-8")))
    (shard,), (merge,) = (job["spec"]["template"]["spec"]["containers"] for job in jobs)
    # As many shards as pods.
    (own,) = shard["env"]
    assert {jobs[0]["spec"][name] for name in ("completions", "parallelism")} == {int(own["value"])}

    for index in range(_SHARDS):
        _ran(shard["command"], folder, JOB_COMPLETION_INDEX=str(index), SHARDS=str(_SHARDS))
    _ran(merge["command"], folder)

    _check_result(folder / "parts/result.json")


def _value(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"${{{{ {name} }}}}", value)
    assert "${{" not in text
    return text


@pytest.mark.thorough
def test_the_matrix_of_github_measures_each_shard_and_merges_after_it(tmp_path: Path, project_root: Path) -> None:
    jobs = yaml.safe_load((project_root / "ci/github-shards.yml").read_text(encoding="utf-8"))["jobs"]
    (tmp_path / "inputs").mkdir()
    inputs, gathered = _inputs(tmp_path / "inputs"), tmp_path / "merge/parts"
    gathered.mkdir(parents=True)
    (measure,) = (step for step in jobs["shard"]["steps"] if step.get("name") == "Measure the shard")
    (upload,) = (step for step in jobs["shard"]["steps"] if "upload-artifact" in step.get("uses", ""))
    (merge,) = (step for step in jobs["merge"]["steps"] if step.get("name") == "Merge the parts")
    assert jobs["shard"]["strategy"]["matrix"]["shard"] == list(range(1, 8))

    for shard in range(1, _SHARDS + 1):
        values = {"matrix.shard": str(shard), "strategy.job-total": str(_SHARDS)}
        machine = _machine(tmp_path / f"machine-{shard}", inputs)
        variables = {name: _value(text, values) for name, text in measure["env"].items()}
        _ran([*GITHUB_SHELL, measure["run"]], machine, **variables)
        shutil.copy2(machine / _value(upload["with"]["path"], values), gathered)
    # It has the parts alone.
    _ran([*GITHUB_SHELL, merge["run"]], gathered.parent)

    _check_result(gathered.parent / "result.json")
