"""Promote: what passed becomes a release; where nothing did, the source may."""

from __future__ import annotations

import getpass
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paritygate.artifact import ARTIFACT_FILE, file_digests
from paritygate.backends import BACKENDS, backend_state
from paritygate.errors import ArtifactIntegrityError, InputFileError, MeasurementError, UsageError
from paritygate.files import (
    MARKER,
    digest_of_file,
    digest_of_files,
    read_json,
    storage_errors,
    write_json_atomically,
)
from paritygate.machine import machine_facts
from paritygate.model_digest import digest_of_model
from paritygate.onnx_file import external_files, read_onnx
from paritygate.pipelines.repository.candidate import (
    Provenance,
    ReleaseCandidate,
    VariantCandidate,
    VariantEvidence,
)
from paritygate.pipelines.repository.release import Release, promote
from paritygate.pipelines.workspace import RunFolder
from paritygate.source import Source, SourceKind
from paritygate.validate.recording import Recording

__all__ = ["NothingToRelease", "promote_stage"]

SOURCE_VARIANT = "source"


class NothingToRelease(MeasurementError):  # noqa: N818 - it says what is the case
    """No variant passed, and the source is not to be released either."""


def promote_stage(
    run: RunFolder, *, repository: Path, alias: str | None, devices: tuple[str, ...] | None = None
) -> Release:
    """Release the variants of a run that passed on every device that the release is for.

    Args:
        run: The run, validated.
        repository: The root of the repository.
        alias: The alias to move; None for none.
        devices: Where the release will run; the spec's, else the device that the run was validated on, if None.

    Raises:
        InputFileError: The run was not validated.
        UsageError: Nothing in the run was verified on a device that was asked for.
        NothingToRelease: Nothing passed and the spec wants no fallback.
        RepositoryError: The repository refused the release.
        ArtifactIntegrityError: Artifacts, reference or source were changed since they were validated.
        StorageError: The disk is full.
    """
    evidence = _read_evidence(run)
    wanted = devices or tuple(run.resolved.spec.promote.devices or (evidence["device"],))
    if devices:
        _check_devices(evidence, devices)
    passed = _passed(run, evidence, wanted)
    chosen = _preferred(run, passed)
    with tempfile.TemporaryDirectory(prefix="paritygate-source-") as place:
        if chosen:
            reason = _accepted_reason(chosen)
            variants = tuple(_variant(run, entry) for entry in chosen)
        else:
            reason = _fallback_reason(run, evidence, wanted)
            variants = (_source_variant(run, evidence, Path(place)),)
        candidate = ReleaseCandidate(
            model=run.resolved.name,
            variants=variants,
            provenance=_provenance(run, evidence),
            evidence=evidence,
            alias=alias,
            reports=_reports(run),
            accepted={entry["variant"]: "emulated" for entry in chosen if entry["evidence"] == "emulated"},
            reason=reason,
            who=_user(),
            host=platform.node(),
        )
        return promote(repository, candidate)


def _read_evidence(run: RunFolder) -> dict[str, Any]:
    """Return the run's evidence, which is about the reference that is there: it may have been recorded again since."""
    again = f"convert-and-validate validate --run {run.folder}"
    if not run.evidence_file.is_file():
        msg = f"run {run.folder} was not validated: {run.evidence_file.name} is missing"
        raise InputFileError(msg, hint=again)
    try:
        evidence: dict[str, Any] = read_json(run.evidence_file)
        reference, _, _ = evidence["reference"]["digest"], evidence["device"], evidence["variants"]
    except (ValueError, KeyError, TypeError) as err:
        msg = f"{run.evidence_file} is damaged: {type(err).__name__}: {err}"
        raise InputFileError(msg, hint=again) from err
    if digest_of_files(Recording.load(run.reference).chunks) != reference:
        msg = f"the evidence of run {run.run_id} is about another reference than the one recorded in {run.reference}"
        raise ArtifactIntegrityError(msg, hint=again)
    return evidence


def _check_devices(evidence: Mapping[str, Any], devices: tuple[str, ...]) -> None:
    """Check that something ran on each device that was asked for: else a name was mistyped, or a run is missing."""
    seen = sorted({entry["device"] for entry in evidence["variants"] if entry.get("device")})
    for device in devices:
        if device not in seen:
            msg = f"nothing in this run was verified on {device!r} (verified on: {', '.join(seen) or 'no device'})"
            raise UsageError(msg, hint=f"validate on that device first, or name one of: {', '.join(seen) or 'none'}")


def _passed(run: RunFolder, evidence: Mapping[str, Any], devices: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the entries to release: what passed on every device, or emulated where the spec accepts that."""
    accept = run.resolved.spec.promote.accept
    emulated = {
        entry["variant"]: entry
        for entry in evidence.get("emulated", ())
        if entry["verdict"] == "pass" and entry["evidence"] == accept.get(entry["variant"])
    }
    found = []
    for entry in evidence["variants"]:
        is_verified = entry["verdict"] == "pass" and entry["evidence"] == "verified"
        if is_verified and all(entry["device"] == device for device in devices):
            found.append(entry)
        elif entry["variant"] in emulated and entry["verdict"] != "fail":
            # A file that failed where it ran is not saved by what would be elsewhere.
            found.append(emulated[entry["variant"]])
    return found


def _preferred(run: RunFolder, passed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    prefer = run.resolved.spec.promote.prefer
    if prefer is None:
        return passed
    for name in prefer:
        found = [entry for entry in passed if entry["variant"] == name]
        if found:
            return found
    return []


def _accepted_reason(chosen: list[dict[str, Any]]) -> str:
    names = ", ".join(entry["variant"] for entry in chosen if entry["evidence"] == "emulated")
    return f"accepted on emulated evidence, as the spec says: {names}" if names else ""


def _fallback_reason(run: RunFolder, evidence: Mapping[str, Any], devices: tuple[str, ...]) -> str:
    states = ", ".join(f"{entry['variant']}: {_state_in_words(entry, devices)}" for entry in evidence["variants"])
    where = ", ".join(devices)
    if run.resolved.spec.promote.fallback == "none":
        msg = f"nothing to release for {where}: no variant passed ({states}), and the spec wants no fallback"
        raise NothingToRelease(msg, hint="see the report of the run, or set promote.fallback: source")
    return f"fallback: source, because no converted variant passed for {where} ({states})"


def _state_in_words(entry: Mapping[str, Any], devices: tuple[str, ...]) -> str:
    if entry["verdict"] != "pass":
        return str(entry["verdict"])
    if entry["evidence"] != "verified":
        return f"passed, and is {entry['evidence']}, not verified"
    if any(entry["device"] != device for device in devices):
        return f"passed on {entry['device']} only"
    return "passed, and promote.prefer does not name it"


def _variant(run: RunFolder, entry: Mapping[str, Any]) -> VariantCandidate:
    name = entry["variant"]
    folder = run.variant_folder(name)
    return VariantCandidate(
        name=name,
        folder=folder,
        record=read_json(folder / ARTIFACT_FILE),
        evidence=VariantEvidence(
            verdict=entry["verdict"],
            artifact=entry["artifact"],
            kind=entry["evidence"],
            device=entry["device"],
            runtime=f"{entry['runtime']} {entry['version']}",
        ),
    )


def _source_variant(run: RunFolder, evidence: Mapping[str, Any], place: Path) -> VariantCandidate:
    """Return the source as something to release: its files, or for a callable the code it came from and its name."""
    source = run.resolved.source
    description = dict(evidence["reference"]["model"])
    _copy_source(source, place, description)
    write_json_atomically(place / "source.json", {key: description[key] for key in sorted(description)})
    files = file_digests(place)
    return VariantCandidate(
        name=SOURCE_VARIANT,
        folder=place,
        record={"variant": SOURCE_VARIANT, "files": files, "digest": digest_of_files(files), "main": "source.json"},
        evidence=None,
        is_source=True,
    )


def _copy_source(source: Source, place: Path, description: Mapping[str, Any]) -> None:
    with storage_errors(place):
        for name in description["files"]:
            _copy_file(source.folder / name, place / "code" / name)
        if source.kind is not SourceKind.CALLABLE:
            _copy_model(source, place)
    _check_source_copy(source, place, description)


def _copy_model(source: Source, place: Path) -> None:
    if source.path.is_dir():
        shutil.copytree(source.path, place / source.path.name, ignore=shutil.ignore_patterns(MARKER))
        return
    _copy_file(source.path, place / source.path.name)
    if source.kind is SourceKind.ONNX:
        for name in external_files(read_onnx(source.path)):
            _copy_file(source.path.parent / name, place / name)


def _copy_file(path: Path, target: Path) -> None:
    if not path.is_file():
        raise _source_changed(path, "is missing")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def _check_source_copy(source: Source, place: Path, description: Mapping[str, Any]) -> None:
    """Check that what was copied is what answered when the reference was recorded."""
    for name, digest in description["files"].items():
        if digest_of_file(place / "code" / name) != digest:
            raise _source_changed(source.folder / name, "was changed")
    if source.kind is not SourceKind.CALLABLE:
        copy = replace(source, text=source.path.name, folder=place)
        if digest_of_model(copy) != description["digest"]:
            raise _source_changed(source.path, "was changed")


def _source_changed(path: Path, change: str) -> ArtifactIntegrityError:
    return ArtifactIntegrityError(
        f"the source is not what the reference was recorded from: {path} {change}",
        hint="start a new run: convert-and-validate run SPEC",
    )


def _provenance(run: RunFolder, evidence: Mapping[str, Any]) -> Provenance:
    versions = {name: backend_state(name).version for name in BACKENDS}
    tools = {name: version for name, version in versions.items() if version is not None}
    tools["paritygate"] = evidence["paritygate"]
    return Provenance(
        source=evidence["reference"]["model"].get("digest"),
        samples=evidence["samples"]["digest"],
        reference=evidence["reference"]["digest"],
        tools=tools,
        device=machine_facts(),
        tolerances={entry["variant"]: entry.get("tolerance", {}) for entry in evidence["variants"]},
        looser_tolerances={
            entry["variant"]: entry["looser_than_default"]
            for entry in evidence["variants"]
            if entry.get("looser_than_default")
        },
        spec=run.resolved.spec.model_dump(mode="json", by_alias=True),
    )


def _reports(run: RunFolder) -> dict[str, Path]:
    return {name: run.folder / name for name in ("report.html", "report.md") if (run.folder / name).is_file()}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container's user may have no name.
        return ""
