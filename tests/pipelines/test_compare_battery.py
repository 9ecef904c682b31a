"""Pairs of models with a known, planted or really produced conversion fault, and innocent rewrites."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench


def _names() -> list[str]:
    folder = Path(os.environ.get("PARITYGATE_TEST_DATA") or "absent") / "battery"
    return sorted(path.parent.name for path in folder.glob("*/meta.json"))


def _decision(rule: dict[str, Any]) -> str:
    text = "argmax" if rule["type"] == "argmax" else f"{rule['type']}={rule['threshold']:g}"
    return f"{rule['output']}:{text}"


def _compare(bench: Bench, pair: Path) -> tuple[int, str, str]:
    meta = json.loads((pair / "meta.json").read_text())
    outcome = bench.compare(
        str(pair / "reference.onnx"),
        str(pair / "candidate.onnx"),
        *("--samples", str(pair / "inputs.npz")),
        *("--precision", meta["declared_precision"]),
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

    code, verdict, out = _compare(bench, battery / name)

    assert (code, verdict) == ({"pass": 0, "fail": 1}[expected], expected), out


def test_a_pair_gets_the_same_verdict_in_a_child_process(isolated_bench: Bench, battery: Path) -> None:
    assert _compare(isolated_bench, battery / "intermittent_rows")[:2] == (1, "fail")
