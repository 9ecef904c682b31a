"""The sides of a comparison: as written on the command line, and as an artifact is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paritygate.artifact import Artifact
from paritygate.errors import InputFileError, UsageError
from paritygate.formats import FORMATS
from paritygate.models.fixed_shape import FIXED_SHAPE_FILE
from paritygate.models.source import Source, SourceKind, is_there, parse_source
from paritygate.models.source_copy import SOURCE_FILE, read_source_copy
from paritygate.pipelines.compare.job import Side
from paritygate.validate.reference.given import is_recorded_outputs
from paritygate.validate.runners.onnxruntime.providers import check_provider

__all__ = ["parse_side", "side_of_artifact", "source_of_artifact", "with_provider"]


def parse_side(text: str, folder: Path, *, rename: Mapping[str, str] | None = None) -> Side:
    """Return the side written as `text`.

    Args:
        text: A path of a model, of an npz file with outputs, or of a recording, or `module:callable`.
        folder: What a relative path is relative to.
        rename: The side's own name: the name compared by.

    Raises:
        InputFileError: The path does not exist or is neither model nor recorded outputs.
    """
    path = folder / text
    names = dict(rename or {})
    if is_there(path) and is_recorded_outputs(path):
        return Side(name=text, outputs=path, rename=names)
    if path.is_dir() and not (path / "saved_model.pb").exists():
        msg = f"{path} is a folder without a model and without recorded outputs"
        raise InputFileError(msg, hint="give a SavedModel folder, or one that `convert-and-validate record` wrote")
    if path.suffix == ".npz":
        msg = f"recorded outputs {path} do not exist"
        raise InputFileError(msg, hint="give a .npz file with the outputs")
    # Whoever runs a model with fixed dims follows the rule beside it.
    rule = path.parent / FIXED_SHAPE_FILE
    return Side(
        name=text,
        model=parse_source(text, folder),
        rename=names,
        fixed_shape=rule if path.is_file() and rule.is_file() else None,
    )


def with_provider(side: Side, provider: str | None, *, device: str, is_emulated: bool = False) -> Side:
    """Return the side, run by a provider of ONNX Runtime; as it is where none is named.

    Raises:
        UsageError: The side is no ONNX model, is emulated, or the provider is none of the device's.
    """
    if provider is None:
        return side
    if side.model is None or side.model.kind is not SourceKind.ONNX:
        what = "recorded outputs" if side.model is None else f"a {side.model.kind} model"
        msg = f"provider {provider!r} is one of ONNX Runtime, which does not run {side.name}: it is {what}"
        raise UsageError(msg, hint="leave --provider out, or give an ONNX model")
    if is_emulated:
        msg = f"provider {provider!r} cannot run what is emulated: ONNX Runtime's CPU provider does"
        raise UsageError(msg, hint="leave --provider or --emulate out")
    check_provider(provider, device)
    return replace(side, provider=provider)


def source_of_artifact(artifact: Artifact) -> Source:
    """Return the artifact as a model that converters and runners open.

    Raises:
        InputFileError: It is the copy of a source, and what says which is damaged.
    """
    if artifact.main == SOURCE_FILE:
        return read_source_copy(artifact.folder).source_in(artifact.folder)
    return Source(text=artifact.main, folder=artifact.folder, kind=FORMATS[artifact.variant.format].kind)


def side_of_artifact(artifact: Artifact, *, provider: str | None = None) -> Side:
    """Return the artifact as the candidate of a comparison.

    Args:
        artifact: The artifact.
        provider: The provider of ONNX Runtime that runs it; None for that of the device, or another runtime.
    """
    rule = artifact.folder / FIXED_SHAPE_FILE if artifact.variant.static else None
    side = Side(name=str(artifact.variant), model=source_of_artifact(artifact), fixed_shape=rule)
    if provider is not None:
        # The file says what its dims are called; how large they may be is in its record.
        return replace(side, provider=provider, signature=artifact.signature)
    if artifact.main != SOURCE_FILE:
        return side
    # Of all artifacts, only this one does not say its names by itself.
    return replace(side, signature=artifact.signature, rename=read_source_copy(artifact.folder).rename)
