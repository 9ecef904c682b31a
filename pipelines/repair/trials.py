"""Judge choices of nodes by the gate on the search rows, without a conversion for each."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from paritygate.batch import Batch
from paritygate.pipelines.choice.tolerance_used import tolerance_used
from paritygate.pipelines.repair.search import Trial
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.gate.gate import run_gate
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.check import Status
from paritygate.validate.measure.valid_positions import valid_positions
from paritygate.validate.reference.record import RecordPlan, record_reference
from paritygate.validate.reference.recorded import expected_from_recording
from paritygate.validate.runners.runner import Runner
from paritygate.validate.samples.split import RowsLeftOut


class Judge:
    """The gate on some rows, with an FP32 model as the reference."""

    def __init__(self, reference: Runner, batches: Sequence[Batch], rules: GateRules, folder: Path) -> None:
        """Record the reference below `folder`.

        Raises:
            ReferenceRefusedError: The model is not fit to judge by on these rows.
        """
        self._batches = batches
        # Gold, probes, repeats and strata belong to the gate on the other rows.
        self._rules = replace(rules, passes=1, min_rows=1, probes=(), strata=(), gold=())
        place = Path(tempfile.mkdtemp(dir=folder))
        self._expected = expected_from_recording(
            record_reference(
                reference,
                self._read,
                RecordPlan(
                    folder=place,
                    model={},
                    axes=rules.axes,
                    is_non_finite_declared=rules.is_non_finite_declared,
                    selected=rules.outputs,
                    ignored=rules.ignored,
                    seed=rules.seed,
                    positions=valid_positions(rules.valid_where, [reference.signature]),
                ),
            )
        )
        self._workspace = place / "passes"

    def _read(self) -> Iterator[Batch]:
        return iter(self._batches)

    def trial(self, candidate: Runner, besides: Collection[str] = ()) -> Trial:
        """Return how a candidate fares on the rows, without those of the ids `besides`."""
        left_out = RowsLeftOut(are_left_out=(lambda batch: [row_id in besides for row_id in batch.ids]))
        self._workspace.mkdir()
        try:
            result = run_gate(
                ModelCandidate(candidate),
                self._expected,
                self._read,
                self._rules,
                workspace=self._workspace,
                left_out=left_out if besides else None,
            )
        finally:
            shutil.rmtree(self._workspace, ignore_errors=True)
        share = tolerance_used((check.name, check.measured, check.limit) for check in result.checks)
        failed = {check.name for check in result.checks if check.status is Status.FAIL}
        used = 0.0 if share is None else share
        return Trial(share=math.inf if "finite" in failed else used, failed=tuple(sorted(failed)))
