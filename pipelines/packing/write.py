"""Write a pack; every file is digested first, and again while it is written."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from paritygate import __version__
from paritygate.errors import ArtifactIntegrityError, InputFileError, ParitygateError, UsageError
from paritygate.file_names import why_not_names
from paritygate.files import digest_of_file, read_json, storage_errors
from paritygate.pipelines.packing.contents import check_run, files_of_run
from paritygate.pipelines.packing.inputs import RunInputs, inputs_of, moved_spec
from paritygate.pipelines.packing.manifest import (
    END,
    INPUTS,
    MANIFEST_NAME,
    RUN,
    SPEC_MEMBER,
    PackedFile,
    PackManifest,
    header_of,
    padding_of,
)
from paritygate.pipelines.packing.read import amount_done, read_manifest
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.validate.probes.recording import PROBES_FOLDER, ProbesRecording

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class PackResult:
    """A written pack."""

    path: Path
    manifest: PackManifest

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        return {
            "pack": str(self.path),
            "model": self.manifest.model,
            "run_id": self.manifest.run_id,
            "digest": self.manifest.digest,
            "files": len(self.manifest.files),
            "inputs": [file.name for file in self.manifest.files if file.name.startswith(f"{INPUTS}/")],
            "missing": [file.name for file in self.manifest.missing],
            "needs_samples": self.manifest.needs_samples,
            "modules": list(self.manifest.modules),
            "content_bytes": self.manifest.content_bytes,
            "pack_bytes": self.manifest.pack_bytes,
        }


def pack_run(
    run: RunFolder, *, output: Path | None = None, with_inputs: bool = True, progress: Progress = lambda *_: None
) -> PackResult:
    """Write one file of a run folder, with the same bytes for the same run.

    The default `output` is `<model>-<run-id>.paritygate.tar` in the current folder. `with_inputs` packs the files that
    the spec names too, but never where the spec hides inputs.

    Raises:
        ArtifactIntegrityError: The run is not as recorded, or changes while it is packed.
        InputFileError: An input is missing.
        MeasurementError: A stage of the run is half written.
        UsageError: The inputs are not one spec's, a name cannot be packed, `output` is in the run or not a pack of it,
            or the recording holds inputs to hide.
        StorageError: It cannot be written.
    """
    output = output or Path(f"{run.resolved.name}-{run.run_id}.paritygate.tar")
    _check_output(run, output)
    progress("checking the run", 0, 0)
    digests = check_run(run)
    inputs = inputs_of(run)
    if run.resolved.hides_inputs(is_leaving=False):
        _check_hidden(run)
        with_inputs = False
    is_hiding = not with_inputs and run.resolved.hides_inputs(is_leaving=True)
    spec = _travelling_spec(run, inputs, with_inputs=with_inputs)
    files = files_of_run(run, is_hiding=is_hiding)
    sources: dict[str, Path | bytes] = {f"{RUN}/{name}": source for name, source in files.items()}
    sources[SPEC_MEMBER] = spec
    if with_inputs:
        sources |= {f"{INPUTS}/{place}": path for place, path in inputs.files.items()}
    _check_names(sources)
    sources = dict(sorted(sources.items()))
    missing, needs_samples = ((), None) if with_inputs else _left_out(inputs)
    manifest = PackManifest(
        paritygate=__version__,
        model=run.resolved.name,
        run_id=run.run_id,
        files=tuple(_packed_file(name, source, digests) for name, source in sources.items()),
        missing=missing,
        needs_samples=needs_samples,
        modules=inputs.modules,
    )
    _write(output, manifest, sources, progress)
    return PackResult(path=output.resolve(), manifest=manifest)


def _check_hidden(run: RunFolder) -> None:
    """Check that the recording, which is packed unchanged, holds nothing made of the samples' inputs."""
    folder = run.reference / PROBES_FOLDER
    if folder.is_dir() and any(probe.chunks for probe in ProbesRecording.load(folder).probes):
        msg = (
            f"{folder} holds inputs that probes made from the samples, which validation needs, "
            "but the spec hides inputs: report: {inputs: hide}"
        )
        hint = (
            "start a run without probes, and pack that run: convert-and-validate run "
            f"{shlex.quote(run.resolved.origin)} --probes none. Or remove report: {{inputs: hide}} from the "
            "spec and start a new run"
        )
        raise UsageError(msg, hint=hint)


def _check_output(run: RunFolder, output: Path) -> None:
    if output.resolve().is_relative_to(run.folder):
        raise UsageError(f"{output} is in the run folder that is packed", hint="name a file elsewhere with --output")
    if not output.exists():
        return
    try:
        is_same_run = read_manifest(output).run_id == run.run_id
    except (ParitygateError, OSError):
        is_same_run = False
    if not is_same_run:
        msg = f"{output} exists and is not a pack of this run, so it is not overwritten"
        raise UsageError(msg, hint="name another file with --output")


def _travelling_spec(run: RunFolder, inputs: RunInputs, *, with_inputs: bool) -> bytes:
    """Return the run's spec without places of this machine, as far as its inputs are packed."""
    data = read_json(run.folder / "spec.json")
    origin = Path(data["origin"])
    moved = {
        **data,
        "spec": moved_spec(data["spec"], inputs.texts) if with_inputs else data["spec"],
        "folder": INPUTS,
        "origin": origin.name if origin.suffix else data["origin"],
        "samples_path": None if inputs.samples is None else f"{INPUTS}/{inputs.samples}",
    }
    return (json.dumps(moved, indent=2, ensure_ascii=False) + "\n").encode()


def _check_names(names: Mapping[str, object]) -> None:
    bad = why_not_names(names)
    if bad is not None:
        msg = f"{bad[0]!r} cannot be packed: the name {bad[1]}"
        raise UsageError(msg, hint="rename it; a spec's files may also be left out with --without-inputs")


def _packed_file(name: str, source: Path | bytes, known: Mapping[Path, str]) -> PackedFile:
    if isinstance(source, bytes):
        return PackedFile(name=name, size=len(source), digest=f"sha256:{hashlib.sha256(source).hexdigest()}")
    try:
        return PackedFile(name=name, size=source.stat().st_size, digest=known.get(source) or digest_of_file(source))
    except OSError as err:
        msg = f"{source} cannot be read: {err.strerror}"
        raise InputFileError(msg, hint="check its permissions, and that nothing else uses the run") from err


def _left_out(inputs: RunInputs) -> tuple[tuple[PackedFile, ...], str | None]:
    """Return the files left out, and the name of the command line's samples if they are left out."""
    samples = inputs.samples
    is_given_apart = samples is not None and any(
        inputs.names[place] != place for place in inputs.files if place == samples or place.startswith(f"{samples}/")
    )
    files = {
        place: path
        for place, path in inputs.files.items()
        if not (is_given_apart and (place == samples or place.startswith(f"{samples}/")))
    }
    missing = tuple(_packed_file(inputs.names[place], path, {}) for place, path in files.items())
    return missing, Path(samples).name if is_given_apart and samples is not None else None


def _write(output: Path, manifest: PackManifest, sources: Mapping[str, Path | bytes], progress: Progress) -> None:
    temporary = output.with_name(f".{output.name}.{secrets.token_hex(4)}.tmp")
    with storage_errors(output, elsewhere="name another file with --output"):
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as stream:
                _write_members(stream, manifest, sources, progress)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(output)
        finally:
            temporary.unlink(missing_ok=True)


def _write_members(
    stream: BinaryIO, manifest: PackManifest, sources: Mapping[str, Path | bytes], progress: Progress
) -> None:
    text = manifest.to_bytes()
    stream.write(header_of(MANIFEST_NAME, len(text)) + text + padding_of(len(text)))
    report = amount_done("packing", manifest.content_bytes, progress)
    for file in manifest.files:
        stream.write(header_of(file.name, file.size))
        _write_content(stream, file, sources[file.name], report)
        stream.write(padding_of(file.size))
    stream.write(END)


def _write_content(stream: BinaryIO, file: PackedFile, source: Path | bytes, report: Callable[[int], None]) -> None:
    if isinstance(source, bytes):
        stream.write(source)
        return
    state, size = hashlib.sha256(), 0
    try:
        with source.open("rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                state.update(chunk)
                size += len(chunk)
                stream.write(chunk)
                report(len(chunk))
    except FileNotFoundError:
        size = -1
    if size != file.size or f"sha256:{state.hexdigest()}" != file.digest:
        msg = f"{source} was changed while it was packed"
        raise ArtifactIntegrityError(msg, hint="pack again once nothing writes to the run or to its inputs")
