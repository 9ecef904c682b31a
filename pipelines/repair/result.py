"""The record of a repair, which is written beside the repaired file, and the gate's verdict on that file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from paritygate.codec import finite_or_none, from_data, to_data
from paritygate.files import read_json, write_json_atomically
from paritygate.pipelines.choice.tolerance_used import tolerance_used
from paritygate.text import first_of, one_line
from paritygate.validate.measure.check import Status, Verdict

if TYPE_CHECKING:
    from paritygate.pipelines.compare.result import ComparisonResult

REPAIR_FILE = "repair.json"
OVERFLOW, ROUNDING = "overflow", "rounding"
REPAIRED, UNREPAIRED = "repaired", "unrepaired"


class KeptOperator(Struct, frozen=True, kw_only=True):
    """A node that stays in FP32.

    It is kept for `overflow` or `rounding`. `largest` is the largest finite magnitude of its values on the search rows.
    """

    name: str
    operator: str
    reason: str
    largest: float


# Operators in a sentence; the others are counted.
_NAMED = 8


def named_operators(kept: Sequence[Mapping[str, Any]]) -> str:
    """Return the first operators of a `Repair` in JSON data, by type and name, and how many others there are."""
    return first_of([one_line(f"{item['operator']} {item['name']}") for item in kept], _NAMED)


class Rows(Struct, frozen=True, kw_only=True):
    """Rows of the samples, by number and digest of their digests, and the share of the tolerance used on them."""

    rows: int
    digest: str
    tolerance_used: float


class Repair(Struct, frozen=True, kw_only=True):
    """The outcome of a search that found a set, and the proof.

    All other operators of `switches` are in `lower`. `searched` are the rows that the set was chosen by, and `checked`
    others that it was only tried on. Both are left out of the comparison. `runs` counts both. `bytes_moved` is the
    traffic of values and weights between operators as a share of the FP32 model's, Casts included.
    `multiply_adds_low` is the share of multiply-adds of Conv, Gemm and MatMul in `lower`; None without any. Without
    `names_in_file`, the FP32 file lacks names of kept nodes, so other tools cannot be told them.
    """

    lower: str
    kept: tuple[KeptOperator, ...]
    switches: int
    runs: int
    max_runs: int
    aim: float
    searched: Rows
    checked: Rows
    bytes_moved: float
    multiply_adds_low: float | None
    file_bytes: int = 0
    fp32_bytes: int = 0
    names_in_file: bool = True

    @property
    def nodes_to_exclude(self) -> list[str]:
        """The names of the kept nodes."""
        return [item.name for item in self.kept]

    @property
    def is_smaller_or_faster(self) -> bool:
        """Whether the file or its traffic is smaller than the FP32 model's."""
        return self.file_bytes < self.fp32_bytes or self.bytes_moved < 1

    def save(self, folder: Path) -> None:
        """Write `repair.json` into the folder of the repaired file."""
        write_json_atomically(folder / REPAIR_FILE, {"schema_version": 1, **to_data(self), **self.for_other_tools})

    @property
    def for_other_tools(self) -> dict[str, Sequence[str]]:
        """The kept nodes in the words of other tools."""
        names = {"nodes_to_exclude": self.nodes_to_exclude, "node_block_list": self.nodes_to_exclude}
        return {
            **(names if self.names_in_file else {}),
            "op_block_list": sorted({item.operator for item in self.kept}),
        }


def repair_of(facts: Mapping[str, Any]) -> Repair:
    """Return the repair from the facts of a conversion."""
    return from_data(Repair, {key: facts["repair"][key] for key in Repair.__struct_fields__})


class HeldOut(Struct, frozen=True, kw_only=True):
    """The gate's verdict on a repaired file, on rows that the search did not use."""

    verdict: str
    rows: int
    tolerance_used: float | None
    failed: tuple[str, ...]


def held_out_of(result: ComparisonResult) -> HeldOut:
    """Return what a comparison of the repaired file says."""
    share = tolerance_used((check.name, check.measured, check.limit) for check in result.checks)
    failed = dict.fromkeys(check.name for check in result.checks if check.status in {Status.FAIL, Status.ERROR})
    return HeldOut(verdict=result.verdict, rows=result.rows, tolerance_used=finite_or_none(share), failed=tuple(failed))


class RepairedVariant(Struct, frozen=True, kw_only=True):
    """The outcome of a repair.

    `outcome` is `repaired` if the whole gate passes, and `unrepaired` if not. `held_out` is of the file as it ran,
    `emulated` of an FP16 file with every value rounded, None for INT8. `target` makes the file a target of a spec; it
    is empty where there is no spec.
    """

    variant: str
    outcome: str
    file: Path
    repair: Repair
    held_out: HeldOut
    emulated: HeldOut | None
    target: str = ""

    def save(self) -> None:
        """Add the verdicts to the `repair.json` beside the file."""
        place = self.file.parent / REPAIR_FILE
        verdicts = {"outcome": self.outcome, "held_out": to_data(self.held_out), "emulated": to_data(self.emulated)}
        write_json_atomically(place, {**read_json(place), "variant": self.variant, **verdicts})


def outcome_of(held_out: HeldOut, emulated: HeldOut | None) -> str:
    """Return `repaired` if each verdict is a pass."""
    is_repaired = all(item is None or item.verdict == Verdict.PASS for item in (held_out, emulated))
    return REPAIRED if is_repaired else UNREPAIRED
