"""Record the reference's outputs on the probes, and leave out batches without an output to compare with."""

from __future__ import annotations

import importlib
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from paritygate.batch import Arrays
from paritygate.errors import BackendError, MeasurementError, ParitygateError, UsageError
from paritygate.precision import Precision
from paritygate.signature import Signature, dtype_name, is_float_dtype
from paritygate.text import counted, one_or_many
from paritygate.validate.measure.limits import Limits, limits_for
from paritygate.validate.measure.measurement import repeat_difference
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.measure.valid_positions import ValidWhere, only_valid
from paritygate.validate.probes.catalogue import PROBES
from paritygate.validate.probes.derive.divisions import THREE
from paritygate.validate.probes.derive.sizes import batch_sizes
from paritygate.validate.probes.inputs.edge import Edge, OutOfSampleKind, where_rounded
from paritygate.validate.probes.inputs.probe import (
    ROWS_FACTOR,
    Probe,
    ProbeBatch,
    ProbeContext,
    why_senseless,
    why_too_large,
    with_reach,
)
from paritygate.validate.probes.out_of_sample import edges_of, why_declared_not_to_occur
from paritygate.validate.probes.own_faults import internal_error_message
from paritygate.validate.probes.probe_budget import Allowance
from paritygate.validate.probes.recording import INPUT, OUTPUT, BatchRecord, ProbeRecord, ProbesRecording
from paritygate.validate.probes.skip_reasons import DropKind, Dropped, Drops, batches_in_words
from paritygate.validate.probes.steady.flat_rows import (
    STEADY_SHARE,
    FlatRows,
    is_flat_signal,
    moved_in_limits,
    why_flat_unsteady,
)
from paritygate.validate.reference.padded_outputs import UndeclaredPadding
from paritygate.validate.reference.recording import ChunkWriter
from paritygate.validate.reference.reference_noise import NOISE_FACTOR, RowNoise, noise_by_row, rows_within

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.runners.runner import Runner


_ON_ROWS_BESIDE = "the reference's outputs for a row differ alone and in a batch by more than ten limits"
_NO_TIME_LEFT = "all probes together may cost four times what the samples do, and five seconds of CPU"
# Cheap probes come first, so that they leave their rest to the others.
_ORDER = ("sensitivity", "flat", "masks", "shapes", "ids", "batches", "values")
# Rows of a batch that run alone; the others run in a smaller batch.
_ALONE = 4
# How often every row runs: as it is, among other rows and, if generated, moved by a larger rounding.
_TIMES, _TIMES_INVENTED = 2, 3
# How often rows run that move as a whole: along a series of steps, and in two other sessions.
_TIMES_ALIKE = 20
# Memory for the outputs of rows alone.
_BYTES_OF_ROWS = 64 << 20
# Measured on a detector: a choice between equal places shows in one of six draws for a row. A draw costs one run.
_DRAWS_OF_FLAT = 8
_ROUNDING_OF_FP32 = 2.0**-23
_ROUNDING_OF_FP16 = 2.0**-11


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbePlan:
    """The settings of a recording.

    - `profiles`: by output, its values on the samples. `folder`: exists and is empty.
    - `is_non_finite_declared`: NaN and infinity in outputs are correct.
    - `positions`: the positions that count. `padding`: what undeclared masks leave out, by output.
    - `hangs_on_batch`: the reference's own outputs depend on the other rows, so correct conversions' do too.
    - `allowance`: None for unlimited cost.
    - `chooses`: the model computes on with chosen places; which of equal ones it takes does not count.
    - `otherwise`: opens the reference's other sessions, such as on one thread.
    """

    context: ProbeContext
    profiles: Mapping[str, OutputProfile]
    folder: Path
    names: tuple[str, ...] = tuple(PROBES)
    is_non_finite_declared: bool = False
    positions: Mapping[str, ValidWhere] = field(default_factory=dict)
    padding: Mapping[str, UndeclaredPadding] = field(default_factory=dict)
    hangs_on_batch: bool = False
    allowance: Allowance | None = None
    chooses: bool = False
    otherwise: Callable[[], Sequence[Runner]] = tuple


def record_probes(
    runner: Runner, plan: ProbePlan, *, progress: Callable[[str, int], None] = lambda *_: None
) -> ProbesRecording:
    """Derive the probes, run the reference on them and store its outputs; raise StorageError if the disk is full."""
    context = plan.context
    skipped = "" if context.survey.groups else "the samples hold no rows"
    wanted = [name for name in _ORDER if name in plan.names and not skipped]
    records = {}
    for done, name in enumerate(wanted):
        progress(name, 0)
        if plan.allowance is not None:
            plan.allowance.begin(len(wanted) - done)
        records[name] = _record(runner, plan, name, progress)
    recording = ProbesRecording(
        folder=plan.folder,
        probes=tuple(records[name] for name in PROBES if name in records),
        roles=context.roles,
        skipped=skipped,
        seed=context.seed,
        runtime=runner.facts.runtime,
        positions=plan.positions,
        profiles=plan.profiles,
        padding=plan.padding,
        batch_axes=_batch_axes(context.signature),
    )
    recording.save()
    return recording


def _record(runner: Runner, plan: ProbePlan, name: str, progress: Callable[[str, int], None]) -> ProbeRecord:
    started = time.monotonic()
    folder = plan.folder / name
    folder.mkdir()
    writer = ChunkWriter(folder)
    making = _Making(runner, plan, writer)
    error = ""
    try:
        probe = cast("Probe", importlib.import_module(PROBES[name].module))
        for derived in probe.derive(plan.context):
            making.take(derived)
            progress(name, making.rows)
    except (ParitygateError, OSError):
        # Known errors, such as a full disk, are no fault of the probe.
        raise
    except Exception as err:  # noqa: BLE001 - whatever it was, it is an error of this probe alone
        error = f"while the reference ran, {internal_error_message(err)}"
    writer.flush()
    if not writer.chunks:
        folder.rmdir()
    return ProbeRecord(
        name=name,
        batches=tuple(making.batches),
        dropped=making.drops.named,
        dropped_counts=making.drops.counts,
        chunks=writer.chunks,
        seconds=time.monotonic() - started,
        asked_rows=making.rows,
        allowed_rows=making.allowed,
        notes=(*making.notes, *making.edges_unsteady(), *making.rows_unsteady()),
        error=error,
    )


def _batch_axes(signature: Signature) -> dict[str, tuple[int, ...]]:
    """Return the axes that count the rows of a call, for outputs where the first axis is not the only one."""
    axes: dict[str, tuple[int, ...]] = {}
    for spec in signature.outputs:
        first, *others = spec.shape or (None,)
        if isinstance(first, str) and first in others:
            axes[spec.name] = (0, *(axis for axis, dim in enumerate(others, start=1) if dim == first))
    return axes


class _Making:
    """One probe while it is recorded."""

    def __init__(self, runner: Runner, plan: ProbePlan, writer: ChunkWriter) -> None:
        self._runner = runner
        self._plan = plan
        self._writer = writer
        self.allowed = plan.context.max_rows * ROWS_FACTOR
        self.rows = 0
        self.batches: list[BatchRecord] = []
        self.drops = Drops()
        self.notes: dict[str, None] = {}
        self._unsteady: Counter[str] = Counter()
        self._unsteady_rows = 0
        # Many batches share the inputs that the reference must refuse.
        self._must_refuse: Arrays | None = None
        self._refuses = False
        self._alone = _RowsAlone(runner)

    def take(self, derived: ProbeBatch) -> None:
        """Run the reference on a batch and store its outputs; or leave the batch out, with the reason."""
        context, about = self._plan.context, derived.about
        for kind, why in (
            (DropKind.SENSELESS, why_senseless),
            (DropKind.SIZE, why_too_large),
            (DropKind.NEVER_OCCURS, why_declared_not_to_occur),
        ):
            reason = why(context, derived)
            if reason:
                self.drops.add(Dropped(about=about, kind=kind, reason=reason))
                return
        if self.rows + derived.rows > self.allowed:
            reason = f"the probe may use {self.allowed} rows"
            self.drops.add(Dropped(about=about, kind=DropKind.NO_ROWS_LEFT, reason=reason))
            return
        is_allowed = self._is_allowed(derived)
        if not is_allowed and derived.fewer is not None:
            derived = derived.fewer()
            is_allowed = self._is_allowed(derived)
        if not is_allowed:
            self.drops.add(Dropped(about=about, kind=DropKind.NO_TIME_LEFT, reason=_NO_TIME_LEFT))
            return
        self.rows += derived.rows
        if derived.must_refuse is not None and not self._is_refused(derived.must_refuse):
            # It accepts even the largest integer, so ids outside all tables have a default, which no sample shows.
            derived = replace(derived, must_refuse=None)
        answer = _answered(self._runner, self._alone, with_reach(context, derived), self._plan)
        if isinstance(answer, Dropped):
            self._leave_out(derived, answer)
            return
        batch = answer.batch
        self._unsteady_rows += len(_unsteady_rows(answer.noise))
        answers = {f"{OUTPUT}{key}": answer.outputs[key] for key in self._plan.profiles}
        inputs = {f"{INPUT}{key}": array for key, array in batch.inputs.items()}
        self._writer.add({**inputs, **answers}, rows=batch.rows, case=None)
        edges = (*edges_of(context, batch), *_not_jumping(batch, answer.outputs))
        self.batches.append(BatchRecord.of(batch, edges, answer.noise))
        self.notes.update({batch.note: None} if batch.note else {})

    def _leave_out(self, derived: ProbeBatch, dropped: Dropped) -> None:
        """Record why a batch is left out, or run its parts where a single row may be the only unsteady one."""
        is_of_one_row = dropped.kind is DropKind.NOT_ANSWERED or (
            dropped.kind is DropKind.UNSTEADY and derived.moved_alike is not None
        )
        if is_of_one_row and derived.apart is not None:
            for part in derived.apart():
                self.take(part)
            return
        self.drops.add(dropped)
        if dropped.kind is DropKind.UNSTEADY:
            self._unsteady.update({str(edge) for edge in edges_of(self._plan.context, derived)})

    def rows_unsteady(self) -> list[str]:
        """Return a sentence with the number of rows that are not compared; [] for none."""
        count = self._unsteady_rows
        if not count:
            return []
        return [f"{counted(count, 'generated row')} {one_or_many(count, 'is', 'are')} not compared: {_ON_ROWS_BESIDE}"]

    def edges_unsteady(self) -> list[str]:
        """Return a sentence for each way of being unlike the samples whose batches were all unsteady."""
        recorded = {str(edge) for batch in self.batches for edge in batch.edges}
        return [
            f"{words} are not compared, because the reference's outputs for {batches_in_words(count, 'such')} "
            "depend on the last digits of the inputs, or on the rows beside them"
            for words, count in self._unsteady.items()
            if words not in recorded
        ]

    def _is_allowed(self, batch: ProbeBatch) -> bool:
        times = _TIMES_INVENTED if batch.is_invented else _TIMES
        calls = times + min(batch.rows - 1, _ALONE)
        return self._plan.allowance is None or self._plan.allowance.takes(batch.inputs, times=times, calls=calls)

    def _is_refused(self, inputs: Arrays) -> bool:
        if inputs is not self._must_refuse:
            self._must_refuse, self._refuses = inputs, not _is_answered(self._runner, inputs)
        return self._refuses


def _not_jumping(batch: ProbeBatch, outputs: Arrays) -> tuple[Edge, ...]:
    """Return the edge of boundaries where the reference's outputs are equal because it divides rounded numbers."""
    if not batch.divided:
        return ()
    is_same = np.ones(batch.rows // THREE, dtype=bool)
    for array in outputs.values():
        if not array.ndim or len(array) != batch.rows:
            # It has no values of single rows.
            continue
        threes = np.ma.filled(array, 0).reshape(len(is_same), THREE, -1)
        is_same &= (threes == threes[:, :1]).all(axis=(1, 2))
    rows = np.flatnonzero(np.repeat(is_same, THREE))
    return (where_rounded(batch.divided, rows.tolist()),) if len(rows) else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    """The reference's outputs, and by how much a row differs alone and in the batch where that exceeds FP32 limits."""

    batch: ProbeBatch
    outputs: Arrays
    noise: Mapping[str, tuple[RowNoise, ...]] = field(default_factory=dict)


class _RowsAlone:
    """Runs the reference, and on one row alone only once, because many batches of a probe share their rows."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._answers: dict[bytes, Arrays] = {}
        self._bytes_left = _BYTES_OF_ROWS

    def run(self, inputs: Arrays, *, rows: int) -> Arrays:
        if rows > 1:
            return self._runner.run(inputs)
        key = b"".join(repr(array.shape).encode() + array.tobytes() for array in inputs.values())
        if key in self._answers:
            return self._answers[key]
        outputs = self._runner.run(inputs)
        self._bytes_left -= len(key) + sum(array.nbytes for array in outputs.values())
        if self._bytes_left >= 0:
            self._answers[key] = outputs
        return outputs


def _answered(runner: Runner, alone: _RowsAlone, batch: ProbeBatch, plan: ProbePlan) -> _Answer | Dropped:
    """Return the reference's outputs with its own noise, or why they do not count.

    The reference runs a second time in the hardest way: every row among other rows, and generated values moved by a
    rounding of float32. Only if that differs, further runs find the cause.
    """
    try:
        first = only_valid(runner.run(batch.inputs), batch.inputs, plan.positions)
        why_not = _why_unfit(batch, first, plan)
        is_calm = not why_not and _is_calm(runner, alone, batch, first, plan)
        if not why_not and not is_calm:
            why_not = _why_not_repeated(first, runner.run(batch.inputs), plan)
    except (BackendError, UsageError, MeasurementError) as err:
        why_not = f"the reference does not answer: {err}"
    if why_not:
        return Dropped(about=batch.about, kind=DropKind.NOT_ANSWERED, reason=why_not)
    noise = {} if is_calm else _noise(alone, batch, first, plan)
    if batch.is_invented:
        steady = _if_steady(runner, batch, first, plan, is_known=is_calm)
        if batch.moved_alike is not None:
            steady = _of_flat_rows(steady, runner, batch, first, plan)
        if isinstance(steady, Dropped):
            return steady
        if batch.moved_alike is not None and noise:
            reason = "the reference's output differs beside other rows"
            return Dropped(about=batch.about, kind=DropKind.UNSTEADY, reason=reason)
        batch = steady
    if len(_unsteady_rows(noise)) == batch.rows:
        name = next(name for name, rows in noise.items() if any(row.is_unsteady for row in rows))
        largest = max(row.max_abs_diff for row in noise[name] if row.is_unsteady)
        reason = f"the reference itself differs by {largest:.3g} in {name!r} between a row alone and in a batch"
        return Dropped(about=batch.about, kind=DropKind.UNSTEADY, reason=reason)
    return _Answer(batch=batch, outputs=first, noise=noise)


def _unsteady_rows(noise: Mapping[str, tuple[RowNoise, ...]]) -> set[int]:
    return {at for rows in noise.values() for at, row in enumerate(rows) if row.is_unsteady}


def _is_calm(runner: Runner, alone: _RowsAlone, batch: ProbeBatch, first: Arrays, plan: ProbePlan) -> bool:
    """Return whether a second run stays within the strictest limits, with all rows among other rows."""
    moved = _moved(batch, _ROUNDING_OF_FP32, plan.context) if batch.is_invented else batch.inputs
    try:
        answers = _in_other_company(alone, moved, batch.rows, plan) or [runner.run(moved)]
    except (BackendError, UsageError, MeasurementError):
        return False
    for name, profile in plan.profiles.items():
        whole, parts = first[name], [answer[name] for answer in answers]
        if len(parts) > 1 and any(part.shape[1:] != whole.shape[1:] or not part.ndim for part in parts):
            return False
        other = np.concatenate(parts) if len(parts) > 1 else parts[0]
        if other.ndim and whole.ndim and len(other) > len(whole) == batch.rows:
            # A single row ran next to its copy.
            other = other[: len(whole)]
        limits = limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile)
        if other.shape != whole.shape or repeat_difference(other, whole, limits)[0] > 1:
            return False
        is_judged_by_row = profile.is_float and whole.ndim and len(whole) == batch.rows and limits.fits(whole.shape)
        if is_judged_by_row and not rows_within(other, whole, None, limits=limits, profile=profile).all():
            return False
    return True


def _why_unfit(batch: ProbeBatch, first: Arrays, plan: ProbePlan) -> str:
    """Return why outputs cannot be compared with; empty where they can."""
    # Outputs on NaN and infinity that neither samples nor roles show are undeclared.
    may_be_non_finite = plan.is_non_finite_declared and not any(
        edge.kind in {OutOfSampleKind.NAN, OutOfSampleKind.INFINITY} for edge in edges_of(plan.context, batch)
    )
    for name, profile in plan.profiles.items():
        if name not in first or dtype_name(first[name].dtype) != profile.dtype:
            return f"the reference answers without {name!r} in {profile.dtype}"
        if not may_be_non_finite and _holds_non_finite({name: first[name]}):
            return f"the reference answers {name!r} with NaN or infinity"
    return ""


def _why_not_repeated(first: Arrays, again: Arrays, plan: ProbePlan) -> str:
    """Return where two runs on one batch differ; empty where they do not."""
    for name, profile in plan.profiles.items():
        ratio, difference = repeat_difference(
            again[name], first[name], limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile)
        )
        if ratio > 1:
            return f"the reference differs from itself by {difference:.3g} in {name!r}"
    return ""


def _noise(alone: _RowsAlone, batch: ProbeBatch, outputs: Arrays, plan: ProbePlan) -> dict[str, tuple[RowNoise, ...]]:
    """Return by how much rows differ alone and in the batch, where that exceeds FP32 limits."""
    answers = _in_other_company(alone, batch.inputs, batch.rows, plan)
    noise = {}
    for name, profile in plan.profiles.items():
        whole = outputs[name]
        is_by_row = whole.ndim and len(whole) == batch.rows and whole.size
        if not profile.is_float or not is_by_row:
            continue
        parts = [answer[name] for answer in answers]
        limits = limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile)
        if not parts or not limits.fits(whole.shape) or any(part.shape[1:] != whole.shape[1:] for part in parts):
            continue
        other = np.concatenate(parts)[: batch.rows]
        is_within = other.shape == whole.shape and rows_within(other, whole, None, limits=limits, profile=profile).all()
        if not is_within:
            rows = noise_by_row([whole, other])
            is_judged = other.shape == whole.shape and batch.is_invented and not plan.hangs_on_batch
            noise[name] = _without_answer(rows, other, whole, limits, profile) if is_judged else rows
    return noise


def _without_answer(
    noise: tuple[RowNoise, ...],
    other: NDArray[np.generic],
    whole: NDArray[np.generic],
    limits: Limits,
    profile: OutputProfile,
) -> tuple[RowNoise, ...]:
    """Return the noise, with rows marked as unsteady that differ by far more than the limit of some value.

    Where real rows are steady, the model has no result for such a row, as for the phase of zero.
    """
    # Equal infinities and NaN do not differ.
    is_same = ~np.isfinite(whole) & ((other == whole) | (np.isnan(other) & np.isnan(whole)))
    one, another = (
        np.ma.where(is_same, np.zeros((), array.dtype), array)  # type: ignore[no-untyped-call]
        for array in (other, whole)
    )
    is_steady = rows_within(one, another, None, limits=limits.widened(NOISE_FACTOR), profile=profile)
    return tuple(replace(row, is_unsteady=not steady) for row, steady in zip(noise, is_steady.tolist(), strict=True))


def _in_other_company(alone: _RowsAlone, inputs: Arrays, rows: int, plan: ProbePlan) -> list[Arrays]:
    """Return the outputs on rows among others: the first ones alone, the rest in a smaller batch; [] if impossible."""
    with_rows = plan.context.survey.groups[0].with_rows
    groups = [[row] for row in range(min(rows, _ALONE))] + ([list(range(_ALONE, rows))] if rows > _ALONE else [])
    groups = groups if rows > 1 else [[0, 0]]
    sizes = batch_sizes(plan.context)
    if not with_rows or not all(min(sizes) <= len(part) <= max(rows, *sizes) for part in groups):
        return []
    parts = [{name: array[part] if name in with_rows else array for name, array in inputs.items()} for part in groups]
    try:
        return [alone.run(part, rows=len(chosen)) for chosen, part in zip(groups, parts, strict=True)]
    except (BackendError, UsageError, MeasurementError):
        return []


def _is_answered(runner: Runner, inputs: Arrays) -> bool:
    try:
        runner.run(inputs)
    except (BackendError, UsageError, MeasurementError):
        return False
    return True


def _holds_non_finite(arrays: Arrays) -> bool:
    # Masked values do not count.
    floats = [np.ma.filled(array, 0) for array in arrays.values() if is_float_dtype(array.dtype.name)]
    with np.errstate(invalid="ignore", over="ignore"):
        # A finite sum proves that all values are finite; another sum proves nothing.
        return any(
            not math.isfinite(float(array.sum(dtype=np.float64))) and not np.isfinite(array).all() for array in floats
        )


def _if_steady(
    runner: Runner, batch: ProbeBatch, outputs: Arrays, plan: ProbePlan, *, is_known: bool
) -> ProbeBatch | Dropped:
    """Return the batch, or why its outputs depend on the last digits of the inputs (with `is_known` they do not).

    On generated rows a model may divide by nearly nothing, as in normalising a constant row, and any conversion
    differs. A dependence on digits that only a lower precision lacks marks the batch as beyond it. A flat signal then
    runs more often, because a choice between its equal places shows only in some draws.
    """
    if not is_known:
        float32 = _movement(runner, outputs, plan, _moved(batch, _ROUNDING_OF_FP32, plan.context), Precision.FP32)
        if float32 > STEADY_SHARE:
            return _unsteady(batch, float32)
    float16 = _movement(runner, outputs, plan, _moved(batch, _ROUNDING_OF_FP16, plan.context), Precision.FP16)
    if float16 <= STEADY_SHARE:
        return batch
    if any(is_flat_signal(array) for array in batch.inputs.values() if is_float_dtype(array.dtype.name)):
        float32 = _movement_in_draws(runner, batch, outputs, plan)
        if float32 > STEADY_SHARE:
            return _unsteady(batch, float32)
    return replace(batch, is_beyond_seen=True)


def _movement_in_draws(runner: Runner, batch: ProbeBatch, outputs: Arrays, plan: ProbePlan) -> float:
    """Return by how many limits the outputs move with the inputs, in the first draw in which they jump."""
    movement = 0.0
    for draw in range(1, _DRAWS_OF_FLAT + 1):
        if plan.allowance is not None and not plan.allowance.takes(batch.inputs, times=1, calls=1):
            break
        moved = _moved(batch, _ROUNDING_OF_FP32, plan.context, draw=draw)
        movement = _movement(runner, outputs, plan, moved, Precision.FP32)
        if movement > STEADY_SHARE:
            break
    return movement


def _of_flat_rows(
    found: ProbeBatch | Dropped, runner: Runner, batch: ProbeBatch, outputs: Arrays, plan: ProbePlan
) -> ProbeBatch | Dropped:
    """Return the batch of flat rows, or why no output is the only one; `found` is the result for single values."""
    if plan.chooses:
        if isinstance(found, Dropped):
            return found
        movement = _movement_in_draws(runner, batch, outputs, plan)
        return _unsteady(batch, movement) if movement > STEADY_SHARE else found
    if plan.allowance is not None and not plan.allowance.takes(batch.inputs, times=_TIMES_ALIKE, calls=_TIMES_ALIKE):
        return Dropped(about=batch.about, kind=DropKind.NO_TIME_LEFT, reason=_NO_TIME_LEFT)
    is_moved = any(is_float_dtype(array.dtype.name) for array in batch.inputs.values())
    is_exact = isinstance(found, Dropped) or not is_moved
    moved_alike = batch.moved_alike or (lambda _: ())
    # Made lazily, because most rows are steady in the first series.
    series = itertools.chain.from_iterable(moved_alike(exactly) for exactly in ((True,) if is_exact else (False, True)))
    rows = FlatRows(inputs=batch.inputs, outputs=outputs, series=series, profiles=plan.profiles)
    why_not = why_flat_unsteady(runner, plan.otherwise(), rows)
    if why_not:
        return Dropped(about=batch.about, kind=DropKind.UNSTEADY, reason=why_not)
    # Below float32 no sum is exact.
    return replace(batch, is_beyond_seen=True) if is_exact else found


def _unsteady(batch: ProbeBatch, moved: float) -> Dropped:
    reason = f"the reference's output depends on the last digits of its inputs ({moved:.3g} limits)"
    return Dropped(about=batch.about, kind=DropKind.UNSTEADY, reason=reason)


def _moved(batch: ProbeBatch, rounding: float, context: ProbeContext, *, draw: int = 0) -> Arrays:
    """Return the inputs with every float moved up or down by a rounding; each draw chooses other directions.

    A flat signal, such as a black picture, moves by a rounding of the largest value seen, because a rounding of zero is
    zero. A choice between its equal places depends on such digits. In a table a zero may have a meaning, and stays.
    """
    random = context.random(f"{batch.about}, draw {draw}" if draw else batch.about)
    moved = dict(batch.inputs)
    for name, array in batch.inputs.items():
        if is_float_dtype(array.dtype.name):
            step = rounding * random.choice([-1.0, 1.0], size=array.shape)
            wide, seen = array.astype(np.float64), context.survey.inputs[name]
            least = max(abs(seen.low or 0.0), abs(seen.high or 0.0)) if is_flat_signal(wide) else 0.0
            with np.errstate(over="ignore", invalid="ignore"):
                further = np.where(np.abs(wide) < least, wide + step * least, wide * (1 + step))
            moved[name] = further.astype(array.dtype)
    return moved


def _movement(runner: Runner, outputs: Arrays, plan: ProbePlan, moved: Arrays, precision: Precision) -> float:
    """Return by how many limits of a precision the outputs on moved inputs differ."""
    try:
        answers = runner.run(moved)
    except (BackendError, UsageError, MeasurementError):
        return float("inf")
    floats = {name: profile for name, profile in plan.profiles.items() if profile.is_float}
    return moved_in_limits(answers, outputs, floats or plan.profiles, precision)
