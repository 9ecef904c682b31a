"""Choose the variant of a verified release that a server can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from paritygate.artifact import Artifact
from paritygate.errors import UsageError
from paritygate.pipelines.release.repository.inspect import ReleaseDetails, check_release, show
from paritygate.pipelines.release.views.nothing_to_serve import nothing_to_serve
from paritygate.pipelines.serving.server_kind import ServerKind
from paritygate.precision import Variant
from paritygate.roots import Root


class ReleaseToServe(Struct, frozen=True, kw_only=True):
    """Hold a variant of a release, and the devices on which it was verified."""

    details: ReleaseDetails
    variant: str
    artifact: Artifact
    devices: tuple[str, ...]


def release_to_serve(
    repository: Root, model: str, which: int | str, kind: ServerKind, *, variant: str | None
) -> ReleaseToServe:
    """Return the variant of a release for a server, after every file of the release was verified.

    Without `variant` it is the preferred one of a format that is served.

    Raises:
        UsageError: There is no such release or variant, or none of a format that is served.
        ArtifactIntegrityError: The release is corrupt.
        InputFileError: There is no such repository.
    """
    details = show(repository, model, which)
    check_release(repository, details)
    return variant_to_serve(repository, details, kind, variant=variant)


def variant_to_serve(
    repository: Root, details: ReleaseDetails, kind: ServerKind, *, variant: str | None
) -> ReleaseToServe:
    """Return the variant as `release_to_serve` does, without reading its files.

    Raises:
        UsageError: There is no such variant, or none of a format that is served.
    """
    model = details.model
    entries: dict[str, Mapping[str, Any]] = {entry["name"]: entry for entry in details.manifest["variants"]}
    converted = {name: entry for name, entry in entries.items() if entry["role"] == "converted"}
    what = f"version {details.version} of {model!r}"
    if variant is not None and variant not in converted:
        msg = f"{what} has no variant {variant!r} (released: {', '.join(entries)})"
        raise UsageError(msg, hint="name one of these with --variant")
    formats = {name: Variant.parse(name).format for name in converted}
    served = sorted((n for n in converted if formats[n] in kind.formats), key=lambda n: formats[n] != kind.own_format)
    names = [variant] if variant is not None else served
    if not names:
        raise nothing_to_serve(repository, details, kind)
    entry = converted[names[0]]
    return ReleaseToServe(
        details=details,
        variant=names[0],
        artifact=Artifact.read_record(details.local_folder() / names[0]),
        devices=_devices_of(entry),
    )


def _devices_of(entry: Mapping[str, Any]) -> tuple[str, ...]:
    evidence = entry["evidence"] or {}
    kinds = [item for item in (evidence, *evidence.get("also", ())) if item.get("kind") == "verified"]
    return tuple(dict.fromkeys(device for item in kinds for device in (item.get("devices") or [item["device"]])))
