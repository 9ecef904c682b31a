"""Copy a release from an OCI registry into a repository, under the number that it has.

Nothing is trusted before its digest is checked: first that of the artifact, if the reference or the registry has it.
Then comes the release's manifest, which names those of all other files. What is cut off is not published.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from paritygate.artifact import ARTIFACT_FILE
from paritygate.errors import InputFileError, RepositoryError, UsageError
from paritygate.file_names import why_not_names
from paritygate.files import digest_of_bytes, digest_of_files, json_of
from paritygate.pipelines.release.oci.push import FILE_PATH, MODEL
from paritygate.pipelines.release.oci.reference import Reference
from paritygate.pipelines.release.oci.registry import Registry, corrupt
from paritygate.pipelines.release.repository.candidate import MANIFEST_FILE
from paritygate.pipelines.release.repository.difference import compare_files
from paritygate.pipelines.release.repository.identity import identity_of
from paritygate.pipelines.release.repository.log import append_record, read_state_of
from paritygate.pipelines.release.repository.manifest import difference_of_release, read_manifest, recorded_files
from paritygate.pipelines.release.repository.record import Record, RecordKind, utc_now
from paritygate.pipelines.release.repository.release import withdraw_unrecorded
from paritygate.pipelines.release.repository.state import ModelState
from paritygate.pipelines.release.repository.store import release_folder, release_name
from paritygate.pipelines.release.signing.oms import SIGNATURE_FILE
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.pipelines.release.stores.staging import CONTENT
from paritygate.pipelines.spec.names import check_name
from paritygate.roots import Root

_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_MOST_VERSION = 10**9


class Pulled(Struct, frozen=True, kw_only=True):
    """Describe a release that was copied from a registry."""

    model: str
    version: int
    reference: str  # with the digest
    folder: Root
    files: int
    is_new: bool  # if not, the repository had it


def pull(
    repository: Root, reference: Reference, progress: Callable[[str, int, int], None], *, who: str, host: str
) -> Pulled:
    """Copy a release into a repository, and record by whom and on which host.

    Raises:
        UsageError: The reference has neither tag nor digest.
        InputFileError: There is no such artifact.
        ArtifactIntegrityError: It is no release, or is corrupt.
        RepositoryError: The repository has another release of this number, or deleted it.
        StorageError: The registry refuses or does not answer, or the repository cannot be written.
    """
    registry, store = Registry(reference), store_of(repository)
    place, config, layers = _layers(registry, reference)
    total, done = sum(size for _, size in (config, *layers.values())), 0

    def note(size: int) -> None:
        nonlocal done
        done += size
        progress("pulling files", done, total)

    with store.staging() as staging:
        content = staging / CONTENT
        registry.download(*config, staging / "config", "config", note)
        registry.download(*layers[MANIFEST_FILE], content / MANIFEST_FILE, MANIFEST_FILE, note)
        model, version, record = _checked(content, {name: digest for name, (digest, _) in layers.items()}, place)
        record = replace(record, version=version, who=who, host=host)
        state, folder = read_state_of(repository, model), release_folder(repository, model, version)
        is_new = not _is_there(state, record, folder)
        if is_new:
            for name in layers.keys() - {MANIFEST_FILE}:
                registry.download(*layers[name], content / name, name, note)
            # A pull that was killed before it recorded the release left the same files.
            is_published = store.publish(staging, release_name(model, version))
            if not is_published and not difference_of_release(folder, record)[0].is_empty:
                raise _taken(folder)
            try:
                append_record(
                    repository, model, lambda now: None if _is_there(now, record, folder) else record, staging
                )
            except BaseException:
                # Another pull may have put the same objects there; gc deletes those that nobody records.
                if isinstance(repository, Path):
                    withdraw_unrecorded(staging, repository, model, version)
                raise
    return Pulled(model=model, version=version, reference=place, folder=folder, files=len(layers), is_new=is_new)


def _layers(registry: Registry, reference: Reference) -> tuple[str, tuple[str, int], dict[str, tuple[str, int]]]:
    """Return the place of an artifact with its digest, and digest and size of its config and of each file."""
    which = reference.digest or reference.tag
    if which is None:
        raise UsageError(f"{reference} has neither tag nor digest", hint=f"write for example {reference}:3")
    content = registry.manifest(which)
    if content is None:
        raise InputFileError(f"the registry has no {reference}", hint="check name and tag, or push it first")
    place = f"{registry.place}@{digest_of_bytes(content)}"
    try:
        data = json_of(content.decode())
        found = [(layer["annotations"][FILE_PATH], layer["digest"], int(layer["size"])) for layer in data["layers"]]
        layers = {name: (digest, size) for name, digest, size in found}
        config = data["config"]["digest"], int(data["config"]["size"])
        is_release = data["artifactType"] == MODEL and MANIFEST_FILE in layers
        is_release &= all(_DIGEST.fullmatch(digest) is not None for digest, _ in (config, *layers.values()))
        problem = " ".join(why_not_names(name for name, _, _ in found) or ())
    except (ValueError, LookupError, TypeError, AttributeError) as err:
        is_release, config, layers, problem = False, ("", 0), {}, f"{type(err).__name__}: {err}"
    if problem or not is_release:
        why = f"the artifact is no release of paritygate{problem and f' ({problem})'}"
        raise corrupt(place, why, "check the name and the tag")
    return place, config, layers


def _checked(content: Path, digests: Mapping[str, str], place: str) -> tuple[str, int, Record]:
    """Return model and version of a release, and its record, once the manifest in a folder is checked."""
    record = Record(
        kind=RecordKind.RELEASED,
        time=utc_now(),
        manifest=digests[MANIFEST_FILE],
        signature=digests.get(SIGNATURE_FILE),
        reason=f"pulled from {place}",
    )
    manifest = read_manifest(content, record)
    try:
        difference = compare_files(digests, recorded_files(manifest, record))
        model, version = check_name("model", str(manifest["model"])), int(manifest["version"])
        record = replace(record, despite=str(manifest.get("despite", "")), trust=str(manifest.get("trust", "")))
        problem = str(difference) if not difference.is_empty else _problem(manifest, record)
    except (UsageError, ValueError, LookupError, TypeError, AttributeError) as err:
        problem = f"{type(err).__name__}: {err}"
    if problem:
        raise corrupt(place, f"its manifest does not describe it ({problem})")
    return model, version, record


def _problem(manifest: Mapping[str, Any], record: Record) -> str:
    """Return what in a manifest contradicts its files; a later promotion relies on it. Empty if nothing does."""
    for entry in manifest["variants"]:
        start, evidence = f"{entry['name']}/", entry["evidence"]
        files = {name.removeprefix(start): of for name, of in manifest["files"].items() if name.startswith(start)}
        files.pop(ARTIFACT_FILE, None)
        digest = digest_of_files(files)
        is_measured = (evidence["verdict"], evidence["artifact"]) == ("pass", digest) if evidence else False
        if digest != entry["digest"] or not (is_measured or entry["role"] == "source"):
            return f"{entry['name']} is not what passed"
    is_same = manifest.get("identity") in {None, identity_of(manifest["variants"], record.despite, record.trust)}
    is_number = 0 < manifest["version"] < _MOST_VERSION and manifest["variants"]
    return "" if is_same and is_number else f"version {manifest['version']}, identity {manifest.get('identity')}"


def _is_there(state: ModelState, record: Record, folder: Root) -> bool:
    """Return whether a repository has this release; raise RepositoryError if its number is taken or was deleted."""
    there, version = state.releases.get(record.version or 0), record.version
    if version in state.collected or (
        there and (there.manifest, there.signature) != (record.manifest, record.signature)
    ):
        raise _taken(folder)
    return there is not None


def _taken(folder: Root) -> RepositoryError:
    msg = f"{folder} is, or was, another release, so nothing was pulled"
    return RepositoryError(msg, hint="pull into another repository with --repository DIR")
