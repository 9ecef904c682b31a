"""The fastest architectures of `benchmarks/zoo`, through the whole of a run."""

from __future__ import annotations

import importlib
import json
import warnings
from pathlib import Path
from types import ModuleType

import pytest

from paritygate.__main__ import _run

pytestmark = [pytest.mark.thorough, pytest.mark.torch, pytest.mark.openvino]

TARGETS = ("onnx-fp32", "onnx-fp16", "openvino-fp32")
PLAIN = (
    "dlrm",
    "deepfm",
    "tabnet",
    "tab-transformer",
    "viterbi",
    "n-beats",
    "neural-ode",
    "gat",
    "capsules",
    "bucketed-risk",
)
TRANSFORMERS = ("patchtst", "vit")


@pytest.fixture
def check(zoo_on_path: None) -> ModuleType:
    del zoo_on_path
    return importlib.import_module("check")


@pytest.mark.parametrize("name", [*PLAIN, *TRANSFORMERS])
def test_an_architecture_converts_passes_and_is_right(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    if name in TRANSFORMERS:
        pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    runner, case = importlib.import_module("zoo"), check.CASES[name]
    check.write_samples(case, Path("samples.npz"))
    declared = importlib.import_module("source").declared(case, case.build())
    runner.write_spec(case, TARGETS, declared, tmp_path)
    # What tracing warns of is the model's, not ours.
    with warnings.catch_warnings(action="ignore"):
        code = _run(["run", "spec.yaml", "--no-promote", "--root", "root", "--json", "run.json", "--quiet"])
    run = json.loads(Path("run.json").read_text())["runs"][0]
    seen = {variant: runner.verdict_of(result) for variant, result in run["variants"].items()}
    assert {variant: (result["verdict"], result["why"]) for variant, result in seen.items()} == dict.fromkeys(
        TARGETS, ("pass", "")
    )
    assert code == 0
    files = {target: Path(run["run"]) / target for target in TARGETS}
    assert {target: found["state"] for target, found in check.check(case, files).items()} == dict.fromkeys(
        TARGETS, "right"
    )
