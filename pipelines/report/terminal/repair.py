"""A repaired variant, or a proposed repair of a conversion, in the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from paritygate.codec import to_data
from paritygate.convert.onnx.changes import Changes
from paritygate.pipelines.repair.conversion import Export, ProposedRepair, how_to_accept
from paritygate.pipelines.repair.result import HeldOut, RepairedVariant
from paritygate.pipelines.report.terminal.printing import print_lines
from paritygate.pipelines.report.terminal.screen import WIDTH
from paritygate.text import counted, one_line

# Operators or changes in a list, and lines of a spec that are printed to be copied.
_LISTED, _LONGEST_PART = 8, 16


def print_repair(repaired: RepairedVariant | ProposedRepair) -> None:
    """Print the outcome, what was changed, the verdict on other rows, and the next step."""
    lines = proposal_lines(repaired) if isinstance(repaired, ProposedRepair) else repair_lines(repaired)
    print_lines(list(lines), err=False)


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
    if repaired.target:
        yield from _wrapped(f"To release it, add this to targets in the spec: {repaired.target}")


def _held_out(what: str, found: HeldOut) -> str:
    used = "" if found.tolerance_used is None else f", {found.tolerance_used:.0%} of the tolerance used"
    failed = f" ({', '.join(found.failed)})" if found.failed else ""
    return f"{what}: {found.verdict}{failed} on {counted(found.rows, 'row')}{used}"


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def proposal_lines(repaired: ProposedRepair) -> Iterator[str]:
    """Yield the outcome, what was tried, the changes, the proof, and how to accept them."""
    yield from _wrapped(f"{repaired.outcome}: {repaired.variant}: {_outcome(repaired)}")
    for attempt in repaired.attempts:
        reason = f" ({one_line(attempt.reason)})" if attempt.reason else ""
        yield from _wrapped(f"  tried {_of_export(attempt.export) or 'the same again'}: {attempt.verdict}{reason}")
    for line in list(_of_changes(repaired.changes))[:_LISTED]:
        yield from _wrapped(f"  {one_line(line)}")
    if repaired.proposal is not None and repaired.searched is not None:
        before, after = (_error(value) for value in (repaired.proposal.before, repaired.proposal.after))
        rows = counted(repaired.searched.rows, "row")
        yield from _wrapped(f"search: the largest error is {before} before and {after} after, on {rows}")
    if repaired.held_out is not None:
        yield from _wrapped(_held_out("other rows" if repaired.searched else "all rows", repaired.held_out))
    yield from _next(repaired)


def _next(repaired: ProposedRepair) -> Iterator[str]:
    if repaired.file is None:
        for place in () if repaired.proposal is None else repaired.proposal.places[:_LISTED]:
            yield from _wrapped(f"differs at {one_line(place)}")
        return
    yield f"file: {repaired.file}"
    if repaired.accept is None:
        yield "The file of this run differs. Run the spec again."
        return
    yield "It is released only if the spec accepts it. Add your name and the reason:"
    lines = how_to_accept(repaired)
    yield from (f"  {line}" for line in lines[:_LONGEST_PART])
    if len(lines) > _LONGEST_PART:
        yield f"  and {counted(len(lines) - _LONGEST_PART, 'line')} more: accept in repair.json has them"


def _outcome(repaired: ProposedRepair) -> str:
    changes = repaired.changes
    kinds = ((changes.weights, "weight"), (changes.attributes, "attribute"), (changes.grafts, "tensor"))
    counts = ", ".join(counted(len(items), name) for items, name in kinds if items)
    if repaired.file is None:
        failed = f"{counts} of the source lessen the error, but the gate fails" if counts else "no change repairs it"
        return failed if not repaired.attempts else f"no other conversion passes, and {failed}"
    if counts:
        return f"{counts} taken from the source"
    export = _of_export(repaired.export)
    return f"exported with {export}" if export else "the same conversion, done again, passes"


def _of_export(export: Export) -> str:
    return ", ".join(f"{name} {value}" for name, value in to_data(export).items() if value is not None)


def _of_changes(changes: Changes) -> Iterator[str]:
    for weight in changes.weights:
        new = f"the source's {weight.source}" if weight.value is None else f"{weight.value:g}"
        yield f"{weight.name} {weight.was}: it becomes {new}"
    for attribute in changes.attributes:
        yield f"{attribute.name} of {attribute.node} is {attribute.was}: it becomes {attribute.value}"
    for item in changes.grafts:
        yield f"{item.name} is made by {item.was}: nodes of the source make it"


def _error(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"
