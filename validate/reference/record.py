"""Records the reference, and refuses one that is not fit to judge by."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.batch import Arrays, Batch
from paritygate.codec import to_data
from paritygate.errors import ReferenceRefusedError, UsageError, ZeroRowsError
from paritygate.precision import Precision
from paritygate.signature import Dim, Signature, is_float_dtype
from paritygate.text import counted, meant, one_or_many, row_names
from paritygate.validate.measure.check import Kind
from paritygate.validate.measure.limits import limits_for, without_cap
from paritygate.validate.measure.measurement import repeat_difference
from paritygate.validate.measure.profile import (
    OutputProfile,
    profile_outputs,
    with_activation_floors,
)
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.measure.valid_positions import (
    PaddingMask,
    ValidWhere,
    blanked,
    left_out_of,
    only_left_out,
    only_valid,
)
from paritygate.validate.reference.broken_rows import BrokenRows
from paritygate.validate.reference.channel_axis import axis_of_units, channel_axes, has_columns
from paritygate.validate.reference.health import Health
from paritygate.validate.reference.noise_floor import measure_noise, noise_health, with_noise
from paritygate.validate.reference.padded_outputs import UndeclaredPadding, holds_fill
from paritygate.validate.reference.recording import ChunkWriter, Recording, StoredBatch, read_chunks
from paritygate.validate.reference.refused_rows import answers_of
from paritygate.validate.reference.rerun import OtherBatches, OtherSessions
from paritygate.validate.samples.feeding import check_shapes, fit_inputs
from paritygate.validate.samples.samples import BatchDigest, digest_of_batch
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.runners.runner import Runner

# The number of rows that run twice, to see whether the reference repeats its outputs.
_REPEATED_ROWS = 64
_REPEATED_SHARE = 0.25
# Once every shape was seen, a batch of a known shape is repeated with this chance, while rows are left.
_REPEAT_CHANCE = 0.25
# The squares of anything larger leave no room for a sum in float64.
_LARGEST_MAGNITUDE = 1e150


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordPlan:
    """The choices for a recording, and its empty `folder`.

    `model` holds source, digest and notes for the recording. `axes` are declared channel axes by output. `selected`
    outputs are recorded, all if it is empty; `ignored` ones have reasons and are not. `seed` chooses the rows that run
    twice. `rename` is a hint for renaming an input MODEL to the samples' KEY. `dims` declares sizes of dims that the
    model lacks. `positions` are those that count. `activation_floors` are differences between implementations of an
    output's last operator. `padding` returns masks of undeclared padding by output, once all samples ran.
    """

    folder: Path
    model: Mapping[str, Any]
    axes: Mapping[str, int]
    is_non_finite_declared: bool = False
    selected: tuple[str, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    rename: str = ""
    dims: Mapping[str, Dim] = field(default_factory=dict)
    positions: Mapping[str, ValidWhere] = field(default_factory=dict)
    activation_floors: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    padding: Callable[[], Mapping[str, PaddingMask]] = dict


def record_reference(
    runner: Runner,
    read: Callable[[], Iterator[Batch]],
    plan: RecordPlan,
    *,
    progress: Callable[[int], None] = lambda _: None,
    watch: Callable[[Batch, Arrays, float], None] = lambda *_: None,
) -> Recording:
    """Run the reference over all samples, store its outputs and return the recording.

    `progress` gets the number of rows done. `watch` gets each batch, its inputs as the reference takes them, and the
    CPU seconds of its run.

    Raises:
        ZeroRowsError: There are no samples.
        ReferenceRefusedError: The reference is not finite, not repeatable, or constant.
        UsageError: The samples do not fit the model, it refuses only some of their rows, or a selected output is
            missing.
        BackendError: The reference did not run.
    """
    folder = plan.folder
    recorded = _outputs_recorded(runner.signature, plan)
    has_fixed_batch = any(spec.shape and isinstance(spec.shape[0], int) for spec in runner.signature.inputs)
    writer = ChunkWriter(folder)
    again_folder = folder / "again"
    again_folder.mkdir()
    again = ChunkWriter(again_folder)
    digest = BatchDigest()
    chooser = _RepeatChooser(plan.seed)
    broken = BrokenRows()
    # Positions that do not count are no noise of the reference.
    blank = _Blanked(runner, plan.positions)
    others = OtherBatches(blank, recorded, is_batch_fixed=has_fixed_batch)
    sessions = OtherSessions(runner, blank.blank)
    takes = replace(runner.signature, dims={**runner.signature.dims, **plan.dims})
    for batch in read():
        if batch.rows == 0:
            continue
        digest.add(batch)
        inputs = fit_inputs(batch, runner.signature, rename=plan.rename)
        check_shapes(batch, inputs, takes)
        outputs, spent = _timed(lambda: answers_of(runner, batch, inputs, rows_before=digest.rows - batch.rows))  # noqa: B023 - called at once
        answers = {name: outputs[name] for name in recorded}
        writer.add(answers, rows=batch.rows, case=batch.case, samples_digest=digest_of_batch(batch))
        broken.add(batch.ids, only_valid(answers, inputs, plan.positions), inputs)
        watch(batch, inputs, spent)
        rows = chooser.rows_to_repeat(inputs, batch.rows)
        if rows:
            repeated_rows = batch.rows if has_fixed_batch else rows
            outputs = blank.blank(outputs, inputs)
            again_inputs, first, second = _run_again(blank, inputs, outputs, repeated_rows, batch)
            sessions.keep(again_inputs, repeated_rows)
            pairs = (("first", first), ("again", second))
            both = {f"{which}/{name}": answer[name] for which, answer in pairs for name in recorded}
            head = None if first is outputs else first
            again.add(both | others.answers(batch, inputs, outputs, head), rows=rows, case=None)
        progress(digest.rows)
    if digest.rows == 0:
        msg = "the samples hold no rows"
        raise ZeroRowsError(msg, hint="give at least one row: nothing was measured, so nothing passes")
    writer.flush()
    again.flush()
    profiles, undeclared = _profiles(writer, read, plan, runner.signature)
    health = (
        *check_health(
            _with_padding(profiles, undeclared),
            is_non_finite_declared=plan.is_non_finite_declared,
            first_rows=broken.of,
            in_samples=broken.in_samples,
        ),
        _check_repeat(again_folder, again.chunks, profiles, chooser.repeated),
    )
    noise = measure_noise(read_chunks(again_folder, again.chunks), profiles, why_no_batches=others.why_not)
    noise = sessions.measure(noise, lambda: read_chunks(again_folder, again.chunks), profiles)
    profiles = with_noise(profiles, noise)
    shutil.rmtree(again_folder)
    health = (*health, *noise_health(noise, profiles), *others.health)
    recording = Recording(
        folder=folder,
        chunks=writer.chunks,
        rows=digest.rows,
        samples_digest=digest.value,
        model=plan.model,
        runtime=asdict(runner.facts),
        signature=runner.signature,
        shapes=writer.shapes,
        dtypes=writer.dtypes,
        profiles=profiles,
        health=tuple(item.as_text for item in health),
        health_checks=health,
        settings={
            "seed": plan.seed,
            "repeated_rows": chooser.repeated,
            "noise": to_data(noise),
            "non_finite": "match" if plan.is_non_finite_declared else "refuse",
            "valid_where": to_data(plan.positions),
            "undeclared_padding": to_data(undeclared),
        },
    )
    recording.save()
    return recording


def _timed(answer: Callable[[], Arrays]) -> tuple[Arrays, float]:
    """Return an output, and the seconds of CPU that it took."""
    before = time.process_time()
    return answer(), time.process_time() - before


def _outputs_recorded(signature: Signature, plan: RecordPlan) -> tuple[str, ...]:
    names = tuple(spec.name for spec in signature.outputs)
    check_selected(plan.selected, names)
    recorded = tuple(name for name in plan.selected or names if name not in plan.ignored)
    check_some_left(recorded, plan.ignored)
    return recorded


def check_selected(selected: Iterable[str], known: Iterable[str]) -> None:
    """Raise UsageError where the reference lacks a selected output."""
    has = sorted(known)
    for name in selected:
        if name not in has:
            msg = f"output {name!r} was selected, but the reference has no such output (it has: {', '.join(has)})"
            raise UsageError(msg, hint=f"name outputs of the reference with --outputs{meant(name, has)}")


def check_some_left(left: Iterable[str], ignored: Iterable[str]) -> None:
    """Raise UsageError where ignoring outputs leaves none to compare."""
    names = sorted(ignored)
    if names and not any(True for _ in left):
        msg = f"every output is ignored ({', '.join(names)}), so nothing would be compared"
        raise UsageError(msg, hint="compare at least one output")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stored:
    writer: ChunkWriter
    folder: Path
    positions: Mapping[str, ValidWhere]
    samples: Callable[[], Iterator[Batch]]

    def read_left_out(self) -> Iterator[StoredBatch]:
        """Yield the values that do not count, with all others masked."""
        return (replace(stored, outputs=only_left_out(stored.outputs)) for stored in self.read())

    def read(self) -> Iterator[StoredBatch]:
        batches = read_chunks(self.folder, self.writer.chunks)
        if not self.positions:
            return batches
        return self._counted(batches)

    def _counted(self, batches: Iterator[StoredBatch]) -> Iterator[StoredBatch]:
        # Inputs are not stored, so the samples are read again in step.
        samples = (batch for batch in self.samples() if batch.rows)
        for stored, batch in zip(batches, samples, strict=True):
            yield replace(stored, outputs=only_valid(stored.outputs, batch.inputs, self.positions))


def _profiles(
    writer: ChunkWriter, samples: Callable[[], Iterator[Batch]], plan: RecordPlan, signature: Signature
) -> tuple[dict[str, OutputProfile], dict[str, UndeclaredPadding]]:
    """Return the profile of the values of every output that count, and what undeclared masks leave out."""
    masks = {
        name: mask for name, mask in plan.padding().items() if name in writer.dtypes and name not in plan.positions
    }
    stored = _Stored(writer=writer, folder=plan.folder, positions={**masks, **plan.positions}, samples=samples)
    shapes = writer.shapes
    profiles = profile_all(stored.read, shapes=shapes, dtypes=writer.dtypes, axes=plan.axes, signature=signature)
    dtypes = {name: writer.dtypes[name] for name in masks}
    axes = {name: axis for name, axis in plan.axes.items() if name in masks}
    padding = profile_all(stored.read_left_out, shapes=shapes, dtypes=dtypes, axes=axes, signature=signature)
    return with_activation_floors(profiles, plan.activation_floors), {
        name: UndeclaredPadding(mask=masks[name], profile=profile, is_fill=holds_fill(profile, profiles[name]))
        for name, profile in padding.items()
    }


def _with_padding(
    profiles: Mapping[str, OutputProfile], undeclared: Mapping[str, UndeclaredPadding]
) -> dict[str, OutputProfile]:
    """Return profiles that include padding in their counts of values that are not finite."""
    return {
        name: replace(profile, non_finite=profile.non_finite + undeclared[name].profile.non_finite)
        if name in undeclared
        else profile
        for name, profile in profiles.items()
    }


class _Blanked:
    """The reference with zeros at positions that do not count, so two of its outputs differ in the others alone."""

    def __init__(self, runner: Runner, positions: Mapping[str, ValidWhere]) -> None:
        self._runner = runner
        self._positions = positions

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        return self.blank(self._runner.run(inputs), inputs)

    def blank(self, outputs: Arrays, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        masked = only_valid(outputs, inputs, self._positions)
        return {name: blanked(array, left_out_of(array)) for name, array in masked.items()}


class _RepeatChooser:
    """Chooses which rows run twice: some of every shape, then some at random, 64 in all."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._shapes: set[tuple[tuple[int, ...], ...]] = set()
        self.repeated = 0

    def rows_to_repeat(self, inputs: Arrays, rows: int) -> int:
        shape = tuple(array.shape for array in inputs.values())
        is_new = shape not in self._shapes
        self._shapes.add(shape)
        left = _REPEATED_ROWS - self.repeated
        if left <= 0 or not (is_new or self._random.random() < _REPEAT_CHANCE):
            return 0
        # A share of the rest, so that rows remain for later shapes.
        chosen = min(rows, math.ceil(left * _REPEATED_SHARE))
        self.repeated += chosen
        return chosen


def _run_again(
    runner: _Blanked, inputs: Arrays, outputs: Arrays, rows: int, batch: Batch
) -> tuple[Arrays, Arrays, Arrays]:
    """Return the inputs that ran twice, and both outputs."""
    first = outputs
    if rows < batch.rows:
        inputs = {name: _head(array, rows, batch.rows) for name, array in inputs.items()}
        first = runner.run(inputs)
    return inputs, first, runner.run(inputs)


def _head(array: NDArray[np.generic], rows: int, of: int) -> NDArray[np.generic]:
    return array[:rows] if array.ndim and array.shape[0] == of else array


def profile_all(
    read: Callable[[], Iterator[StoredBatch]],
    *,
    shapes: Mapping[str, list[tuple[int, ...]]],
    dtypes: Mapping[str, str],
    axes: Mapping[str, int],
    signature: Signature | None,
) -> dict[str, OutputProfile]:
    """Return the profile of every output. It reads all stored outputs once or twice an output.

    UsageError is raised where a declared channel axis, or its output, does not exist.
    """
    for name in axes:
        if name not in dtypes:
            msg = f"a channel axis is declared for output {name!r}, which is missing (there are: {', '.join(dtypes)})"
            raise UsageError(msg, hint="axes in a spec, and --axis, take names of the reference's outputs")
    declared = {spec.name: spec.shape for spec in signature.outputs} if signature else {}
    inputs = [spec.shape for spec in signature.inputs if spec.shape is not None] if signature else []
    profiles: dict[str, OutputProfile] = {}
    for name, dtype in dtypes.items():
        axis, arrays = axes.get(name), _StoredArrays(read=read, name=name)
        if axis is None and is_float_dtype(dtype):
            axis = axis_of_units(arrays, channel_axes(shapes[name], declared.get(name), inputs))
        axis = _checked_axis(name, axis, shapes[name])
        if axis is None and is_float_dtype(dtype) and has_columns(shapes[name], declared.get(name)):
            axis = 1
        profiles[name] = profile_outputs(name, arrays, axis=axis, dtype=dtype)
    return profiles


@dataclass(frozen=True, kw_only=True, slots=True)
class _StoredArrays:
    """The arrays of one output, read from the start at each iteration."""

    read: Callable[[], Iterator[StoredBatch]]
    name: str

    def __iter__(self) -> Iterator[tuple[NDArray[np.generic], int]]:
        return ((batch.outputs[self.name], batch.rows) for batch in self.read() if self.name in batch.outputs)


def _checked_axis(name: str, axis: int | None, shapes: list[tuple[int, ...]]) -> int | None:
    if axis is None:
        return None
    ranks = {len(shape) for shape in shapes}
    if len(ranks) > 1 or not 1 <= axis % max(ranks) < max(ranks) or not -max(ranks) <= axis < max(ranks):
        msg = f"axis {axis} of output {name!r} is not a channel axis of the shapes seen ({shapes[0]})"
        raise UsageError(msg, hint="axis 0 holds the rows; name one of the others")
    sizes = {shape[axis] for shape in shapes}
    if len(sizes) > 1:
        msg = f"axis {axis} of output {name!r} changes its size between batches ({min(sizes)} to {max(sizes)})"
        raise UsageError(msg, hint="name an axis of fixed size, because scales are kept per channel")
    if not max(sizes):
        msg = f"axis {axis} of output {name!r} has no entries in any batch"
        raise UsageError(msg, hint="name an axis that has entries, or leave the output out: --ignore OUTPUT=REASON")
    return axis % max(ranks)


def check_health(
    profiles: Mapping[str, OutputProfile],
    *,
    is_non_finite_declared: bool,
    first_rows: Callable[[str], Sequence[str]] = lambda _: (),
    in_samples: Callable[[str], str] = lambda _: "",
) -> tuple[Health, ...]:
    """Return findings about a reference that is fit to judge by.

    For the message of a refusal, `first_rows` returns ids of rows in which an output is not finite, and `in_samples`
    where the samples are not finite.

    Raises:
        ReferenceRefusedError: It holds undeclared non-finite values, or no output varies over the inputs.
        ZeroRowsError: No output holds a value.
    """
    floats = [profile for profile in profiles.values() if profile.is_float]
    judged = floats or list(profiles.values())
    if not any(profile.values for profile in judged):
        names = ", ".join(repr(profile.name) for profile in judged)
        msg = f"the reference's outputs hold no values: an axis of {names} has no entries in any batch"
        raise ZeroRowsError(msg, hint="nothing was measured, so nothing passes: check the samples and the outputs")
    for profile in floats:
        if not (profile.max_abs < _LARGEST_MAGNITUDE).all():
            msg = (
                f"the reference is refused: output {profile.name!r} holds values too large for their spread to be known"
            )
            raise ReferenceRefusedError(msg, hint="scale the output to below 1e150: limits depend on the spread")
    broken = [profile for profile in floats if profile.non_finite]
    if broken and not is_non_finite_declared:
        worst = broken[0]
        msg = (
            f"the reference is refused: output {worst.name!r} holds {counted(worst.non_finite, 'value')} that "
            f"{one_or_many(worst.non_finite, 'is', 'are')} NaN or infinite, of {worst.values}"
        )
        if rows := first_rows(worst.name):
            msg += f"; first at {row_names(rows)}"
        if cause := in_samples(worst.name):
            msg += f"; {cause}"
        raise ReferenceRefusedError(
            msg,
            hint="correct the model or the samples, or declare them correct: non_finite: match in the spec, "
            "or --non-finite match",
        )
    words = say("reference_finite")
    if broken:
        words = say("reference_finite.declared", count=sum(profile.non_finite for profile in broken))
    findings = [Health(name="reference_finite", words=words)]
    varying = [profile.name for profile in judged if profile.varies]
    if not varying and any(profile.varies is False for profile in judged):
        names = ", ".join(repr(profile.name) for profile in judged)
        msg = f"the reference is refused: its output is the same for every row ({names})"
        raise ReferenceRefusedError(
            msg, hint="give other samples, or check the model: a constant output matches models that learned nothing"
        )
    if varying:
        words = say("reference_varies", outputs=varying, count=len(varying))
        return (*findings, Health(name="reference_varies", words=words))
    words = say("reference_varies.not_measured")
    return (*findings, Health(name="reference_varies", kind=Kind.NOT_MEASURED, words=words))


def _check_repeat(
    folder: Path, chunks: Mapping[str, str], profiles: Mapping[str, OutputProfile], repeated: int
) -> Health:
    tolerance = DEFAULT_TOLERANCES[Precision.FP32]
    limits = {name: limits_for(tolerance, without_cap(profile)) for name, profile in profiles.items()}
    largest = 0.0
    for batch in read_chunks(folder, chunks):
        for name in profiles:
            first, second = batch.outputs[f"first/{name}"], batch.outputs[f"again/{name}"]
            ratio, difference = repeat_difference(second, first, limits[name])
            largest = max(largest, difference)
            if ratio > 1:
                limit = float(limits[name].repeat_max_abs_diff.max())
                msg = (
                    f"the reference is refused: output {name!r} differs by {difference:.3g} between two runs "
                    f"on the same input (limit {limit:.3g})"
                )
                raise ReferenceRefusedError(
                    msg, hint="put the model into evaluation mode and remove dropout and other randomness"
                )
    return Health(name="reference_repeats", words=say("reference_repeats", rows=repeated, difference=largest))
