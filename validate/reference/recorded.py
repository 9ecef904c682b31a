"""Outputs recorded elsewhere, as either side: a file with the keys of the samples, or a folder of our own recording.

Rows are matched to the samples by their order, or by case for keys `CASE/OUTPUT`. Other rows are an error, never cut.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from paritygate.batch import Batch
from paritygate.codec import from_data
from paritygate.errors import ArtifactIntegrityError, InputFileError, MeasurementError, UsageError, ZeroRowsError
from paritygate.files import digest_of_file, digest_of_files
from paritygate.signature import DTYPES, dtype_name
from paritygate.validate.measure.check import Kind
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.measure.valid_positions import ValidWhere, only_valid
from paritygate.validate.reference.broken_rows import BrokenRows
from paritygate.validate.reference.health import Health
from paritygate.validate.reference.noise_floor import NoiseFloor
from paritygate.validate.reference.padded_outputs import UndeclaredPadding
from paritygate.validate.reference.record import check_health, check_selected, check_some_left, profile_all
from paritygate.validate.reference.recording import Recording, StoredBatch
from paritygate.validate.samples.npy_stream import NpyStream, npz_names
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BLOCK_ROWS = 64


class OutputReader(Protocol):
    """One pass over recorded outputs, in step with the samples."""

    def take(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return the outputs of this batch; raise MeasurementError if there are none."""

    def end(self, samples_digest: str) -> None:
        """Check that all recorded outputs were read, for the samples they were recorded on.

        Raises:
            MeasurementError: Rows are left over.
            ArtifactIntegrityError: The samples differ from those of the recording.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedOutputs:
    """Recorded outputs of either origin; `name` is for messages.

    `digest` is that of the file or of the recording's chunks. `output_names` include outputs without a profile, which
    were not selected. `inputs` is None where unknown, `noise` too. `positions` are those that count of an output.
    `classes` of columns are those that the model names. `padding` is what undeclared masks leave out. `unread` are
    outputs that the model's signature lacks.
    """

    name: str
    digest: str
    profiles: Mapping[str, OutputProfile]
    health: tuple[Health, ...]
    output_names: frozenset[str]
    inputs: frozenset[str] | None
    open_reader: Callable[[], OutputReader]
    noise: NoiseFloor | None = None
    positions: Mapping[str, ValidWhere] = field(default_factory=dict)
    classes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    padding: Mapping[str, UndeclaredPadding] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


def expected_from_recording(recording: Recording) -> ExpectedOutputs:
    """Return the outputs of one of our own recordings."""
    noise = recording.settings.get("noise")
    return ExpectedOutputs(
        name=str(recording.folder),
        digest=digest_of_files(recording.chunks),
        profiles=recording.profiles,
        health=recording.health_checks,
        output_names=frozenset(spec.name for spec in recording.signature.outputs),
        inputs=frozenset(spec.name for spec in recording.signature.inputs),
        open_reader=lambda: _RecordingReader(recording),
        noise=None if noise is None else from_data(NoiseFloor, noise),
        positions=positions_of(recording),
        classes=recording.runtime.get("classes", {}),
        padding=padding_of(recording),
        unread=tuple(recording.runtime.get("unread", ())),
    )


def positions_of(recording: Recording) -> dict[str, ValidWhere]:
    """Return which positions of outputs count, as recorded."""
    return {name: from_data(ValidWhere, item) for name, item in recording.settings.get("valid_where", {}).items()}


def padding_of(recording: Recording) -> dict[str, UndeclaredPadding]:
    """Return what undeclared masks leave out, as recorded."""
    paddings = recording.settings.get("undeclared_padding", {})
    return {name: from_data(UndeclaredPadding, item) for name, item in paddings.items()}


def open_recording_reader(recording: Recording) -> OutputReader:
    """Start a pass over one of our own recordings."""
    return _RecordingReader(recording)


class _RecordingReader:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._batches = recording.batches()
        self._rows = 0

    def take(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        stored = next(self._batches, None)
        if stored is None or stored.rows != batch.rows or stored.case != batch.case:
            seen = "no more batches" if stored is None else f"a batch of {stored.rows} rows"
            msg = (
                f"reference and samples do not hold the same rows: after {self._rows} of {self._recording.rows} "
                f"recorded rows the reference has {seen}, the samples one of {batch.rows} rows"
            )
            raise MeasurementError(msg, hint="use the samples and the batch size that the reference was recorded with")
        self._rows += stored.rows
        return dict(stored.outputs)

    def end(self, samples_digest: str) -> None:
        if self._rows != self._recording.rows:
            msg = (
                f"reference and samples do not hold the same rows: the reference has {self._recording.rows}, "
                f"the samples {self._rows}"
            )
            raise MeasurementError(msg, hint="use the samples that the reference was recorded with")
        if samples_digest != self._recording.samples_digest:
            msg = f"the samples differ from those that {self._recording.folder} was recorded on"
            raise ArtifactIntegrityError(msg, hint="use the same samples, or record the reference again")


def expected_from_file(  # noqa: PLR0913 - one argument a choice of the user's
    path: Path,
    *,
    axes: Mapping[str, int],
    rename: Mapping[str, str],
    is_non_finite_declared: bool,
    selected: Sequence[str] = (),
    ignored: Collection[str] = (),
    positions: Mapping[str, ValidWhere] | None = None,
    read: Callable[[], Iterator[Batch]] | None = None,
) -> ExpectedOutputs:
    """Return the outputs of an npz file with keys `OUTPUT` or `CASE/OUTPUT`, if they are fit to judge by.

    `rename` maps names in the file to names compared by. `axes` are declared channel axes. `selected` outputs are
    compared, all if it is empty; `ignored` ones are not read. `read` gives the samples, whose inputs determine
    `positions`.

    Raises:
        InputFileError: The file is missing or no npz file.
        ZeroRowsError: It holds no values.
        ReferenceRefusedError: The outputs are not finite, or constant.
    """
    outputs = RecordedOutputs(path, rename, selected, ignored)
    check_selected(selected, outputs.names)
    check_some_left(set(selected or outputs.names) - set(ignored), ignored)
    shapes, dtypes = outputs.shapes_and_dtypes()
    if not dtypes:
        msg = f"recorded outputs {path} hold no arrays"
        raise ZeroRowsError(msg, hint="nothing was measured, so nothing passes: record the outputs again")
    batches = outputs.batches
    if positions and read is not None:
        batches = functools.partial(_in_step, outputs.open_reader, read, positions)
    profiles = profile_all(batches, shapes=shapes, dtypes=dtypes, axes=axes, signature=None)
    health = check_health(
        profiles,
        is_non_finite_declared=is_non_finite_declared,
        first_rows=lambda name: _broken_rows(batches()).of(name),
    )
    not_repeated = Health(name="reference_repeats", kind=Kind.NOT_MEASURED, words=say("reference_repeats.not_measured"))
    return ExpectedOutputs(
        name=str(path),
        digest=digest_of_file(path),
        profiles=profiles,
        health=(*health, not_repeated),
        output_names=outputs.names,
        inputs=None,
        open_reader=outputs.open_reader,
        positions=positions or {},
    )


def _in_step(
    open_reader: Callable[[], OutputReader], read: Callable[[], Iterator[Batch]], positions: Mapping[str, ValidWhere]
) -> Iterator[StoredBatch]:
    """Yield recorded outputs batch by batch of the samples, whose inputs determine the positions that count."""
    reader = open_reader()
    for batch in read():
        if batch.rows:
            outputs = only_valid(reader.take(batch), batch.inputs, positions)
            yield StoredBatch(rows=batch.rows, case=batch.case, outputs=outputs)


def _broken_rows(batches: Iterable[StoredBatch]) -> BrokenRows:
    """Return the first rows that are not finite, by their place in the file or their case."""
    broken, seen = BrokenRows(), 0
    for batch in batches:
        first, of_case = (seen, "") if batch.case is None else (0, f"{batch.case}/")
        broken.add([f"{of_case}{first + row}" for row in range(batch.rows)], batch.outputs, inputs={})
        seen += batch.rows
    return broken


class RecordedOutputs:
    """The arrays of an npz file, by case or as rows.

    `names` are all outputs, by the names compared by. `cases` hold by case the key of each selected output; rows are
    one case without a name.
    """

    def __init__(
        self, path: Path, rename: Mapping[str, str], selected: Sequence[str] = (), ignored: Collection[str] = ()
    ) -> None:
        self._path = path
        names = npz_names(path)
        with_case = [name for name in names if "/" in name]
        if with_case and len(with_case) < len(names):
            msg = f"recorded outputs {path} mix keys of the form CASE/OUTPUT with plain keys"
            raise InputFileError(msg, hint="name all keys CASE/OUTPUT, or none")
        self.is_by_case = bool(with_case)
        keys_of_cases: dict[str, dict[str, str]] = {}
        for key in names:
            case, _, name = key.rpartition("/")
            served = rename.get(name, name)
            other = keys_of_cases.setdefault(case, {}).setdefault(served, key)
            if other != key:
                msg = f"recorded outputs {path} hold {other!r} and {key!r}, and both would be called {served!r}"
                raise UsageError(msg, hint="rename to a name that does not exist yet")
        self.names = frozenset(name for keys in keys_of_cases.values() for name in keys)
        self._check_cases(keys_of_cases, rename)
        self.cases = {
            case: {
                name: key for name, key in keys.items() if (not selected or name in selected) and name not in ignored
            }
            for case, keys in keys_of_cases.items()
        }

    def _check_cases(self, cases: Mapping[str, Mapping[str, str]], rename: Mapping[str, str]) -> None:
        own = {key.rpartition("/")[2] for keys in cases.values() for key in keys.values()}
        for name in rename:
            if name not in own:
                msg = (
                    f"{name!r} cannot be renamed {rename[name]!r} because recorded outputs {self._path} have "
                    "no such output"
                )
                raise UsageError(msg, hint=f"they hold: {', '.join(sorted(own)) or 'none'}")
        for case, keys in cases.items():
            for name in sorted(self.names - keys.keys()):
                msg = f"recorded outputs {self._path} lack {name!r} in case {case!r}, which other cases have"
                raise MeasurementError(msg, hint="record the same outputs for every case")

    def shapes_and_dtypes(self) -> tuple[dict[str, list[tuple[int, ...]]], dict[str, str]]:
        """Return the distinct shapes and the dtype of each output, from headers alone."""
        shapes: dict[str, list[tuple[int, ...]]] = {}
        dtypes: dict[str, str] = {}
        for keys in self.cases.values():
            for name, key in keys.items():
                stream = NpyStream(self._path, key)
                dtype = dtype_name(stream.dtype)
                if dtypes.setdefault(name, dtype) != dtype:
                    both = f"{dtypes[name]} in one case, {stream.dtype} in another"
                    msg = f"recorded outputs {self._path}: {name!r} is {both}"
                    raise MeasurementError(msg, hint="an output must have one dtype")
                if dtype not in DTYPES:
                    msg = f"recorded outputs {self._path}: {name!r} is of dtype {stream.dtype}, which is not compared"
                    raise MeasurementError(
                        msg, hint="keep outputs of numbers and text only, or select them with --outputs NAME"
                    )
                if stream.shape not in shapes.setdefault(name, []):
                    shapes[name].append(stream.shape)
        return shapes, dtypes

    def batches(self) -> Iterator[StoredBatch]:
        """Yield the outputs of the file, case by case, or in blocks of rows."""
        for case, keys in self.cases.items():
            streams = {name: NpyStream(self._path, key) for name, key in keys.items()}
            sizes = {stream.rows for stream in streams.values()}
            if self.is_by_case or None in sizes or len(sizes) > 1:
                arrays = {name: stream.take(None) for name, stream in streams.items()}
                rows = next(iter(sizes)) if len(sizes) == 1 else 1
                yield StoredBatch(rows=rows or 1, case=case or None, outputs=arrays)
                continue
            total = sizes.pop() or 0
            for start in range(0, total, _BLOCK_ROWS):
                rows = min(_BLOCK_ROWS, total - start)
                yield StoredBatch(
                    rows=rows, case=None, outputs={name: stream.take(rows) for name, stream in streams.items()}
                )

    def open_reader(self) -> OutputReader:
        """Start a pass."""
        return (
            _CaseReader(self._path, self.cases) if self.is_by_case else _RowReader(self._path, self.cases.get("", {}))
        )


class _CaseReader:
    def __init__(self, path: Path, cases: Mapping[str, Mapping[str, str]]) -> None:
        self._path = path
        self._left = dict(cases)

    def take(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        if batch.case not in self._left:
            msg = f"recorded outputs {self._path} hold no case {batch.case!r}, which the samples have"
            raise MeasurementError(msg, hint="record the outputs of every case of the samples")
        keys = self._left.pop(batch.case)
        return {name: NpyStream(self._path, key).take(None) for name, key in keys.items()}

    def end(self, samples_digest: str) -> None:
        del samples_digest  # The file says nothing of the inputs it was recorded on.
        # A case without rows is in no batch of the samples either.
        left = sorted(
            case
            for case, keys in self._left.items()
            if any(NpyStream(self._path, key).rows != 0 for key in keys.values())
        )
        if left:
            listed = ", ".join(left[:3])
            msg = f"recorded outputs {self._path} hold {len(left)} cases that the samples lack ({listed})"
            raise MeasurementError(msg, hint="give the samples that the outputs were recorded on")


class _RowReader:
    def __init__(self, path: Path, keys: Mapping[str, str]) -> None:
        self._path = path
        self._streams = {name: NpyStream(path, key) for name, key in keys.items()}
        self._taken = 0

    def take(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        for name, stream in self._streams.items():
            if stream.rows is None:
                msg = f"recorded outputs {self._path}: {name!r} is a scalar, which has no rows"
                raise MeasurementError(msg, hint="record it by batch, under keys of the form CASE/OUTPUT")
            left = stream.rows - self._taken
            if left < batch.rows:
                msg = (
                    f"the same rows are needed on both sides: recorded outputs {self._path} hold {stream.rows} rows "
                    f"of {name!r}, the samples more than that"
                )
                raise MeasurementError(msg, hint="record the outputs of all samples")
        self._taken += batch.rows
        return {name: stream.take(batch.rows) for name, stream in self._streams.items()}

    def end(self, samples_digest: str) -> None:
        del samples_digest  # The file says nothing of the inputs it was recorded on.
        for name, stream in self._streams.items():
            if stream.rows != self._taken:
                msg = (
                    f"the same rows are needed on both sides: recorded outputs {self._path} hold {stream.rows} rows "
                    f"of {name!r}, the samples {self._taken}"
                )
                raise MeasurementError(msg, hint="give the samples that the outputs were recorded on")
