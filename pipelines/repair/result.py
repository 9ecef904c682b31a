"""The record of a repair, which is written beside the repaired file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.files import write_json_atomically
from paritygate.text import one_line

REPAIR_FILE = "repair.json"
OVERFLOW, ROUNDING = "overflow", "rounding"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptOperator:
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
    named = ", ".join(one_line(f"{item['operator']} {item['name']}") for item in kept[:_NAMED])
    return named + (f" and {len(kept) - _NAMED} more" if len(kept) > _NAMED else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Rows of the samples, by number and digest of their digests, and the share of the tolerance used on them."""

    rows: int
    digest: str
    tolerance_used: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Repair:
    """The outcome of a search that found a set, and the proof.

    All other operators of `switches` are in `lower`. `searched` are the rows that the set was chosen by, and `checked`
    others that it was only tried on. Both are left out of the comparison. `runs` counts both. `bytes_moved` is the
    traffic of values and weights between operators as a share of the FP32 model's, Casts included.
    `multiply_adds_low` is the share of multiply-adds of Conv, Gemm and MatMul in `lower`; None without any. Names of
    `nodes_to_exclude` and `op_block_list` are those that other tools use.
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
        return {
            "nodes_to_exclude": self.nodes_to_exclude,
            "node_block_list": self.nodes_to_exclude,
            "op_block_list": sorted({item.operator for item in self.kept}),
        }
