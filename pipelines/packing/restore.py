"""Restore a run from a pack: staged next to its place, bound to this machine, and renamed once it is checked."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.errors import ArtifactIntegrityError, InputFileError, UsageError
from paritygate.file_names import check_names
from paritygate.files import (
    MARKER,
    digest_of_file,
    fsync_tree,
    make_marked_folder,
    read_json,
    remove_marked_folder,
    storage_errors,
    sync_folder,
    write_json_atomically,
)
from paritygate.pipelines.packing.manifest import INPUTS, RUN, SPEC_MEMBER, PackedFile, PackManifest, damaged
from paritygate.pipelines.packing.read import FILE_MODE, extract, read_manifest
from paritygate.pipelines.packing.unpacked import keep_pack
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.run.workspace import DEFAULT_ROOT, UNPACKED, RunFolder, check_schema_of_run, open_run
from paritygate.roots import is_address
from paritygate.text import first_of

_FOLDER_MODE = 0o755
_LISTED = 5


class OwnInputs(Struct, frozen=True, kw_only=True):
    """The left-out inputs on this machine: in place of the spec's folder, and of the command line's samples."""

    folder: Path | None = None
    samples: Path | None = None


class UnpackResult(Struct, frozen=True, kw_only=True):
    """A restored run and the manifest of its pack."""

    run: RunFolder
    manifest: PackManifest

    @property
    def foreign_repository(self) -> Path | None:
        """The repository of releases if the spec names a place relative to itself; else None."""
        text = self.run.resolved.spec.promote.to
        is_ours = is_address(text) or Path(text).parts[:1] == DEFAULT_ROOT.parts
        return None if is_ours else self.run.resolved.folder / text

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        return {
            "run": str(self.run.folder),
            "model": self.manifest.model,
            "run_id": self.manifest.run_id,
            "digest": self.manifest.digest,
            "files": len(self.manifest.files),
            "content_bytes": self.manifest.content_bytes,
            "folder": str(self.run.resolved.folder),
            "samples_path": self.run.samples_path,
            "modules": list(self.manifest.modules),
        }


def unpack_run(
    pack: Path, *, root: Path, own: OwnInputs | None = None, progress: Progress = lambda *_: None
) -> UnpackResult:
    """Restore the run in a pack to `<root>/runs/<model>/<run-id>`, without running its code.

    Raises:
        InputFileError: It is not a pack, a left-out input is missing, or another version of paritygate wrote the run.
        ArtifactIntegrityError: The pack or an input was changed.
        UsageError: The run exists already, or the place of left-out inputs is unknown.
        StorageError: It cannot be written.
    """
    own = own or OwnInputs()
    manifest = read_manifest(pack)
    final = root / "runs" / manifest.model / manifest.run_id
    _check_absent(final)
    _check_inputs(manifest, own)
    staged = final.with_name(f".{manifest.run_id}.{secrets.token_hex(4)}.partial")
    made = [folder for folder in final.parents if not folder.exists()]
    try:
        make_marked_folder(staged)
        with storage_errors(staged):
            if extract(pack, staged, progress) != manifest:
                raise damaged(str(pack), "it was replaced while it was read")
            restored = _arrange(staged)
            _bind(restored, pack, manifest, own, place=final.absolute())
            keep_pack(restored, manifest)
            fsync_tree(restored)
            _publish(restored, final)
    finally:
        remove_marked_folder(staged)
        for folder in made:
            # Removes only empty folders: after an error, those made on the way to the run.
            with contextlib.suppress(OSError):
                folder.rmdir()
    return UnpackResult(run=open_run(final), manifest=manifest)


def _check_absent(final: Path) -> None:
    if final.exists() or final.is_symlink():
        msg = f"{final} exists already, so it is not changed"
        raise UsageError(msg, hint="unpack elsewhere with --root DIR, or remove that folder first")


def _check_inputs(manifest: PackManifest, own: OwnInputs) -> None:
    """Check that the left-out inputs are on this machine, unchanged, and that their place is named."""
    names = [file.name for file in manifest.missing]
    if names and own.folder is None:
        msg = f"the pack leaves out files that the run needs: {first_of(names, _LISTED)}"
        raise UsageError(msg, hint="name the folder where the spec's files are on this machine: unpack --folder DIR")
    if not names and own.folder is not None:
        msg = f"--folder {own.folder} is not needed, because the pack leaves out no file of the spec"
        raise UsageError(msg, hint="leave --folder out")
    if manifest.needs_samples is not None and own.samples is None:
        msg = f"the pack leaves out the samples of the run: {manifest.needs_samples}"
        raise UsageError(msg, hint="name them on this machine: unpack --samples PATH")
    if manifest.needs_samples is None and own.samples is not None:
        msg = f"--samples {own.samples} are not needed, because the run has none or the pack holds them"
        raise UsageError(msg, hint="leave --samples out")
    if own.samples is not None and not own.samples.exists():
        raise InputFileError(f"samples {own.samples} do not exist", hint="give the path of the samples with --samples")
    if own.folder is not None:
        _check_files(own.folder, manifest.missing)


def _check_files(folder: Path, files: Iterable[PackedFile]) -> None:
    for file in files:
        path = folder / file.name
        if not path.is_file():
            msg = f"{path}, which the run needs, is missing"
            raise InputFileError(msg, hint="name the folder where the spec's files are on this machine with --folder")
        if path.stat().st_size != file.size or digest_of_file(path) != file.digest:
            msg = f"{path} differs from the packed file"
            raise ArtifactIntegrityError(msg, hint="copy it from there, or pack the run with its inputs")


def _arrange(staged: Path) -> Path:
    """Move the inputs into the run, and return its folder."""
    restored = staged / RUN
    inputs = restored / INPUTS
    for name in (INPUTS, UNPACKED):
        if (restored / name).exists():
            # The run's own folders of these names are never packed.
            raise damaged(str(staged), f"{RUN}/{name} is not a part of a run")
    if (staged / INPUTS).is_dir():
        (staged / INPUTS).rename(inputs)
    inputs.mkdir(exist_ok=True)
    (restored / MARKER).touch()
    for folder, _, _ in os.walk(restored):
        Path(folder).chmod(_FOLDER_MODE)
    return restored


def _bind(restored: Path, pack: Path, manifest: PackManifest, own: OwnInputs, *, place: Path) -> None:
    """Write the places of the inputs on this machine into the run's spec."""
    path = restored / "spec.json"
    data = _travelled_spec(path, pack)
    check_schema_of_run(str(pack), data)
    folder = place / INPUTS if own.folder is None else own.folder.absolute()
    samples = data["samples_path"]
    if samples is not None:
        samples = str(folder.joinpath(*samples.split("/")[1:]) if own.samples is None else own.samples.absolute())
    write_json_atomically(path, {**data, "folder": str(folder), "samples_path": samples})
    path.chmod(FILE_MODE)
    try:
        resolved = open_run(restored).resolved
        # Computing these raises the errors of a bad target: each becomes a folder of the run.
        name, _ = resolved.name, resolved.target_names
    except (InputFileError, UsageError) as err:
        raise damaged(str(pack), f"{SPEC_MEMBER} is not a spec of a run") from err
    if name != manifest.model:
        raise damaged(str(pack), f"{SPEC_MEMBER} is of {name!r}, and the pack of {manifest.model!r}")


def _travelled_spec(path: Path, pack: Path) -> Mapping[str, Any]:
    try:
        data: Mapping[str, Any] = read_json(path)
        samples = data["samples_path"]
        check_names([] if samples is None else [samples])
        is_sound = data["folder"] == INPUTS and (samples is None or samples.startswith(f"{INPUTS}/"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise damaged(str(pack), f"{SPEC_MEMBER} is not a spec that travels")
    return data


def _publish(restored: Path, final: Path) -> None:
    try:
        restored.rename(final)
    except OSError:
        # Another process was faster.
        _check_absent(final)
        raise
    with storage_errors(final):
        sync_folder(final.parent)
