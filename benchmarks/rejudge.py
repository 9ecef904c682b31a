"""Judges stored answers by the rules of two versions, and prints every verdict that changes.

`python benchmarks/rejudge.py PAIRS [--against CHECKOUT] [--json FILE]`: PAIRS is a folder of pairs, each an npz file as
`benchmarks/make_pairs.py` writes it. By the rules of this checkout they are judged here; by those of another one
in a process of its own. Without `--against`, what is other than the pair's own expected verdict is printed alone. Two
tables follow: faults that have to fail at every precision, and right candidates that have to pass.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from limits.pairs import Arrays, Pair, read_pairs
from limits.planted import FAULTS, faulty_pairs
from msgspec.structs import replace

from paritygate.batch import Batch
from paritygate.errors import ParitygateError
from paritygate.precision import Precision
from paritygate.validate.gate.candidate import RecordedCandidate
from paritygate.validate.gate.gate import run_gate
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure import profile
from paritygate.validate.measure.check import Check, Status, verdict_of
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.reference import noise_floor
from paritygate.validate.reference.noise_floor import NoiseFloor, largest_difference
from paritygate.validate.reference.recorded import ExpectedOutputs, RecordedOutputs, expected_from_file

# A version before noise was measured of these has neither.
with_noise = getattr(noise_floor, "with_noise", None)
typical_difference = getattr(noise_floor, "typical_difference", None)
with_activation_floors = getattr(profile, "with_activation_floors", None)
# So many rows of the reference are asked one at a time, and so many without optimisations and with inputs moved.
_ROWS_ALONE, _ROWS_AGAIN = 16, 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """What came of a pair.

    Attributes:
        name: The pair's name.
        verdict: The verdict.
        wanted: The one that it should have.
        checks: Of each check that did not pass, what was measured and the limit.
    """

    name: str
    verdict: str
    wanted: str
    checks: Sequence[Mapping[str, Any]]

    @property
    def is_as_wanted(self) -> bool:
        """Whether it is; a fault that cannot be judged has not passed, and that is as well."""
        return self.verdict == self.wanted or (self.wanted == "fail" and self.verdict == "inconclusive")


def judge(pair: Pair, folder: Path) -> Judged:
    """Judge a pair as `compare` judges two files of recorded outputs."""
    sides = {"expected": folder / "expected.npz", "actual": folder / "actual.npz"}
    for side, path in sides.items():
        np.savez(path, **getattr(pair, side))
    rows = len(next(iter(pair.expected.values())))
    batch = Batch(inputs={"row": np.arange(rows)}, ids=[str(row) for row in range(rows)])
    rules = GateRules(
        tolerance=DEFAULT_TOLERANCES[Precision(pair.precision)],
        decisions=tuple(parse_decision(text) for text in pair.decisions),
        is_non_finite_declared=True,
    )
    recorded = RecordedOutputs(sides["actual"], {})
    candidate = RecordedCandidate(output_names=recorded.names, open_reader=recorded.open_reader)
    try:
        expected = expected_from_file(sides["expected"], axes={}, rename={}, is_non_finite_declared=True)
        expected = _with_noise(_with_floors(expected, pair), pair)
        result = run_gate(candidate, expected, lambda: iter([batch]), rules, workspace=folder)
    except ParitygateError as err:
        return Judged(
            name=pair.name, verdict="error", wanted=pair.verdict, checks=[{"name": "error", "detail": str(err)}]
        )
    passed = {Status.PASS, Status.WARNING, Status.EDGE}
    checks = [_told(check) for check in result.checks if check.status not in passed]
    return Judged(name=pair.name, verdict=str(verdict_of(result.checks)), wanted=pair.verdict, checks=checks)


def _told(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "status": str(check.status),
        "output": check.output,
        "measured": check.measured,
        "limit": check.limit,
        "detail": check.detail,
    }


def _with_floors(expected: ExpectedOutputs, pair: Pair) -> ExpectedOutputs:
    if with_activation_floors is None:
        return expected
    return replace(expected, profiles=with_activation_floors(expected.profiles, pair.floors))


def _with_noise(expected: ExpectedOutputs, pair: Pair) -> ExpectedOutputs:
    """Return the reference with its own noise, as it is measured of so many rows where the model itself is asked."""
    if not pair.again:
        return expected
    floats = {name: found for name, found in expected.profiles.items() if found.is_float}
    zeros = {name: np.zeros(found.channels) for name, found in floats.items()}

    def differences(runs: Arrays, compare: Callable[..., Any], rows: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, array in runs.items():
            name = key.partition("/")[2]
            if name in floats:
                own = compare(array[:rows], pair.expected[name][:rows], floats[name])
                found[name] = np.maximum(found.get(name, 0.0), own)
        return found

    alone = {key: array for key, array in pair.again.items() if key.startswith("alone/")}
    plain = {key: array for key, array in pair.again.items() if key not in alone}
    noise = NoiseFloor(repeats=zeros, batches=differences(alone, largest_difference, _ROWS_ALONE), why_no_threads="")
    if with_noise is None:
        return replace(expected, noise=noise)
    noise = replace(
        noise,
        optimisations=differences(plain, largest_difference, _ROWS_AGAIN),
        roundings=differences(pair.moved, typical_difference, _ROWS_AGAIN),
    )
    return replace(expected, noise=noise, profiles=with_noise(expected.profiles, noise))


def judged(pairs: Iterable[Pair]) -> Iterator[Judged]:
    """Judge pairs one after the other."""
    with tempfile.TemporaryDirectory() as place:
        for pair in pairs:
            yield judge(pair, Path(place))


def judged_by(checkout: Path, asked: argparse.Namespace) -> list[Judged]:
    """Return what another checkout makes of the same pairs."""
    path = os.pathsep.join([str(checkout / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(Path(__file__).resolve()), str(asked.pairs), "--verdicts"]
    command += ["--right-only"] if asked.right_only else []
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{checkout} judged nothing:\n{done.stderr}")
    return [Judged(**item) for item in json.loads(done.stdout)]


def _cells(found: Judged) -> str:
    checks = [check for check in found.checks if check["status"] == "fail"] or list(found.checks)
    numbers = [
        f"{check['output'] or ''} {check['name']} {check['measured']:.3g} of {check['limit']:.3g}"
        for check in checks
        if check.get("measured") is not None and check.get("limit") is not None
    ]
    return "; ".join(numbers[:3]) or "; ".join(str(check["detail"])[:120] for check in checks[:1])


def changes(now: Sequence[Judged], before: Sequence[Judged] | None) -> Iterator[str]:
    """Yield a line for every verdict that changed, or is not the one wanted where there is nothing to compare with."""
    for at, found in enumerate(now):
        was = found.wanted if before is None else before[at].verdict
        if found.verdict != was and not (before is None and found.is_as_wanted):
            reason = _cells(found) or (_cells(before[at]) if before else "")
            mark = "" if found.is_as_wanted else " (should be " + found.wanted + ")"
            yield f"{found.name}: {was} -> {found.verdict}{mark}: {reason}"


def fault_table(found: Sequence[Judged]) -> Iterator[str]:
    """Yield the table of faults: of each, how many were seen, and the names of those that were not."""
    yield "| fault | precision | failed | inconclusive | passed | first that passed |"
    yield "|---|---|---|---|---|---|"
    for fault, what in FAULTS.items():
        for precision in what.precisions:
            of = [item for item in found if item.name.endswith(f"--{fault}-{precision}")]
            passed = [item.name.partition("--")[0] for item in of if item.verdict == "pass"]
            counts = [sum(item.verdict == verdict for item in of) for verdict in ("fail", "inconclusive")]
            yield f"| {fault} | {precision} | {counts[0]} | {counts[1]} | {len(passed)} | {', '.join(passed[:3])} |"


def right_table(pairs: Sequence[Pair], found: Sequence[Judged]) -> Iterator[str]:
    """Yield the table of right candidates: of each model, how many passed at every precision."""
    precisions = ("fp32", "fp16", "bf16", "int8")
    yield f"| model | {' | '.join(precisions)} |"
    yield f"|---|{'---|' * len(precisions)}"
    for model in dict.fromkeys(pair.model for pair in pairs):
        cells = []
        for precision in precisions:
            of = [
                item
                for pair, item in zip(pairs, found, strict=True)
                if (pair.model, pair.precision) == (model, precision)
            ]
            good = sum(item.is_as_wanted for item in of)
            cells.append(f"{good} of {len(of)}" if of else "")
        yield f"| {model} | {' | '.join(cells)} |"


def main() -> int:
    """Judge, and print; the exit code is 1 where a verdict is worse than that of the other version, or than wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path, help="a folder of pairs")
    parser.add_argument("--against", type=Path, help="another checkout of the product")
    parser.add_argument("--json", type=Path, help="where all verdicts are written")
    parser.add_argument("--right-only", action="store_true", help="judge the pairs alone, and no planted faults")
    parser.add_argument("--verdicts", action="store_true", help="print the verdicts of this version alone, as JSON")
    arguments = parser.parse_args()
    pairs = [*read_pairs(arguments.pairs)]
    faulty = [] if arguments.right_only else [*faulty_pairs()]
    now = [*judged([*pairs, *faulty])]
    if arguments.verdicts:
        print(json.dumps([asdict(item) for item in now], default=_plain))
        return 0
    before = None if arguments.against is None else judged_by(arguments.against, arguments)
    print("\n".join(changes(now, before)))
    if faulty:
        print("\nFaults: all have to fail, or to be beyond what can be judged\n")
        print("\n".join(fault_table(now[len(pairs) :])))
    print("\nPairs: how many come out as they should\n")
    print("\n".join(right_table(pairs, now[: len(pairs)])))
    if arguments.json:
        data = {"now": [asdict(item) for item in now], "before": [asdict(item) for item in before or []]}
        arguments.json.write_text(json.dumps(data, default=_plain, indent=1))
    return 1 if any(_is_worse(item, None if before is None else before[at]) for at, item in enumerate(now)) else 0


def _is_worse(found: Judged, before: Judged | None) -> bool:
    """Return whether a verdict is not the one wanted, and was before, where there is a version before."""
    return not found.is_as_wanted and (before is None or before.is_as_wanted)


def _plain(value: object) -> float:
    return float(str(value))


if __name__ == "__main__":
    sys.exit(main())
