"""Which models are compared: as written on the command line, and as an artifact is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paritygate.artifact import Artifact
from paritygate.errors import InputFileError, UsageError
from paritygate.formats import FORMATS
from paritygate.models.fixed_shape import FIXED_SHAPE_FILE
from paritygate.models.source import ModelRef, SourceKind, is_there, parse_source
from paritygate.models.source_copy import SOURCE_FILE, read_source_copy
from paritygate.validate.reference.recorded import is_recorded_outputs
from paritygate.validate.runners.onnxruntime.providers import check_provider

__all__ = ["artifact_model", "parse_model", "recorded_model", "with_provider"]


def parse_model(text: str, folder: Path, *, rename: Mapping[str, str] | None = None) -> ModelRef:
    """Return the model written as `text`.

    Args:
        text: A path of a model, of an npz file with outputs, or of a recording, or `module:callable`.
        folder: What a relative path is relative to.
        rename: The model's own name: the name compared by.

    Raises:
        InputFileError: The path does not exist or is neither model nor recorded outputs.
    """
    path = folder / text
    names = dict(rename or {})
    if is_there(path) and is_recorded_outputs(path):
        return replace(recorded_model(path, name=text), rename=names)
    if path.is_dir() and not (path / "saved_model.pb").exists():
        msg = f"{path} is a folder without a model and without recorded outputs"
        raise InputFileError(msg, hint="give a SavedModel folder, or one that `convert-and-validate record` wrote")
    if path.suffix == ".npz":
        msg = f"recorded outputs {path} do not exist"
        raise InputFileError(msg, hint="give a .npz file with the outputs")
    # Whoever runs a model with fixed dims follows the rule beside it.
    rule = path.parent / FIXED_SHAPE_FILE
    has_rule = path.is_file() and rule.is_file()
    return replace(parse_source(text, folder), rename=names, fixed_shape=rule if has_rule else None)


def recorded_model(path: Path, *, name: str) -> ModelRef:
    """Return what stands for a model whose outputs were recorded, in an npz file or a recording's folder."""
    return ModelRef(text=path.name, folder=path.parent, kind=SourceKind.RECORDED, name=name)


def with_provider(model: ModelRef, provider: str | None, *, device: str, is_emulated: bool = False) -> ModelRef:
    """Return the model, run by a provider of ONNX Runtime; as it is where none is named.

    Raises:
        UsageError: It is no ONNX model, is emulated, or the provider is none of the device's.
    """
    if provider is None:
        return model
    if model.kind is not SourceKind.ONNX:
        what = "recorded outputs" if model.is_recorded else f"a {model.kind} model"
        msg = f"provider {provider!r} is one of ONNX Runtime, which does not run {model.name}: it is {what}"
        raise UsageError(msg, hint="leave --provider out, or give an ONNX model")
    if is_emulated:
        msg = f"provider {provider!r} cannot run what is emulated: ONNX Runtime's CPU provider does"
        raise UsageError(msg, hint="leave --provider or --emulate out")
    check_provider(provider, device)
    return replace(model, provider=provider)


def artifact_model(artifact: Artifact, *, provider: str | None = None) -> ModelRef:
    """Return the artifact as a model that converters and runners open.

    Args:
        artifact: The artifact.
        provider: The provider of ONNX Runtime that runs it; None for that of the device, or another runtime.

    Raises:
        InputFileError: It is the copy of a source, and what says which is damaged.
    """
    name = str(artifact.variant)
    if artifact.main == SOURCE_FILE:
        # Of all artifacts, only this one does not say its names by itself.
        copy = read_source_copy(artifact.folder).source_in(artifact.folder)
        return replace(copy, name=name, signature=artifact.signature)
    return ModelRef(
        text=artifact.main,
        folder=artifact.folder,
        kind=FORMATS[artifact.variant.format].kind,
        name=name,
        # The file says what its dims are called; how large they may be is in its record.
        signature=None if provider is None else artifact.signature,
        fixed_shape=artifact.folder / FIXED_SHAPE_FILE if artifact.variant.static else None,
        provider=provider,
    )
