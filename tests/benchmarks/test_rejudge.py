from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.syspath_prepend(project_root / "benchmarks")
    return importlib.import_module


@pytest.fixture
def stored(project_root: Path) -> Path:
    return project_root / "benchmarks" / "limits" / "pairs.npz"


def test_stored_pairs_come_out_as_they_should(load: Load, stored: Path) -> None:
    rejudge, pairs = load("rejudge"), [*load("limits.pairs").read_pairs(stored)]
    found = [*rejudge.judged(pairs)]
    sys.stdout.write("\n".join(rejudge.right_table(pairs, found)))
    assert {item.name: (item.verdict, item.checks) for item in found if item.verdict != item.wanted} == {}


def test_shares_of_the_spread_are_measured_at_every_precision(load: Load, stored: Path) -> None:
    spread_shares, pairs = load("spread_shares"), [*load("limits.pairs").read_pairs(stored)]
    right = [pair for pair in pairs if pair.verdict == "pass"]
    for precision in ("fp32", "fp16", "bf16", "int8"):
        rows = [row for pair in right if pair.precision == precision for row in spread_shares.rows_of(pair)]
        sys.stdout.write("\n".join(["", precision, *spread_shares.table(rows)]))
        assert rows


@pytest.mark.thorough
def test_right_heads_of_every_kind_pass_in_fp32(load: Load, tmp_path: Path) -> None:
    rejudge, make_pairs, heads = load("rejudge"), load("make_pairs"), load("limits.heads").HEADS
    pairs = []
    for name in heads:
        folder = tmp_path / name
        folder.mkdir()
        pairs += make_pairs.pairs_of(name, make_pairs.source_of(name, folder, 5), ["unoptimised"])
    found = [*rejudge.judged(pairs)]
    sys.stdout.write("\n".join(rejudge.right_table(pairs, found)))
    # Sigmoids differ by about as much as answers near a millionth vary.
    wrong = {item.name: item.checks for item in found if item.verdict != "pass" and "click-1e-6" not in item.name}
    assert wrong == {}
    assert len({pair.model for pair in pairs}) == len(heads)


def test_stored_pairs_are_of_every_precision_and_verdict(load: Load, stored: Path) -> None:
    pairs = [*load("limits.pairs").read_pairs(stored)]
    assert len({pair.name for pair in pairs}) == len(pairs) == 60
    verdicts = Counter((pair.precision, pair.verdict) for pair in pairs)
    assert all(verdicts[precision, "pass"] >= 4 for precision in ("fp32", "fp16", "bf16", "int8"))
    assert all(verdicts[precision, "fail"] >= 1 for precision in ("fp32", "fp16", "bf16", "int8"))


# Of all there are, a part: these numbers have nothing in common with how many there are of a kind.
@pytest.mark.parametrize("every", [37, pytest.param(11, marks=pytest.mark.thorough)])
def test_planted_faults_of_every_size_are_seen(load: Load, every: int) -> None:
    rejudge = load("rejudge")
    pairs = [*load("limits.planted").faulty_pairs()][::every]
    found = [*rejudge.judged(pairs)]
    sys.stdout.write("\n".join(rejudge.fault_table(found)))
    assert {item.name for item in found if item.verdict not in {"fail", "inconclusive"}} == set()
    undecided = {pair.name for pair, item in zip(pairs, found, strict=True) if item.verdict == "inconclusive"}
    # Four steps of FP16 near zero are 2.4e-7.
    assert {name for name in undecided if "-fp16" not in name or float(name.split("-rank")[0][-5:]) > 1e-6} == set()


def test_the_same_version_changes_no_verdict(
    load: Load, stored: Path, tmp_path: Path, project_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejudge, of_pairs = load("rejudge"), load("limits.pairs")
    few, verdicts = tmp_path / "few.npz", tmp_path / "verdicts.json"
    of_pairs.write_bundle([*of_pairs.read_pairs(stored)][:3], few)
    arguments = ["--right-only", "--against", str(project_root), "--json", str(verdicts)]
    monkeypatch.setattr(sys, "argv", ["rejudge.py", str(few), *arguments])
    assert rejudge.main() == 0
    data = json.loads(verdicts.read_text())
    assert [item["name"] for item in data["now"]] == [item["name"] for item in data["before"]]
    assert [item["verdict"] for item in data["now"]] == [item["verdict"] for item in data["before"]]


def test_a_verdict_that_changes_is_named(load: Load) -> None:
    rejudge = load("rejudge")
    before, now = (
        [rejudge.Judged(name=name, verdict=verdict, wanted="pass", checks=[]) for name, verdict in verdicts]
        for verdicts in ((("same", "pass"), ("mended", "fail")), (("same", "pass"), ("mended", "pass")))
    )
    assert [line.partition(":")[0] for line in rejudge.changes(now, before)] == ["mended"]
