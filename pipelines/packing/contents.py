"""List the files of a run folder for a pack, after a check against the recorded digests."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from paritygate.artifact import ARTIFACT_FILE, Artifact
from paritygate.errors import ArtifactIntegrityError, MeasurementError, StorageError
from paritygate.files import corrupt_errors, digest_of_file, read_json
from paritygate.pipelines.compare.redaction import without_inputs
from paritygate.pipelines.packing.manifest import INPUTS
from paritygate.pipelines.run.released_to import RELEASED_TO
from paritygate.pipelines.run.workspace import SCRATCH, UNPACKED, RunFolder
from paritygate.validate.probes.recording import PROBES_FOLDER, ProbesRecording
from paritygate.validate.reference.recorded_outputs import RECORD_FILE
from paritygate.validate.reference.recording import Recording

# A job's log and result are useful elsewhere. Its request names places of this machine, as repositories do, and its
# passes are a candidate's outputs during a comparison.
_LEFT_OUT = ("jobs/*/*.job.json", "jobs/*/passes/*", ".*.tmp", "*/.*.tmp", "*.lock", "*/__pycache__/*", RELEASED_TO)
# User data, or made of it: reports can be made again from evidence, and a job's files may hold anything.
_WITH_INPUTS = ("jobs/*", "probes/*", "report.html", "report.md", "report-against-*", "selftest.json", "selftest.md")
_SPEC = "spec.json"
_AGAIN = "record the reference again: convert-and-validate record --run"


def files_of_run(run: RunFolder, *, is_hiding: bool) -> dict[str, Path | bytes]:
    """Return the files of the run folder (or new contents) by relative path, without its inputs, scratch and own pack.

    With `is_hiding`, ids of rows and failing inputs stay out too.

    Raises:
        StorageError: Something is a link that leaves the folder, or no plain file.
        InputFileError: Ids of rows have to be removed from a corrupt file.
    """
    files = files_in(run.folder, without={INPUTS, SCRATCH, UNPACKED})
    left_out = (*_LEFT_OUT, *_WITH_INPUTS) if is_hiding else _LEFT_OUT
    return {
        name: _hidden(path) if is_hiding and _is_finding(name) else path
        for name, path in files.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in left_out)
    }


def _is_finding(name: str) -> bool:
    # Artifacts and recording are bound by digests and name no row, so only files beside them.
    return "/" not in name and name.endswith(".json") and name != _SPEC


def _hidden(path: Path) -> bytes:
    hint, command = "validate again, or start a new run", "convert-and-validate run SPEC"
    with corrupt_errors(path, RecursionError, hint=hint, command=command):
        return (json.dumps(without_inputs(read_json(path)), indent=2) + "\n").encode()


def check_run(run: RunFolder) -> dict[Path, str]:
    """Return the recorded digests of the run's files, by path, after a check of the files.

    Raises:
        ArtifactIntegrityError: A file was changed, removed or added; the message names it.
        InputFileError: A record is corrupt.
        MeasurementError: A stage is half written.
    """
    _check_whole(run)
    digests: dict[Path, str] = {}
    for folder in _artifact_folders(run):
        artifact = Artifact.load(folder)
        digests |= {folder / name: digest for name, digest in artifact.files.items()}
    if run.reference.exists():
        digests |= _check_recording(run)
    return digests


def _artifact_folders(run: RunFolder) -> Iterable[Path]:
    yield from (path for name in run.resolved.target_names if (path := run.variant_folder(name)).is_dir())
    yield from sorted(path for path in run.base_folder("-").parent.glob("*") if path.is_dir())


def _check_whole(run: RunFolder) -> None:
    """Check that no stage is at work in the folder, or was killed there."""
    halves = sorted(path for place in (run.folder, run.folder / "bases") for path in place.glob(".*.partial"))
    halves += [folder for folder in _artifact_folders(run) if not (folder / ARTIFACT_FILE).is_file()]
    halves += [run.reference] if run.reference.is_dir() and not (run.reference / RECORD_FILE).is_file() else []
    if halves:
        msg = f"{halves[0]} is half written, because a stage of the run is at work or was stopped"
        raise MeasurementError(
            msg, hint="pack after the stage ends; if none runs, repeat the stage, or start a new run"
        )


def _check_recording(run: RunFolder) -> Mapping[Path, str]:
    digests = {run.reference / name: digest for name, digest in Recording.load(run.reference).chunks.items()}
    probes = run.reference / PROBES_FOLDER
    if probes.exists():
        digests |= {
            probes / probe.name / name: digest
            for probe in ProbesRecording.load(probes).probes
            for name, digest in probe.chunks.items()
        }
    for path, digest in digests.items():
        if not path.is_file() or digest_of_file(path) != digest:
            change = "was changed" if path.is_file() else "is missing"
            msg = f"recorded outputs in {path.parent} are corrupt: {path.name} {change}"
            raise ArtifactIntegrityError(msg, hint=f"{_AGAIN} {run.folder}")
    return digests


def files_in(folder: Path, *, without: Collection[str] = ()) -> dict[str, Path]:
    """Return the files below `folder` by relative path, sorted; raise StorageError for other things and links out."""
    root = folder.resolve()
    files: dict[str, Path] = {}
    for parent, folders, names in os.walk(folder):
        for name in folders:
            if (Path(parent) / name).is_symlink():
                msg = f"{Path(parent) / name} is a link to a folder, whose files would be left out"
                raise StorageError(msg, hint="replace the link by the folder it points to")
        is_top = Path(parent) == folder
        folders[:] = sorted(name for name in folders if not (is_top and name in without))
        for name in names:
            path = Path(parent) / name
            if not path.is_file() or not path.resolve().is_relative_to(root):
                what = "a link that leaves its folder" if path.is_symlink() else "no plain file"
                msg = f"{path} is {what}, which cannot be packed"
                raise StorageError(msg, hint="replace it by the file itself, or remove it")
            files[path.relative_to(folder).as_posix()] = path
    return dict(sorted(files.items()))
