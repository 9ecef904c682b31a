"""Outputs on disk, in chunks, as a recorded reference has them.

A recording is a folder of safetensors chunks with keys `BATCH/OUTPUT`, and a `record.json` with the digest of each. The
folder is complete once `record.json` exists.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.codec import from_json, read_sealed, sealed, to_data
from paritygate.errors import ArtifactIntegrityError, InputFileError, MeasurementError
from paritygate.file_names import check_names
from paritygate.files import corrupt_errors, digest_of_file, parse_json, storage_errors, write_json_atomically
from paritygate.signature import DTYPES, Signature, dtype_name
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.reference.health import Health
from paritygate.validate.reference.recorded_outputs import RECORD_FILE

Outputs = dict[str, NDArray[np.generic]]

FORMAT_VERSION = 3
_CHUNK_BYTES = 16 << 20
_CHUNK_BATCHES = 4096
_CODE_POINT, _CODE_POINT_BYTES = "<u4", 4
# The number of distinct shapes that are stored of an output: enough to tell fixed from varying dims.
_SHAPES_KEPT = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredBatch:
    """The outputs of one batch as stored; `samples_digest` is that of its inputs, empty where none was stored."""

    rows: int
    case: str | None
    outputs: Arrays
    samples_digest: str = ""


class ChunkWriter:
    """Writes outputs batch by batch into chunk files of a bounded size."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pending: Outputs = {}
        self._pending_batches: list[dict[str, Any]] = []
        self._pending_bytes = 0
        self.chunks: dict[str, str] = {}
        self.shapes: dict[str, list[tuple[int, ...]]] = {}
        self.dtypes: dict[str, str] = {}

    def add(self, outputs: Arrays, *, rows: int, case: str | None, samples_digest: str = "") -> None:
        """Store the outputs of one batch, and the digest of its inputs if given.

        Raises:
            MeasurementError: An output changes its dtype, or is of a kind that is not stored.
            StorageError: The disk is full.
        """
        at = len(self._pending_batches)
        for name, array in outputs.items():
            self._note_shape(name, array)
            # ascontiguousarray would make a vector of a scalar.
            ordered = np.asarray(array, order="C")
            self._pending[f"{at}/{name}"] = _as_code_points(ordered) if ordered.dtype.kind == "U" else ordered
            self._pending_bytes += array.nbytes
        texts = [name for name, array in outputs.items() if array.dtype.kind == "U"]
        optional = {"texts": texts, "samples": samples_digest}
        given = {name: value for name, value in optional.items() if value}
        self._pending_batches.append({"rows": rows, "case": case, **given})
        if self._pending_bytes >= _CHUNK_BYTES or len(self._pending_batches) >= _CHUNK_BATCHES:
            self.flush()

    def _note_shape(self, name: str, array: NDArray[np.generic]) -> None:
        dtype = dtype_name(array.dtype)
        if dtype not in DTYPES:
            msg = f"output {name!r} is of dtype {dtype}, which is not compared"
            hint = f"leave it out: outputs: {{{name}: {{ignore: REASON}}}} in the spec, or --outputs with others"
            raise MeasurementError(msg, hint=hint)
        if self.dtypes.setdefault(name, dtype) != dtype:
            msg = f"output {name!r} changes its dtype from {self.dtypes[name]} to {dtype} between batches"
            raise MeasurementError(msg, hint="an output must have one dtype")
        shapes = self.shapes.setdefault(name, [])
        if array.shape not in shapes and len(shapes) < _SHAPES_KEPT:
            shapes.append(array.shape)

    def flush(self) -> None:
        """Write pending batches as one chunk."""
        if not self._pending_batches:
            return
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        path = self._folder / f"chunk-{len(self.chunks):06d}.safetensors"
        with storage_errors(path):
            try:
                save_file(self._pending, str(path), metadata={"batches": json.dumps(self._pending_batches)})
            except SafetensorError as err:
                # The library reports a full disk as an error of its own.
                raise _as_storage_error(err) from err
        self.chunks[path.name] = digest_of_file(path)
        self._pending, self._pending_batches, self._pending_bytes = {}, [], 0


def _as_code_points(texts: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return text as code points, with an axis as long as the longest text: safetensors holds no text."""
    width = texts.dtype.itemsize // _CODE_POINT_BYTES
    return np.frombuffer(texts.tobytes(), dtype=_CODE_POINT).reshape(*texts.shape, width)


def _as_text(code_points: NDArray[np.generic]) -> NDArray[np.generic]:
    return np.frombuffer(code_points.tobytes(), dtype=f"<U{code_points.shape[-1]}").reshape(code_points.shape[:-1])


def _as_storage_error(err: Exception) -> OSError:
    import errno

    text = str(err)
    code = errno.ENOSPC if "os error 28" in text or "No space left" in text else errno.EIO
    return OSError(code, text)


def read_chunks(folder: Path, chunks: Mapping[str, str]) -> Iterator[StoredBatch]:
    """Yield every stored batch in order; raise ArtifactIntegrityError where a chunk is missing or changed."""
    from safetensors import SafetensorError

    for name, digest in chunks.items():
        path = folder / name
        if path.parent != folder:
            raise corrupt_recording(f"recorded outputs in {folder} name a chunk outside it: {name!r}")
        if not path.is_file() or digest_of_file(path) != digest:
            state = "was changed" if path.is_file() else "is missing"
            raise corrupt_recording(f"recorded outputs in {folder} are corrupt: {name} {state}")
        try:
            yield from _read_chunk(path)
        except (SafetensorError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as err:
            raise corrupt_recording(f"{path} is not a chunk of recorded outputs: {err}") from err


def corrupt_recording(msg: str) -> ArtifactIntegrityError:
    """Return the error about recorded outputs that are not as they were written."""
    return ArtifactIntegrityError(msg, hint="record the reference again", command="convert-and-validate record")


def _read_chunk(path: Path) -> Iterator[StoredBatch]:
    from safetensors import safe_open

    with safe_open(str(path), framework="np") as file:
        batches = parse_json(file.metadata()["batches"])
        keys: dict[int, list[str]] = {}
        for key in file.keys():  # noqa: SIM118 - it is not a mapping
            keys.setdefault(int(key.partition("/")[0]), []).append(key)
        for at, batch in enumerate(batches):
            outputs = {key.partition("/")[2]: file.get_tensor(key) for key in sorted(keys.get(at, []))}
            outputs |= {name: _as_text(outputs[name]) for name in batch.get("texts", ())}
            yield StoredBatch(
                rows=batch["rows"], case=batch["case"], outputs=outputs, samples_digest=batch.get("samples", "")
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """The recorded outputs of a model on some samples, bound to both by digest.

    `chunks` hold the digest of each file. `samples_digest` is by `BatchDigest`. `model` holds source, digest and notes.
    `health` are findings as `(name, sentence)`, `health_checks` as facts. `settings` are the choices made when it was
    recorded.
    """

    folder: Path
    chunks: Mapping[str, str]
    rows: int
    samples_digest: str
    model: Mapping[str, Any]
    runtime: Mapping[str, Any]
    signature: Signature
    shapes: Mapping[str, list[tuple[int, ...]]]
    dtypes: Mapping[str, str]
    profiles: Mapping[str, OutputProfile]
    health: tuple[tuple[str, str], ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    health_checks: tuple[Health, ...] = ()

    @property
    def hangs_on_batch(self) -> bool:
        """Return whether outputs of samples changed in other batches, or no run measured that."""
        is_measured = self.settings.get("noise", {}).get("why_no_batches") == ""
        return not is_measured or any(name == "reference_batch" for name, _ in self.health)

    def batches(self) -> Iterator[StoredBatch]:
        """Yield every batch, checking digests on the way."""
        return read_chunks(self.folder, self.chunks)

    @property
    def digest(self) -> str:
        """Return the digest over chunks, profiles, samples, settings, and probes by their own digest."""
        return str(self._sealed()["digest"])

    def save(self) -> None:
        """Write `record.json`, after which the folder is a recording."""
        # Limits follow from the profiles, so these must not be edited.
        write_json_atomically(self.folder / RECORD_FILE, self._sealed())

    def _sealed(self) -> dict[str, Any]:
        data = to_data(self)
        del data["folder"]
        return sealed(data, version=FORMAT_VERSION)

    @classmethod
    def load(cls, folder: Path) -> Recording:
        """Return the recording in `folder`; chunks are checked when they are read.

        Raises:
            InputFileError: There is no recording, or it is of another format.
            ArtifactIntegrityError: It was changed after it was written.
        """
        path = folder / RECORD_FILE
        if not path.is_file():
            msg = f"{folder} holds no recorded outputs: {RECORD_FILE} is missing"
            raise InputFileError(msg, hint="record them with", command="convert-and-validate record")
        return _recording_of(path, path.read_bytes())


# The stages of a run read one recording: the same bytes are parsed once.
@functools.lru_cache(maxsize=4)
def _recording_of(path: Path, content: bytes) -> Recording:
    again = "record the reference again: convert-and-validate record"
    data = read_sealed(path, content, version=FORMAT_VERSION, again=again)
    with corrupt_errors(path, hint=again):
        recording = from_json(Recording, {**data, "folder": str(path.parent)})
        check_names([*recording.chunks, *recording.model.get("files", ())])
    return recording
