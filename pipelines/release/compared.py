"""Parse a side of a comparison: a model, or a variant of a release by its alias."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from paritygate.errors import InputFileError, ParitygateError, UsageError
from paritygate.models.endpoint import is_url
from paritygate.models.json_mapping import JsonMapping
from paritygate.models.source import ModelRef, is_there
from paritygate.pipelines.compare.models import artifact_model, parse_model

if TYPE_CHECKING:
    # Read by type checkers alone: a comparison of files loads no repository.
    from paritygate.roots import Root

_SAFE = "[A-Za-z0-9][A-Za-z0-9._-]*"
_RELEASE = re.compile(rf"(?P<model>{_SAFE})@(?P<which>{_SAFE})(?:/(?P<variant>[^/]+))?")


def model_or_release(
    text: str,
    folder: Path,
    repository: Root,
    *,
    rename: Mapping[str, str] | None = None,
    endpoint_json: JsonMapping | None = None,
) -> ModelRef:
    """Return the model written as `text`, or the released variant written `MODEL@ALIAS` or `MODEL@VERSION`.

    Without `/VARIANT` it is the preferred variant; every file of the release is verified. An existing path is always
    a path. `rename` maps the model's own names to the compared names. `endpoint_json` is for servers of no known
    protocol.

    Raises:
        InputFileError: The path does not exist or is neither model nor recorded outputs, or there is no repository.
        UsageError: The address names no model; or there is no such release or variant.
        ArtifactIntegrityError: The release is corrupt.
    """
    match = _RELEASE.fullmatch(text)
    if match is not None and not is_there(folder / text):
        released = _released(repository, match["model"], match["which"], match["variant"])
        # The copy of a source has names of its own.
        return replace(released, rename={**released.rename, **(rename or {})})
    try:
        return parse_model(text, folder, rename=rename, endpoint_json=endpoint_json)
    except InputFileError as err:
        which = None if is_url(text) or is_there(folder / text) else _release_of_name(repository, text)
        if which is None:
            raise
        raise InputFileError(str(err), hint=f"{text} has releases in {repository}: write {text}@{which}") from err


def parse_release(text: str) -> tuple[str, str, str | None]:
    """Return model, alias or version, and variant of `MODEL@ALIAS` or `MODEL@VERSION`, with `/VARIANT` or without.

    Raises:
        UsageError: It is no such text.
    """
    match = _RELEASE.fullmatch(text)
    if match is None:
        msg = f"{text!r} names no release (expected MODEL@ALIAS or MODEL@VERSION)"
        raise UsageError(msg, hint="write for example scores@prod")
    return match["model"], match["which"], match["variant"]


def _released(repository: Root, model: str, which: str, variant: str | None) -> ModelRef:
    from paritygate.artifact import Artifact
    from paritygate.pipelines.release.repository.inspect import check_release, show

    details = show(repository, model, which)
    check_release(repository, details)
    variants = [entry["name"] for entry in details.manifest["variants"]]
    name = variant or variants[0]
    if name not in variants:
        msg = f"version {details.version} of {model!r} has no variant {name!r} (released: {', '.join(variants)})"
        raise UsageError(msg, hint=f"name one of these, such as {model}@{which}/{variants[0]}, or none for the first")
    artifact = Artifact.read_record(details.local_folder() / name)
    # As it can be written again, whatever the alias points to by then.
    name = f"{model}@{details.version}/{name}"
    return replace(artifact_model(artifact), name=name, dims=artifact.signature.dims)


def _release_of_name(repository: Root, name: str) -> str | None:
    """Return an alias of a model, or its newest version where it has none; None where it has no release."""
    from paritygate.pipelines.release.repository.inspect import list_models

    try:
        models = {model.model: model for model in list_models(repository)}
    except ParitygateError:
        return None
    if name not in models or not models[name].versions:
        return None
    aliases = models[name].aliases
    return "prod" if "prod" in aliases else next(iter(aliases), str(models[name].versions[-1]))
