"""Repair a variant of a run: by precision, or by a proposal where its conversion fails in FP32."""

from __future__ import annotations

from typing import Any

from paritygate.codec import to_data
from paritygate.errors import ExitCode
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.repair.conversion import ProposedRepair, propose_repair
from paritygate.pipelines.repair.result import REPAIRED, RepairedVariant
from paritygate.pipelines.repair.variant import repair_variant
from paritygate.pipelines.run.diagnosis import FP32_EXPORT
from paritygate.pipelines.run.workspace import RunFolder


def repair(
    run: RunFolder, name: str, *, max_runs: int, time_limit_s: float, progress: Progress
) -> RepairedVariant | ProposedRepair:
    """Return the repair of a variant; raises as `repair_variant` and `propose_repair`."""
    if name == FP32_EXPORT:
        return propose_repair(run, time_limit_s=time_limit_s, progress=progress)
    return repair_variant(run, name, max_runs=max_runs, time_limit_s=time_limit_s, progress=progress)


def exit_code_of_repair(repaired: RepairedVariant | ProposedRepair) -> int:
    """Return 0 for a file that passes the gate, 1 for one that does not, and 4 where there is none."""
    if isinstance(repaired, RepairedVariant):
        return int(ExitCode.PASS if repaired.outcome == REPAIRED else ExitCode.PARITY_FAILED)
    if repaired.file is not None:
        return int(ExitCode.PASS)
    return int(ExitCode.NOT_BUILT if repaired.held_out is None else ExitCode.PARITY_FAILED)


def data_of_repair(repaired: RepairedVariant | ProposedRepair) -> dict[str, Any]:
    """Return the repair as JSON data."""
    lists = repaired.repair.for_other_tools if isinstance(repaired, RepairedVariant) else {}
    return {"schema_version": 1, **to_data(repaired), **lists}
