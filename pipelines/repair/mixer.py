"""Choose the nodes of a model that stay in FP32, check the choice on other rows, and prove the file made by it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from msgspec import Struct

from paritygate.errors import UnrepairedError
from paritygate.models.loading import load_model
from paritygate.models.source import ModelRef
from paritygate.pipelines.calibration.rows import CalibratedRows
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.repair.alike import groupings
from paritygate.pipelines.repair.cost import Costs
from paritygate.pipelines.repair.lowering import LoweredModel
from paritygate.pipelines.repair.result import OVERFLOW, ROUNDING, KeptOperator, Repair, Rows
from paritygate.pipelines.repair.rows import DividedRows
from paritygate.pipelines.repair.search import Nodes, Runs, Trial, search
from paritygate.pipelines.repair.trials import Judge
from paritygate.pipelines.repair.values import ValueFacts, facts_of_values
from paritygate.pipelines.spec.targets import DEFAULT_MAX_RUNS
from paritygate.precision import Precision
from paritygate.text import counted
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.runners.emulated import open_emulated
from paritygate.validate.runners.opening import open_model
from paritygate.validate.runners.runner import Runner

# The share of the tolerance to stay within, because other rows differ more than those that were searched by.
AIM = 0.9
# A set that fails on other rows grows by one node for so many, at first.
_GROWTH = 8
_SHARE_IN_RESERVE = 0.15
_HINT = "serve the FP32 variant, or declare a limit that your service accepts"


class MixedRequest(Struct, frozen=True, kw_only=True):
    """The precision of the other operators, the runs of the search, and the gate: its rules and number of rows."""

    lower: Precision
    max_runs: int
    rules: GateRules
    judged_rows: int = 0


class Mixer:
    """The search for one model. The nodes that it keeps grow, until a file made by them is proved."""

    def __init__(
        self, lowered: LoweredModel, rows: DividedRows, request: MixedRequest, folder: Path, report: Progress
    ) -> None:
        """Run the FP32 model on all rows; `folder` is for temporary files.

        Raises:
            ReferenceRefusedError: The FP32 model is not fit to judge by on these rows.
            BackendError: It does not run.
        """
        self._lowered = lowered
        self._rows = rows
        self._request = request
        self._report = report
        model = lowered.model
        self._judge = Judge(
            model.keeping(model.switches), rows.batches, request.rules, folder, rows=request.judged_rows
        )
        self._values = facts_of_values(lowered.graph, [batch.inputs for batch in rows.batches])
        # Dropping nodes would use every run, and some are needed to check and grow the set.
        reserve = max(1, int(request.max_runs * _SHARE_IN_RESERVE))
        self._runs = Runs(self._searched, most=request.max_runs, aim=AIM, reserve=reserve)
        # Of the FP32 model.
        self._runs.used = 1
        self._waiting: list[str] = []
        self._step = 0
        self.kept: frozenset[str] = frozenset()

    def _runner(self, kept: Collection[str]) -> Runner:
        return self._lowered.model.keeping(self._lowered.closed(kept))

    def _searched(self, kept: Collection[str]) -> Trial:
        self._report("searching the operators to keep in fp32", self._runs.used, self._runs.most)
        # Errors of a few nodes have another distribution than those of most.
        is_most = 2 * len(kept) < len(self._lowered.model.switches)
        return self._judge.trial(self._runner(kept), self._rows.checking, is_learned=is_most)

    def choose(self) -> None:
        """Find the nodes to keep, and let them grow until they suffice on the rows that check them, too.

        Raises:
            UnrepairedError: None were found in the runs that are allowed.
        """
        overflowing = [name for name in self._lowered.model.switches if self._overflows(name)]
        nodes = Nodes(
            names=self._lowered.model.switches,
            overflowing=overflowing,
            work=_costs(self._lowered, self._values).shares_of_multiply_adds(),
            groupings=groupings(self._lowered.graph),
        )
        choice = search(nodes, self._runs)
        is_spent, self._runs.reserve = self._runs.left <= 0, 0
        if not choice.is_within:
            msg = f"in {counted(self._runs.used, 'run')}, no operators to keep in fp32 were found"
            raise self._unrepaired(msg, is_spent=is_spent)
        self.kept, self._waiting = choice.kept, list(choice.ranking)
        while not self._tried(self._runner(self.kept)).is_within(AIM):
            self.grow()

    def grow(self) -> None:
        """Keep some more nodes, twice as many as the last time.

        Raises:
            UnrepairedError: Too few nodes or runs are left.
        """
        self._step = 2 * self._step or max(1, len(self.kept) // _GROWTH)
        # FP32 everywhere is no repair.
        step = min(self._step, (len(self._waiting) + 1) // 2)
        if len(self._waiting) <= 1 or self._runs.left <= 0:
            msg = "operators kept in fp32 suffice on the searched rows, but not on others"
            raise self._unrepaired(msg, is_spent=self._runs.left <= 0)
        self.kept |= frozenset(self._waiting[:step])
        del self._waiting[:step]

    def proves(self, file: ModelRef) -> bool:
        """Return whether the file made by the nodes is within the limits on all rows, as it runs here and emulated."""
        runners = [open_model(file, "cpu")]
        if self._request.lower is not Precision.INT8:
            runners.append(open_emulated(load_model(file), Precision.MIXED))
        return all(self._tried(runner).is_within(1.0) for runner in runners)

    def _tried(self, runner: Runner) -> Trial:
        self._runs.used += 1
        return self._judge.trial(runner)

    def _unrepaired(self, why: str, *, is_spent: bool) -> UnrepairedError:
        most = self._runs.most
        msg = f"unrepaired: {why} (limits: {AIM:.0%} of the tolerance; --max-runs {most})"
        more = f"allow more runs, such as {max(DEFAULT_MAX_RUNS, 2 * most)}: --max-runs, or max_runs of the target"
        return UnrepairedError(msg, hint=more if is_spent else _HINT)

    def _overflows(self, node: str) -> bool:
        limit = self._lowered.largest
        return limit is not None and self._largest(node) > limit

    def _largest(self, node: str) -> float:
        """Return the largest magnitude of the values that a lowered node reads and makes."""
        lowering = self._lowered.lowered[node]
        proto = next(item for item in self._lowered.graph.nodes if item.name == node)
        names = [proto.input[at] for at in lowering.inputs] + [proto.output[at] for at in lowering.outputs]
        return max((self._values[name].largest for name in names if name in self._values), default=0.0)

    def reasons(self) -> dict[str, str]:
        """Return why each node is kept, by its name, as a part of a sentence."""
        return {
            name: f"its values reach {self._largest(name):.3g}, beyond {self._request.lower}"
            if self._overflows(name)
            else f"rounding to {self._request.lower} here exceeds the limits"
            for name in self._lowered.model.switches
            if name in self.kept
        }

    def repair(self, rows: CalibratedRows, *, file_bytes: int, fp32_bytes: int) -> Repair:
        """Return the record of the nodes that are kept now."""
        lowered = self._lowered
        costs = _costs(lowered, self._values)
        closed = lowered.closed(self.kept)
        operators = {node.name: node.op_type for node in lowered.graph.nodes}
        return Repair(
            lower=str(self._request.lower),
            kept=tuple(
                KeptOperator(
                    name=name,
                    operator=operators[name],
                    reason=OVERFLOW if self._overflows(name) else ROUNDING,
                    largest=self._largest(name),
                )
                for name in lowered.model.switches
                if name in self.kept
            ),
            switches=len(lowered.model.switches),
            runs=self._runs.used,
            max_runs=self._runs.most,
            aim=AIM,
            searched=self._rows_of(self._rows.checking, rows),
            checked=self._rows_of(self._rows.searching(), rows),
            bytes_moved=costs.share_of_traffic(closed),
            multiply_adds_low=costs.share_of_multiply_adds(closed),
            file_bytes=file_bytes,
            fp32_bytes=fp32_bytes,
        )

    def _rows_of(self, besides: Collection[str], rows: CalibratedRows) -> Rows:
        pairs = [
            (row_id, digest)
            for batch in self._rows.batches
            for row_id, digest in zip(batch.ids, rows.digests_of(batch), strict=True)
        ]
        digests = sorted(digest for row_id, digest in pairs if row_id not in besides)
        trial = self._judge.trial(self._runner(self.kept), besides)
        return Rows(
            rows=len(digests),
            digest=f"sha256:{hashlib.sha256(b''.join(digests)).hexdigest()}",
            tolerance_used=trial.measured,
        )


def _costs(lowered: LoweredModel, values: dict[str, ValueFacts]) -> Costs:
    return Costs(
        nodes=lowered.graph.nodes,
        outputs=lowered.graph.outputs,
        values=values,
        constants=lowered.constants,
        lowered=lowered.lowered,
        low_bytes=lowered.low_bytes,
    )
