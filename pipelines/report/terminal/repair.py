"""What a repair kept in FP32, and how the result did, within 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from paritygate.pipelines.repair.variant import HeldOut, RepairedVariant
from paritygate.text import counted, echo, one_line

_WIDTH = 80
_LISTED = 8


def print_repair(repaired: RepairedVariant) -> None:
    """Print outcome, kept operators, the verdict on other rows, and the next step."""
    for line in repair_lines(repaired):
        echo(line)


def repair_lines(repaired: RepairedVariant) -> Iterator[str]:
    """Yield the lines that `print_repair` prints."""
    repair = repaired.repair
    kept = f"{len(repair.kept)} of {counted(repair.switches, 'operator')} stay in fp32"
    yield from _wrapped(
        f"{repaired.outcome}: {repaired.variant}: {kept}, found in {counted(repair.runs, 'run')} on "
        f"{counted(repair.searched.rows + repair.checked.rows, 'row')}"
    )
    for item in repair.kept[:_LISTED]:
        yield from _wrapped(f"  {item.operator} {one_line(item.name)}: {item.reason}, values up to {item.largest:.3g}")
    if len(repair.kept) > _LISTED:
        yield f"  and {len(repair.kept) - _LISTED} more: see repair.json"
    yield from _wrapped(_held_out("other rows", repaired.held_out))
    if repaired.emulated is not None:
        yield from _wrapped(_held_out("other rows, emulated", repaired.emulated))
    low = "" if repair.multiply_adds_low is None else f"{repair.multiply_adds_low:.0%} of multiply-adds stay low, "
    size = f"{repair.file_bytes / max(1, repair.fp32_bytes):.0%} of the FP32 file"
    yield from _wrapped(f"{low}size: {size}, traffic: {repair.bytes_moved:.0%}")
    yield f"file: {repaired.file}"
    yield from _wrapped(f"To release it, add this to targets in the spec: {repaired.target}")


def _held_out(what: str, found: HeldOut) -> str:
    used = "" if found.tolerance_used is None else f", {found.tolerance_used:.0%} of the tolerance used"
    failed = f" ({', '.join(found.failed)})" if found.failed else ""
    return f"{what}: {found.verdict}{failed} on {counted(found.rows, 'row')}{used}"


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
