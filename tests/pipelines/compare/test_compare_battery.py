"""Pairs of models with a known, planted or really produced conversion fault, and equivalent rewrites."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench


def _names() -> list[str]:
    folder = Path(os.environ.get("PARITYGATE_TEST_DATA") or "absent") / "battery"
    return sorted(path.parent.name for path in folder.glob("*/meta.json"))


def _decision(rule: dict[str, Any]) -> str:
    text = "argmax" if rule["type"] == "argmax" else f"{rule['type']}={rule['threshold']:g}"
    return f"{rule['output']}:{text}"


# Cases that reach what ordinary inputs do not: empty and left-padded masks, rare rows, lengths beyond the usual.
_RARE = re.compile(r"_empty|_left|_rare|(^|_)s(33|48|64)(_|$)")
_LARGE = 32
# Faults that show, beyond the ordinary samples, only where no sample is: these are out-of-sample findings.
_ONLY_AT_EDGE = {
    "floordiv_truncates": "values of delta_days beyond those seen",
    "fp16_rare_overflow": "infinity in x",
    "nan_clipped_to_bound": "NaN in x",
}


def _ordinary(bench: Bench, pair: Path) -> str:
    """Write the ordinary cases of a pair alone, and return the path."""
    with np.load(pair / "inputs.npz") as found:
        arrays = {key: found[key] for key in found.files}
    cases = {key.rpartition("/")[0] for key in arrays}
    kept = {
        case
        for case in cases
        if case != "naive"
        and not _RARE.search(case)
        and all(len(array) < _LARGE for key, array in arrays.items() if key.rpartition("/")[0] == case)
    }
    # A pair that is about rows near the threshold has no others.
    kept = kept or cases - {"naive"}
    return bench.npz("ordinary.npz", {key: array for key, array in arrays.items() if key.rpartition("/")[0] in kept})


def _compare(
    bench: Bench, pair: Path, *options: str, samples: str | None = None, precision: str | None = None
) -> tuple[int, str, str]:
    meta = json.loads((pair / "meta.json").read_text())
    outcome = bench.compare(
        str(pair / "reference.onnx"),
        str(pair / "candidate.onnx"),
        *("--samples", samples or str(pair / "inputs.npz")),
        *options,
        *("--precision", precision or meta["declared_precision"]),
        *("--decision", _decision(meta["label_rule"])),
        *("--repeat", str(meta["repeat"])),
    )
    return outcome.code, outcome.result["verdict"], outcome.out


def test_the_battery_holds_pairs_of_both_kinds(battery: Path) -> None:
    expected = [json.loads(path.read_text())["expected"] for path in battery.glob("*/meta.json")]

    assert len(expected) >= 24
    assert set(expected) == {"pass", "fail"}


@pytest.mark.parametrize("name", _names())
def test_a_pair_gets_the_verdict_that_is_known_for_it(bench: Bench, battery: Path, name: str) -> None:
    expected = json.loads((battery / name / "meta.json").read_text())["expected"]

    # The cases reach what is to be found: probes are another matter.
    code, verdict, out = _compare(bench, battery / name)

    assert (code, verdict) == ({"pass": 0, "fail": 1}[expected], expected), out


# Faults that are smaller than what rounding to the precision may do: an approximated GELU, a rare row of an embedding,
# and a model that was rounded to BF16 in silence, which is a right one where BF16 is declared.
_WITHIN = {
    ("gelu_tanh_for_erf", "fp16"),
    ("gelu_tanh_for_erf", "bf16"),
    ("bf16_silent_downgrade", "bf16"),
    ("rare_token_row_lost", "bf16"),
}


@pytest.mark.parametrize("precision", ["fp16", pytest.param("bf16", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", _names())
def test_a_fault_is_caught_in_a_precision_below_its_own_too(
    bench: Bench, battery: Path, name: str, precision: str
) -> None:
    meta = json.loads((battery / name / "meta.json").read_text())
    if (meta["declared_precision"], meta["expected"]) != ("fp32", "fail"):
        pytest.skip("no fault of a pair in FP32")

    code, _, out = _compare(bench, battery / name, precision=precision)

    assert code == (0 if (name, precision) in _WITHIN else 1), out


@pytest.mark.usefixtures("asks_probes")
@pytest.mark.parametrize("edge", [pytest.param("fail", marks=pytest.mark.thorough), "warn"])
@pytest.mark.parametrize("name", _names())
def test_a_pair_gets_its_verdict_with_ordinary_samples_alone_and_probes(
    bench: Bench, battery: Path, name: str, edge: str
) -> None:
    expected = json.loads((battery / name / "meta.json").read_text())["expected"]

    code, verdict, out = _compare(bench, battery / name, "--edge", edge, samples=_ordinary(bench, battery / name))

    is_told = edge == "warn" and name in _ONLY_AT_EDGE
    wanted = "pass" if is_told else expected
    assert (code, verdict) == ({"pass": 0, "fail": 1}[wanted], wanted), out
    told = re.findall(
        r"^out-of-sample finding: probe_\w+: (.*?), unlike every sample: outputs differ", out, re.MULTILINE
    )
    assert told == [_ONLY_AT_EDGE[name]] if is_told else expected == "fail" or not told


def test_a_pair_gets_the_same_verdict_in_a_child_process(isolated_bench: Bench, battery: Path) -> None:
    assert _compare(isolated_bench, battery / "intermittent_rows")[:2] == (1, "fail")


def _is_caught_naively(pair: Path) -> bool:
    """Return whether one random input tells the models apart, outputs by position, as a first script would."""
    import onnxruntime

    samples = np.load(pair / "inputs.npz")
    feed = {name.partition("/")[2]: samples[name] for name in samples.files if name.startswith("naive/")}
    sides = [onnxruntime.InferenceSession(pair / f"{side}.onnx").run(None, feed) for side in ("reference", "candidate")]
    return not all(np.allclose(actual, expected, rtol=1e-3, atol=1e-3) for expected, actual in zip(*sides, strict=True))


@pytest.mark.thorough
def test_the_page_on_probes_shows_what_each_gate_catches(bench: Bench, battery: Path, project_root: Path) -> None:
    caught = {"naive": {"pass": 0, "fail": 0}, "ordinary": {"pass": 0, "fail": 0}}
    there = {"pass": 0, "fail": 0}
    for name in _names():
        expected = json.loads((battery / name / "meta.json").read_text())["expected"]
        samples = _ordinary(bench, battery / name)
        caught["naive"][expected] += _is_caught_naively(battery / name)
        caught["ordinary"][expected] += _compare(bench, battery / name, samples=samples)[0] != 0
        there[expected] += 1
    table = (project_root / "docs/results-gates.md").read_text(encoding="utf-8").partition("| faults caught of 17 |")[2]
    row = re.compile(r"\| (\d+)(?: or \d+)? \| (\d+) \| (\d+) \|$", re.MULTILINE)
    shown = [tuple(map(int, figures)) for figures in row.findall(table)][:4]
    # One fault comes and goes: few rows, run three times, do not always meet it.
    caught["ordinary"]["fail"] = min(caught["ordinary"]["fail"], 12)

    # With probes every pair gets its verdict or its finding, as the test above holds.
    warned = len(_ONLY_AT_EDGE)
    assert shown == [*((counts["fail"], 0, counts["pass"]) for counts in caught.values()),
                     (there["fail"] - warned, warned, 0), (there["fail"], 0, 0)]  # fmt: skip
