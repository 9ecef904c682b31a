"""Judge choices of nodes by the gate on the search rows, without a conversion for each."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Batch
from paritygate.pipelines.choice.tolerance_used import tolerance_used
from paritygate.pipelines.repair.search import Trial
from paritygate.pipelines.repair.tail import Tail
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.gate.gate import run_gate
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.check import Status
from paritygate.validate.measure.statistics import RowFigures, empty, update
from paritygate.validate.measure.valid_positions import only_valid, valid_positions
from paritygate.validate.reference.record import RecordPlan, record_reference
from paritygate.validate.reference.recorded import expected_from_recording
from paritygate.validate.runners.runner import Runner
from paritygate.validate.samples.split import RowsLeftOut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    _Answers = Mapping[tuple[str, ...], Mapping[str, NDArray[np.generic]]]

# The check of a quantile, which does not grow with the number of rows.
_QUANTILE = "p9999_abs_diff"


class Judge:
    """The gate on some rows, with an FP32 model as the reference."""

    def __init__(
        self, reference: Runner, batches: Sequence[Batch], rules: GateRules, folder: Path, *, rows: int
    ) -> None:
        """Record the reference below `folder`; the result is to be within the limits on so many other rows.

        Raises:
            ReferenceRefusedError: The model is not fit to judge by on these rows.
        """
        self._batches = batches
        self._tail = Tail(rows)
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
        reader = self._expected.open_reader()
        positions = self._expected.positions
        self._wanted = [only_valid(reader.take(batch), batch.inputs, positions) for batch in batches]
        self._workspace = place / "passes"

    def _read(self) -> Iterator[Batch]:
        return iter(self._batches)

    def trial(self, candidate: Runner, besides: Collection[str] = (), *, is_learned: bool = True) -> Trial:
        """Return how a candidate fares on the rows, without those of the ids `besides`.

        With `is_learned`, later predictions are by the tail of its differences too.
        """
        left_out = RowsLeftOut(are_left_out=(lambda batch: [row_id in besides for row_id in batch.ids]))
        self._workspace.mkdir()
        watched = _Watched(candidate)
        try:
            result = run_gate(
                watched,
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
        used = math.inf if "finite" in failed else share or 0.0
        likely = used
        is_sound = math.isfinite(used) and not any(name.startswith("contract.") for name in failed)
        if is_sound and all(check.name != _QUANTILE for check in result.checks):
            likely = max(
                used, self._tail.predict(self._shares(result, watched.answers, besides), is_learned=is_learned)
            )
        return Trial(share=likely, measured=used, failed=tuple(sorted(failed)))

    def _shares(self, result: GateResult, answers: _Answers, besides: Collection[str]) -> NDArray[np.float64]:
        """Return the share of the tolerance that each row uses."""
        used = []
        for batch, expected in zip(self._batches, self._wanted, strict=True):
            shares = np.zeros(batch.rows)
            # A batch is not run whose rows are all left out.
            actual = answers.get(tuple(batch.ids), {})
            for name, limits in result.limits.items():
                profile = self._expected.profiles[name]
                if name in actual and not limits.is_exact and expected[name].size:
                    figures = RowFigures()
                    state = empty(profile, limits, names_rows=False)
                    update(state, actual[name], expected[name], batch.ids, figures)
                    shares = np.maximum(shares, np.maximum(figures.in_limits, figures.relative))
            used.append(shares[[row_id not in besides for row_id in batch.ids]])
        return np.concatenate(used)


class _Watched(ModelCandidate):
    """A model whose outputs are kept, by the ids of their rows."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self.answers: dict[tuple[str, ...], Mapping[str, NDArray[np.generic]]] = {}

    def answer(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return all outputs for one batch."""
        outputs = super().answer(batch)
        self.answers[tuple(batch.ids)] = outputs
        return outputs
