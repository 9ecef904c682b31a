"""Writes docs/zoo.md from what `zoo.py` found: `python benchmarks/zoo/table.py RESULTS.jsonl --machine "2 cores"`.

Nothing is written by hand: a case that is defined but was not run stands there as not run. What the page says already
of a case that the results do not hold is kept, with a mark.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import CASES

__all__ = ["classify", "kept_of", "page"]

_NOT_CONVERTED = "not converted"


def classify(variant: Mapping[str, Any]) -> str:
    """Say what a verdict was worth, where the independent script knows better."""
    verdict, state = variant["verdict"], variant.get("checked", {}).get("state")
    if verdict == "not converted":
        return _NOT_CONVERTED
    if state is None:
        return "not checked"
    if state == "unclear":
        return "unclear"
    if verdict == "pass":
        return "right" if state == "right" else "MISS"
    # A file that is off on the very rows that it was refused for is refused rightly, however few they are.
    is_off_there = variant["checked"].get("given", "right") == "wrong"
    return "FALSE REFUSAL" if state == "right" and not is_off_there else "refused"


def found(fault: Mapping[str, Any]) -> str:
    """Say what became of a planted fault."""
    if fault["verdict"] == "not planted":
        return "not planted"
    if fault["verdict"] == "fail":
        return "caught"
    if fault["verdict"] == "pass":
        is_left_open = any("beyond those seen" in note for note in fault.get("not_covered", ()))
        return "explained" if fault.get("edge") or is_left_open else "MISS"
    return str(fault["verdict"])


def duplicates(lines: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Return the cases that have the same operators."""
    by_operators: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if line.get("operators"):
            by_operators.setdefault(tuple(line["operators"]), []).append(line["case"])
    return [names for names in by_operators.values() if len(names) > 1]


_PAGE = """# The zoo

`make zoo` runs paritygate on many architectures with random weights. An independent script, `benchmarks/zoo/check.py`,
then finds out which converted files are correct. It runs model and file on rows, sizes and numbers of rows that
paritygate never got.

Three faults are planted into each ONNX file: one structural, one in at most 5 % of the rows, and one that no row of the
samples shows. `benchmarks/zoo/table.py` wrote this page.

Defined: {defined} cases of {defined_families} families.
Run: {run} cases of {families} families, {variants} variants, in {hours:.1f} hours, on {machine}.
{earlier}
| what the verdicts were worth | variants |
|---|---|
{outcomes}

{converted}

- `right`: passed, and the script agrees
- `MISS`: passed, but wrong
- `FALSE REFUSAL`: did not pass, but correct
- `refused`: did not pass, and wrong on rows of the script or of paritygate
- `unclear`: between once and ten times the script's limit

The script's limit is 1e-4 for FP32 and 1e-2 for FP16, times max(1, the standard deviation of the output).

| planted faults | |
|---|---|
{planted}

`explained` is a pass with an out-of-sample finding for the fault, or with a note that values beyond the samples were
not compared. The faulty file is compared with the ONNX file that it came from.

Cases with the same operators: {same}.

`asked` lists the probes. Without probes, files were compared on the samples alone.

| case | family | operators | asked | variants: verdict, and what it was worth | faults | seconds |
|---|---|---|---|---|---|---|
{rows}

## What did not pass, and why

{reasons}

## Notes

{notes}

## Not run

{missing}.
"""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One case of an earlier page: its row, and the reasons of what did not pass."""

    name: str
    row: str
    reasons: list[str]

    @property
    def cells(self) -> list[str]:
        """The cells of the row."""
        return [cell.strip() for cell in self.row.strip("|").split("|")]

    @property
    def worth(self) -> list[str]:
        """What the verdicts were worth, by variant."""
        return re.findall(r"\(([^()]+)\)(?=<br>|$)", self.cells[4])

    @property
    def planted(self) -> list[str]:
        """What became of the planted faults."""
        return [part.partition(": ")[2] for part in self.cells[5].split("<br>") if part]


def kept_of(text: str) -> list[Kept]:
    """Return the cases of an earlier page."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and line.count("|") == 8]
    # Notes are written anew from the cases.
    reasons = [line for line in text.partition("\n## Notes\n")[0].splitlines() if line.startswith("- ")]
    kept = []
    for row in rows:
        name = row.split("|")[1].strip().rstrip("*")
        if name in CASES:
            own = [line for line in reasons if re.match(rf"- {re.escape(name)}[,:] ", line)]
            kept.append(Kept(name=name, row=row.replace(f"| {name} ", f"| {name}* ", 1), reasons=own))
    return kept


def page(lines: list[dict[str, Any]], machine: str, before: str = "") -> str:
    """Return docs/zoo.md; `before` is the page as it was, of which the cases are kept that were not run again."""
    # Of a case that was run again, the last line counts.
    by_case = {line["case"]: line for line in lines}
    kept = {item.name: item for item in kept_of(before) if item.name not in by_case}
    planted = [found(fault) for line in by_case.values() for fault in line.get("faults", {}).values()]
    planted += [each for item in kept.values() for each in item.planted]
    found_by_case = {
        name: [classify(variant) for variant_name, variant in line["variants"].items() if _ran(variant_name)]
        for name, line in by_case.items()
    } | {name: item.worth for name, item in kept.items()}
    worth = [each for found_there in found_by_case.values() for each in found_there]
    rows = {name: _row(line) for name, line in by_case.items()} | {name: item.row for name, item in kept.items()}
    reasons = {name: _reasons(line) for name, line in by_case.items()}
    reasons |= {name: item.reasons for name, item in kept.items()}
    seconds = sum(line["seconds"] for line in by_case.values()) + sum(int(item.cells[6]) for item in kept.values())
    earlier = f"\nAn earlier version ran the {len(kept)} cases with a *.\n" if kept else ""
    return _PAGE.format(
        defined=len(CASES),
        defined_families=len({case.family for case in CASES.values()}),
        run=len(rows),
        families=len({CASES[name].family for name in rows}),
        variants=len(worth),
        hours=seconds / 3600,
        machine=machine,
        earlier=earlier,
        outcomes=_counted(worth),
        converted=_converted(found_by_case),
        planted=_counted(planted),
        same="; ".join(", ".join(names) for names in duplicates(dict(sorted(by_case.items())).values())) or "none",
        rows="\n".join(rows[name] for name in sorted(rows)),
        reasons="\n".join(reason for name in sorted(reasons) for reason in reasons[name]) or "Everything passed.",
        notes="\n".join(_note(name, is_kept=name in kept) for name in sorted(rows) if CASES[name].note) or "None.",
        missing=", ".join(sorted(set(CASES) - set(rows))) or "None",
    )


def _counted(names: Iterable[str]) -> str:
    return "\n".join(f"| {name} | {count} |" for name, count in sorted(Counter(names).items()))


def _converted(worth: Mapping[str, list[str]]) -> str:
    """Say how much of what some exporter converts is converted."""
    unwritable = sum(found.count(_NOT_CONVERTED) for name, found in worth.items() if CASES[name].is_unwritable)
    missing = sum(found.count(_NOT_CONVERTED) for found in worth.values()) - unwritable
    possible = sum(map(len, worth.values())) - unwritable
    share = (possible - missing) / possible if possible else 1.0
    return (
        f"Of the {possible} variants that some exporter converts, paritygate converts {possible - missing} "
        f"({share:.1%}). No exporter of PyTorch converts {unwritable} more; see the notes."
    )


def _note(name: str, *, is_kept: bool) -> str:
    return f"- {name}: {CASES[name].note}{' (its row is of an earlier version of the case)' if is_kept else ''}."


def _ran(variant: str) -> bool:
    return not variant.endswith("(emulated)")


def _row(line: Mapping[str, Any]) -> str:
    variants = [
        f"{name}: {variant['verdict']}{', edge' if variant.get('edge') else ''} ({classify(variant)})"
        for name, variant in line["variants"].items()
        if _ran(name)
    ] or ["broke off"]
    faults = [f"{name}: {found(fault)}" for name, fault in line.get("faults", {}).items()]
    cells = [
        line["case"],
        line["family"],
        str(len(line.get("operators", [])) or "-"),
        line["probes"],
        "<br>".join(variants),
        "<br>".join(faults),
        str(line["seconds"]),
    ]
    return "| " + " | ".join(cells) + " |"


def _reasons(line: Mapping[str, Any]) -> list[str]:
    reasons = [f"- {line['case']}: {_plain(line['error'])}"] if "error" in line else []
    for name, variant in line["variants"].items():
        if variant["verdict"] != "pass" and _ran(name):
            reasons.append(f"- {line['case']}, {name}: {classify(variant)}: {_plain(variant.get('why', ''))}")
    for name, fault in line.get("faults", {}).items():
        if found(fault) == "MISS":
            reasons.append(f"- {line['case']}, {name} fault: MISS: {_plain(fault['what'])}")
    return reasons


def _plain(text: str) -> str:
    # A path of the machine that ran the zoo says nothing to a reader.
    words = [word if "/" not in word or word.count("/") < 3 else "..." for word in text.split()]
    return " ".join(words)[:300].replace("|", "/")


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--machine", required=True, help="what ran the zoo, in words")
    parser.add_argument("--out", type=Path, default=Path("docs/zoo.md"))
    arguments = parser.parse_args()
    lines = [json.loads(text) for path in arguments.results for text in path.read_text().splitlines()]
    before = arguments.out.read_text() if arguments.out.exists() else ""
    arguments.out.write_text(page(lines, arguments.machine, before))


if __name__ == "__main__":
    main()
