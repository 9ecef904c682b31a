"""Recording the reference's answers to the probes, and dropping what it does not answer finitely and repeatably."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from paritygate.errors import BackendError, MeasurementError, UsageError
from paritygate.precision import Precision
from paritygate.signature import is_float_dtype
from paritygate.validate.measurement import repeat_difference
from paritygate.validate.probes.probe import PROBES, Probe, ProbeBatch, ProbeContext
from paritygate.validate.probes.recording import (
    INPUT,
    OUTPUT,
    BatchRecord,
    Dropped,
    ProbeRecord,
    ProbesRecording,
)
from paritygate.validate.profile import OutputProfile
from paritygate.validate.recording import ChunkWriter, StoredBatch, read_chunks
from paritygate.validate.reference import profile_all
from paritygate.validate.tolerance import DEFAULT_TOLERANCES, limits_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.runners.runner import Runner

    Outputs = Mapping[str, NDArray[np.generic]]

__all__ = ["ProbePlan", "record_probes"]

# More than this many that were dropped are counted, not named.
_DROPPED_KEPT = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbePlan:
    """What to ask the reference.

    Attributes:
        context: What to derive from.
        profiles: The profile of each output that is compared, on the samples: what two runs may differ by.
        folder: The folder to write into; it exists and is empty.
        names: The probes to make, by the table.
    """

    context: ProbeContext
    profiles: Mapping[str, OutputProfile]
    folder: Path
    names: tuple[str, ...] = tuple(PROBES)


def record_probes(
    runner: Runner, plan: ProbePlan, *, progress: Callable[[str, int], None] = lambda *_: None
) -> ProbesRecording:
    """Derive the probes, run the reference over them and store what it answers.

    Args:
        runner: The reference, loaded.
        plan: What to ask.
        progress: Called with the probe and the number of its rows done so far.

    Raises:
        StorageError: The disk is full.
    """
    context = plan.context
    texts = [spec.name for spec in context.signature.inputs if spec.dtype == "string"]
    skipped = f"input {texts[0]!r} holds texts, which no probe derives" if texts else ""
    if not context.survey.groups:
        skipped = "the samples hold no rows"
    wanted = [name for name in PROBES if name in plan.names and not skipped]
    recording = ProbesRecording(
        folder=plan.folder,
        probes=tuple(_record(runner, plan, name, progress) for name in wanted),
        roles=context.roles,
        skipped=skipped,
        seed=context.seed,
    )
    recording.save()
    return recording


def _record(runner: Runner, plan: ProbePlan, name: str, progress: Callable[[str, int], None]) -> ProbeRecord:
    started = time.monotonic()
    folder = plan.folder / name
    folder.mkdir()
    probe = cast("Probe", importlib.import_module(PROBES[name].module))
    writer = ChunkWriter(folder)
    batches: list[BatchRecord] = []
    dropped: list[Dropped] = []
    rows = 0
    for batch in probe.derive(plan.context):
        outputs = _answered(runner, batch, plan.profiles)
        if isinstance(outputs, str):
            dropped.append(Dropped(about=batch.about, reason=outputs))
        else:
            answers = {f"{OUTPUT}{key}": outputs[key] for key in plan.profiles}
            asked = {f"{INPUT}{key}": array for key, array in batch.inputs.items()}
            writer.add({**asked, **answers}, rows=batch.rows, case=None)
            batches.append(BatchRecord(rows=batch.rows, about=batch.about, is_beyond_seen=batch.is_beyond_seen))
        rows += batch.rows
        progress(name, rows)
    writer.flush()
    return ProbeRecord(
        name=name,
        batches=tuple(batches),
        dropped=_bounded(dropped),
        profiles=_profiles(folder, writer.chunks, [not item.is_beyond_seen for item in batches], plan.profiles),
        profiles_beyond=_profiles(folder, writer.chunks, [item.is_beyond_seen for item in batches], plan.profiles),
        chunks=writer.chunks,
        seconds=time.monotonic() - started,
    )


def _bounded(dropped: list[Dropped]) -> tuple[Dropped, ...]:
    more = len(dropped) - _DROPPED_KEPT
    rest = [Dropped(about=f"{more} more batches", reason="not named here")] if more > 0 else []
    return (*dropped[:_DROPPED_KEPT], *rest)


def _answered(runner: Runner, batch: ProbeBatch, profiles: Mapping[str, OutputProfile]) -> Outputs | str:
    """Return the reference's answer, or why it counts for nothing."""
    try:
        first = runner.run(batch.inputs)
        again = runner.run(batch.inputs)
    except (BackendError, UsageError, MeasurementError) as err:
        return f"the reference does not answer: {err}"
    for name, profile in profiles.items():
        if name not in first or first[name].dtype.name != profile.dtype:
            return f"the reference answers without {name!r} in {profile.dtype}"
        if is_float_dtype(profile.dtype) and not np.isfinite(first[name].astype(np.float64)).all():
            return f"the reference answers {name!r} with NaN or infinity"
        ratio, difference = repeat_difference(
            again[name], first[name], profile, limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile)
        )
        if ratio > 1:
            return f"the reference differs from itself by {difference:.3g} in {name!r}"
    return first


def _profiles(
    folder: Path, chunks: Mapping[str, str], chosen: Sequence[bool], profiles: Mapping[str, OutputProfile]
) -> dict[str, OutputProfile]:
    """Return the profiles of the answers to the chosen batches, by the same channels as on the samples if they fit."""
    if not any(chosen):
        return {}

    def read() -> Iterator[StoredBatch]:
        for is_chosen, batch in zip(chosen, read_chunks(folder, chunks), strict=True):
            if is_chosen:
                outputs = {key[len(OUTPUT) :]: value for key, value in batch.outputs.items() if key.startswith(OUTPUT)}
                yield StoredBatch(rows=batch.rows, case=batch.case, outputs=outputs)

    shapes: dict[str, list[tuple[int, ...]]] = {name: [] for name in profiles}
    for batch in read():
        for name, array in batch.outputs.items():
            shapes[name] += [array.shape] if array.shape not in shapes[name] else []
    axes = {
        name: profile.axis
        for name, profile in profiles.items()
        if profile.axis is not None and len({shape[profile.axis] for shape in shapes[name]}) == 1
    }
    dtypes = {name: profile.dtype for name, profile in profiles.items()}
    return profile_all(read, shapes=shapes, dtypes=dtypes, axes=axes, signature=None)
