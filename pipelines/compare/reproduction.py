"""Save a batch that a candidate failed, and make the command that repeats the failure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.codec import to_data
from paritygate.files import make_marked_folder, storage_errors
from paritygate.models.source import ModelRef, SourceKind
from paritygate.models.source_copy import is_source_copy
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.rules.gate_rules import rules_of_outputs, words_of_roles, words_of_rules
from paritygate.pipelines.rules.table import Scope
from paritygate.text import from_here, in_full
from paritygate.validate.probes.catalogue import SESSION_PROBES
from paritygate.validate.probes.outcome import ProbeFailure
from paritygate.validate.probes.recording import ProbesRecording, StoredProbeBatch
from paritygate.validate.probes.run import FailedBatch

Arrays = Mapping[str, NDArray[np.generic]]

_PROBE, _VARIED = "probe", "varied"
_LIMITS = frozenset({"max_abs_diff", "mean_abs_diff", "max_row_rel_diff"})


class FailureStore:
    """Writes failed batches: inputs, and both models' outputs in files next to them.

    Where all rows of a batch have the same outputs, a batch of real rows is added, because a reference with constant
    outputs is refused.
    """

    def __init__(self, job: ComparisonJob, recording: ProbesRecording) -> None:
        self._job = job
        self._recording = recording
        self._commands: dict[str, str] = {}

    def keep(self, probe: str, failed: FailedBatch) -> str:
        """Write the batch and return the path of its inputs; empty without a folder, or where it cannot be written.

        Raises:
            StorageError: The disk is full.
        """
        folder = self._job.failures
        if folder is None or not all(_is_storable(name, array) for name, array in failed.stored.inputs.items()):
            return ""
        varied = None if _varies(failed.stored.outputs) else self._varied_batch()
        path = folder / f"{probe}-{failed.at}.npz"
        with storage_errors(folder, elsewhere="name another folder with --failures"):
            make_marked_folder(folder)
            _write(path, failed.stored.inputs, None if varied is None else varied.inputs)
            _write(_expected(path), failed.stored.outputs, None if varied is None else varied.outputs)
            if failed.actual is not None:
                _write(path.with_suffix(".actual.npz"), failed.actual, None)
        self._commands[str(path)] = _command_of_batch(self._job, probe, failed, path)
        return str(path)

    def again(self, probe: str, failure: ProbeFailure) -> str:
        """Return the command that repeats a failure, of the whole probe where the batch was not saved."""
        # A failure of all batches together has no file.
        return self._commands.get(failure.inputs) or command_of_probe(self._job, probe, keeps=failure.batch >= 0)

    def _varied_batch(self) -> StoredProbeBatch | None:
        fallback = None
        for probe in self._recording.probes:
            for stored in self._recording.batches(probe):
                record = stored.record
                if record.is_beyond_seen or not _varies(stored.outputs):
                    continue
                # Rows unlike the samples may fail by themselves as samples.
                if not (record.is_unlike_seen or record.edges):
                    return stored
                fallback = fallback or stored
        return fallback


def _is_storable(name: str, array: NDArray[np.generic]) -> bool:
    # A slash separates case and name, and NumPy's files have no bfloat16.
    return "/" not in name and array.dtype.kind in "biufU"


def _varies(outputs: Arrays) -> bool:
    return any(len(array) > 1 and not (array == array[:1]).all() for array in outputs.values() if array.ndim)


def _write(path: Path, arrays: Arrays, varied: Arrays | None) -> None:
    # Masked positions are written too, because NumPy's files have no masked arrays.
    parts = {f"{_PROBE}/{name}": np.asarray(array) for name, array in arrays.items()}
    parts |= {f"{_VARIED}/{name}": np.asarray(array) for name, array in (varied or {}).items()}
    np.savez_compressed(path, **parts)  # type: ignore[arg-type]  # keys are free in a mapping


def _expected(path: Path) -> Path:
    return path.with_suffix(".expected.npz")


def command_of_probe(job: ComparisonJob, probe: str, *, keeps: bool = True) -> str:
    """Return the command, or the call in Python, that repeats a probe, and saves failures if `keeps`."""
    if job.again == "":
        return f"paritygate.compare(..., probes=[{probe!r}])"
    if job.again is not None:
        return f"{job.again} --probes {probe}"
    words = ["compare", _place(job.reference), _place(job.candidate)]
    # Probes depend on the seed.
    words += ["--probes", probe, *_options(job, job.rules.outputs, Scope.PROBES), *words_of_roles(job.roles)]
    words += job.samples.options
    # The command names the folder, which has no such batch yet.
    words += ["--failures", str(job.failures or "failures")] if keeps else []
    return _joined(words)


def _command_of_batch(job: ComparisonJob, probe: str, failed: FailedBatch, path: Path) -> str:
    model = job.candidate
    is_object = job.is_here or model.kind is SourceKind.CALLABLE
    if probe in SESSION_PROBES or model.is_recorded or is_source_copy(model) or is_object:
        # Inputs alone do not repeat a sequence of calls, and only the spec has the names of some models.
        return command_of_probe(job, probe)
    # A label that is an inferred argmax is compared by its scores again, not exactly.
    job = replace(job, rules=replace(job.rules, argmax_of=failed.argmax_of or job.rules.argmax_of))
    is_recorded = job.reference.is_recorded
    if is_recorded and not all(_is_storable(name, array) for name, array in failed.stored.outputs.items()):
        return command_of_probe(job, probe)
    reference = str(_expected(path)) if is_recorded else _place(job.reference)
    outputs = _outputs_alone(job, failed)
    words = ["compare", reference, _place(job.candidate), "--samples", str(path), "--probes", "none"]
    words += _options(job, outputs)
    # As samples, such rows may count as padding, which is excused.
    words += ["--edge", "fail"] if failed.edges else []
    if failed.limit is not None and failed.check in _LIMITS and failed.check not in job.rules.tolerance.declared:
        # Alone, the batch would scale its own limits.
        words += ["--tolerance", f"{failed.check}={failed.limit!r}"]
    return _joined(words)


def _outputs_alone(job: ComparisonJob, failed: FailedBatch) -> tuple[str, ...]:
    if failed.output is None:
        # A refusal, or detections, which are several outputs.
        return job.rules.outputs
    scores = job.rules.argmax_of.get(failed.output)
    # A label needs its scores in the comparison.
    return (failed.output,) if scores is None else (failed.output, scores)


def _joined(words: Sequence[str]) -> str:
    return shlex.join(["convert-and-validate", *words])


def _place(model: ModelRef) -> str:
    if model.kind is SourceKind.ENDPOINT:
        return model.text
    if model.dims:
        # Its path does not show its dims, which some probes need.
        return model.name
    place = model.path.resolve()
    return model.name if Path(model.name).resolve() == place else str(place)


def _repositories(job: ComparisonJob) -> list[str]:
    """Return the repository of a released model: a variant is at store/MODEL/VERSION/VARIANT in it."""
    released = next((model for model in (job.reference, job.candidate) if model.dims), None)
    if released is None:
        return []
    # The code of a copied source is in a folder below its variant's.
    place, variant = released.folder.resolve(), released.name.rpartition("/")[2]
    folder = next(folder for folder in (place, *place.parents) if folder.name == variant)
    # A local copy of a release in an object store has the address beside it.
    origin = folder.parents[1] / "repository"
    return [origin.read_text(encoding="utf-8") if origin.is_file() else from_here(folder.parents[3])]


def _endpoint_limits(job: ComparisonJob) -> list[str]:
    limits = job.candidate.endpoint_limits or job.reference.endpoint_limits
    return [] if limits is None else [f"{name}={in_full(value)}" for name, value in to_data(limits).items()]


def _mappings(job: ComparisonJob) -> list[str]:
    mappings = [model.endpoint_json for model in (job.candidate, job.reference)]
    return [mapping.file for mapping in mappings if mapping is not None and mapping.file][:1]


def _options(job: ComparisonJob, outputs: Sequence[str], *scopes: Scope) -> Iterator[str]:
    """Yield the options for the rules, models and device, where these outputs are compared.

    Probes have no gold, so there is no `--gold`. `--min-rows` and `--repeat` judge only samples.
    """
    sides = (("reference", job.reference), ("candidate", job.candidate))
    pairs = [
        ("--repository", _repositories(job)),
        ("--map", [f"{own}={served}" for own, served in job.candidate.rename.items()]),
        ("--signature", [f"{side}={model.signature_key}" for side, model in sides if model.signature_key is not None]),
        ("--endpoint", _endpoint_limits(job)),
        ("--endpoint-json", _mappings(job)),
        ("--device", [job.device] if job.device != "cpu" else []),
        ("--provider", [job.candidate.provider] if job.candidate.provider is not None else []),
    ]
    yield from words_of_rules(rules_of_outputs(job.rules, outputs), Scope.OUTPUTS, Scope.LIMITS, *scopes)
    for option, values in pairs:
        for value in values:
            yield from (option, value)
    if job.is_emulated:
        yield "--emulate"
