"""The gate: compare a candidate with expected outputs on the same samples, and judge it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.batch import Arrays, Batch
from paritygate.errors import MeasurementError, UsageError, ZeroRowsError
from paritygate.signature import DTYPES, dtype_name
from paritygate.validate.gate.candidate import Candidate, RefusedInputsError
from paritygate.validate.gate.measures import GateResult, Measures
from paritygate.validate.gate.rule_checks import check_ignored
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.valid_positions import like, only_valid
from paritygate.validate.reference.recorded import ExpectedOutputs
from paritygate.validate.reference.recording import ChunkWriter, StoredBatch, read_chunks
from paritygate.validate.samples.samples import BatchDigest
from paritygate.validate.samples.split import RowsLeftOut, rows_kept

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def run_gate(  # noqa: PLR0913 - both sides, the samples, what is asked, and where
    candidate: Candidate,
    expected: ExpectedOutputs,
    read: Callable[[], Iterator[Batch]],
    rules: GateRules,
    *,
    workspace: Path,
    left_out: RowsLeftOut | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> GateResult:
    """Run the candidate on all samples and judge it by the expected outputs.

    `read` starts the samples again for each pass. `workspace` is an empty folder for the first pass. `left_out` counts
    the rows that are not compared. `progress` gets the pass and the number of its finished rows.

    Raises:
        UsageError: A rule names an output that does not exist, or whose dtype does not fit.
        ZeroRowsError: There are no samples.
        MeasurementError: Samples and expected outputs do not hold the same rows.
    """
    rows_left_out = RowsLeftOut() if left_out is None else left_out
    check_ignored(expected.output_names | candidate.output_names, rules)
    measures = Measures(expected, rules)
    measures.compare_names(candidate)
    passes = Passes(
        candidate=candidate, expected=expected, measures=measures, left_out=rows_left_out, workspace=workspace
    )
    digest = passes.run(read, progress)
    return measures.finish(candidate, samples_digest=digest, left_out=rows_left_out.rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """All passes over the sequence of batches, each in step with the expected outputs.

    The first pass stores the outputs that are compared, and later passes are compared with it. Both sides run on the
    rows of `left_out` too, because other batches than the reference's can change the outputs of the remaining rows.
    """

    candidate: Candidate
    expected: ExpectedOutputs
    measures: Measures
    left_out: RowsLeftOut
    workspace: Path

    def run(self, read: Callable[[], Iterator[Batch]], progress: Callable[[int, int], None]) -> str:
        """Run every pass, and return the digest of the samples."""
        first_pass = ChunkWriter(self.workspace) if self.measures.rules.passes > 1 else None
        digest_of_first = ""
        for number in range(1, self.measures.rules.passes + 1):
            stored: Iterator[StoredBatch] | None = None
            if first_pass is not None and number > 1:
                stored = read_chunks(self.workspace, first_pass.chunks)
            digest = self._run_pass(read, first_pass, stored, functools.partial(progress, number))
            digest_of_first = digest_of_first or digest
            if digest != digest_of_first:
                msg = f"the samples of pass {number} differ from those of the first pass"
                raise MeasurementError(msg, hint="let the function yield the same samples every time: seed it")
        return digest_of_first

    def _run_pass(
        self,
        read: Callable[[], Iterator[Batch]],
        first_pass: ChunkWriter | None,
        stored: Iterator[StoredBatch] | None,
        progress: Callable[[int], None],
    ) -> str:
        self.candidate.start_pass()
        reader = self.expected.open_reader()
        digest = BatchDigest()
        self.left_out.start()
        for whole in read():
            if whole.rows == 0:
                continue
            digest.add(whole)
            wanted = only_valid(reader.take(whole), whole.inputs, self.measures.positions)
            is_kept = self.left_out.rows_to_keep(whole)
            if not any(is_kept):
                continue
            batch = rows_kept(whole, is_kept)
            outputs = self._compare(whole, batch, wanted, is_kept)
            if stored is not None:
                self.measures.add_repeat(batch, outputs, like(next(stored).outputs, _rows_of(wanted, is_kept)))
            elif first_pass is not None:
                first_pass.add(outputs, rows=batch.rows, case=batch.case)
            progress(digest.rows)
        if first_pass is not None:
            first_pass.flush()
        if digest.rows == 0:
            msg = "the samples hold no rows"
            raise ZeroRowsError(msg, hint="give at least one row: nothing was measured, so nothing passes")
        reader.end(digest.value)
        self.candidate.end_pass(digest.value)
        self.measures.end_pass()
        return digest.value

    def _compare(self, whole: Batch, batch: Batch, wanted: Arrays, is_kept: list[bool]) -> Arrays:
        """Compare the kept rows of a batch, and return the candidate's outputs to store."""
        answered = _answer(self.candidate, whole.with_answer(wanted), self.measures, self.expected)
        if answered is None:
            return {}
        actual, wanted = _rows_of(answered, is_kept), _rows_of(wanted, is_kept)
        self.measures.add(batch, actual, wanted)
        return {name: array for name, array in actual.items() if self._is_kept(name, array)}

    def _is_kept(self, name: str, array: NDArray[np.generic]) -> bool:
        # An output without numbers breaks the contract, and cannot be stored.
        kept = {*self.measures.compared, *self.measures.rules.matched}
        return name in kept and dtype_name(array.dtype) in DTYPES


def _rows_of(outputs: Arrays, is_kept: list[bool]) -> dict[str, NDArray[np.generic]]:
    """Return the kept rows of each output; an output without rows stays whole."""
    if all(is_kept):
        return dict(outputs)
    return {
        name: array[is_kept] if array.ndim and array.shape[0] == len(is_kept) else array
        for name, array in outputs.items()
    }


def _answer(
    candidate: Candidate, batch: Batch, measures: Measures, expected: ExpectedOutputs
) -> dict[str, NDArray[np.generic]] | None:
    try:
        return candidate.answer(batch)
    except RefusedInputsError as err:
        if expected.inputs is None and isinstance(err.__cause__, UsageError):
            # Nothing shows that the reference took these inputs, so the samples are wrong.
            raise err.__cause__ from None
        measures.refuse(batch, str(err))
        return None
