"""The packaged specs of sentence pairs on the official ones; on the generated ones the README's own commands run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paritygate.__main__ import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.children,
    pytest.mark.torch,
    pytest.mark.tensorflow,
]

# What the README's commands and `make demo` make of them, and ask them, is not done again.
_OPTIONS = {
    "klue-sts": ("--target", "onnx-fp32", "--probes", "none"),
    "klue-sts-tf": ("--target", "onnx-fp32", "--target", "tflite-fp32", "--probes", "none"),
}


def _run(folder: Path, spec: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> list[dict[str, object]]:
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        main(["run", spec, "--quiet", "--json", "result.json", *options])
    result = json.loads((folder / "result.json").read_text())
    assert ended.value.code == result["exit_code"] == 0
    runs: list[dict[str, object]] = result["runs"]
    return runs


def _assert_all_pass(runs: list[dict[str, object]]) -> None:
    for run in runs:
        variants = run["variants"]
        assert isinstance(variants, dict)
        # The others are in lower precisions, or ask for a processor or a package of their own.
        for name in run["required"]:  # type: ignore[attr-defined]  # JSON data
            result = variants[name]
            assert (name, result["verdict"], result["rows"]) == (name, "pass", 519)
            decision = result["decisions"]["logits"]
            # A decision that nearly always falls the same way says little about parity.
            assert min(decision["classes"].values()) > 0.05 * 519
            assert decision["mismatch_rate_upper_95"] == pytest.approx(1 - 0.05 ** (1 / 519))


@pytest.mark.parametrize("spec", ["klue-sts", pytest.param("klue-sts-tf", marks=pytest.mark.thorough)])
@pytest.mark.thorough
def test_the_model_passes_on_the_official_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, klue_sts_file: Path, spec: str
) -> None:
    options = (*_OPTIONS[spec], "--no-promote", "--no-benchmark", "--samples", str(klue_sts_file))
    runs = _run(tmp_path, spec, monkeypatch, *options)

    _assert_all_pass(runs)
    for run in runs:
        for result in filter(None, run["variants"].values()):  # type: ignore[attr-defined]  # JSON data
            assert set(result["strata"]["source"]) >= {"airbnb-rtt", "policy-rtt"}
    assert not (tmp_path / "artifacts/repository").exists()
