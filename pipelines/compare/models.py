"""The models of a comparison: as written on the command line, and as artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from paritygate.errors import InputFileError, UsageError
from paritygate.formats import FORMATS
from paritygate.models.endpoint import Protocol, is_url, limits_of, parse_endpoint
from paritygate.models.fixed_shape import FIXED_SHAPE_FILE
from paritygate.models.source import OBJECTS, ModelRef, SourceKind, is_there, parse_source, with_signature_key
from paritygate.validate.reference.recorded_outputs import is_recorded_outputs

if TYPE_CHECKING:
    from paritygate.artifact import Artifact
    from paritygate.models.json_mapping import JsonMapping

_SIDES = ("reference", "candidate")
_TAKES_EXAMPLE = "write for example --takes candidate=text"


def parse_model(
    text: str, folder: Path, *, rename: Mapping[str, str] | None = None, endpoint_json: JsonMapping | None = None
) -> ModelRef:
    """Return the model of a text.

    It is the path of a model, a folder of weights, an npz file of outputs or a recording, or `module:callable`, or the
    address of a model on a server. `rename` maps the model's own names. `endpoint_json` is for servers without a known
    protocol.

    Raises:
        InputFileError: The path does not exist or is neither model nor recorded outputs.
        UsageError: It is the address of no model, or a folder of weights that needs code or a pickle.
        MissingBackendError: It is a folder of weights, and transformers is not installed.
    """
    path = folder / text
    names = dict(rename or {})
    if is_url(text):
        endpoint = parse_endpoint(text, is_mapped=endpoint_json is not None)
        return ModelRef(
            text=text,
            folder=folder,
            kind=SourceKind.ENDPOINT,
            name=endpoint.model,
            rename=names,
            endpoint_json=endpoint_json if endpoint.protocol is Protocol.JSON else None,
        )
    if is_there(path) and is_recorded_outputs(path):
        return replace(recorded_model(path, name=text), rename=names)
    if path.is_dir() and not (path / "saved_model.pb").exists():
        if (path / "config.json").is_file():
            from paritygate.models.hugging_face import class_of_weights

            class_of_weights(path)
            return ModelRef(text=text, folder=folder, kind=SourceKind.CALLABLE, name=text, rename=names)
        msg = f"{path} is a folder without a model and without recorded outputs"
        hint = "give a SavedModel folder, one that record wrote, or one that save_pretrained wrote"
        raise InputFileError(msg, hint=hint)
    if path.suffix == ".npz":
        raise InputFileError(f"recorded outputs {path} do not exist", hint="give a .npz file with the outputs")
    # Runners of models with fixed dims follow the rule next to it.
    rule = path.parent / FIXED_SHAPE_FILE
    has_rule = path.is_file() and rule.is_file()
    return replace(parse_source(text, folder), rename=names, fixed_shape=rule if has_rule else None)


def recorded_model(path: Path, *, name: str) -> ModelRef:
    """Return the model of recorded outputs, in an npz file or a recording's folder."""
    return ModelRef(text=path.name, folder=path.parent, kind=SourceKind.RECORDED, name=name)


def check_mapping_is_used(models: Iterable[ModelRef], mapping: JsonMapping | None) -> None:
    """Raise a `UsageError` if there is a JSON mapping, and no model is a server that needs it."""
    if mapping is not None and all(model.endpoint_json is None for model in models):
        msg = "a mapping of JSON is given, but no model is the address of a server without a known protocol"
        raise UsageError(
            msg, hint="leave --endpoint-json out, or give an address such as http://127.0.0.1:8000/predict"
        )


def with_endpoint_limits(models: Iterable[ModelRef], limits: Mapping[str, float]) -> tuple[ModelRef, ...]:
    """Return the models with limits for those on a server.

    The limits also apply to stages of a Python object, which are not known before it is loaded.

    Raises:
        UsageError: A limit is unknown or not above 0, or no model can be on a server.
    """
    all_models = tuple(models)
    if not limits:
        return all_models
    limited = limits_of(limits)
    if all(model.kind not in OBJECTS for model in all_models):
        raise limits_without_server()
    return tuple(replace(model, endpoint_limits=limited) if model.kind in OBJECTS else model for model in all_models)


def limits_without_server() -> UsageError:
    """Return the error of limits on a server where no model, and no stage of one, is on a server."""
    return UsageError(
        "endpoint limits are given, but no model is the address of a server, or has a stage on one",
        hint="leave --endpoint and --max-answer-mb out, or give an address such as "
        "http://127.0.0.1:8000/v2/models/NAME",
    )


def with_signatures(
    reference: ModelRef, candidate: ModelRef, signatures: Mapping[str, str]
) -> tuple[ModelRef, ModelRef]:
    """Return the two models with the chosen signatures of SavedModels, by side.

    Raises:
        UsageError: A name is not a side, or a side is not a SavedModel.
    """
    _check_sides("--signature", signatures, "write for example --signature reference=serving_default")
    chosen = (
        with_signature_key(model, signatures.get(side), f"--signature {side}")
        for side, model in zip(_SIDES, (reference, candidate), strict=True)
    )
    return next(chosen), next(chosen)


def with_takes(reference: ModelRef, candidate: ModelRef, takes: Mapping[str, str]) -> tuple[ModelRef, ModelRef]:
    """Return the two models, limited to the inputs of the samples that are named by side.

    Raises:
        UsageError: A name is not a side, a side is recorded outputs, or no name of an input is given.
    """
    sides = {}
    for side, model in zip(_SIDES, (reference, candidate), strict=True):
        names = tuple(name.strip() for name in takes[side].split(",")) if side in takes else ()
        if names and model.is_recorded:
            msg = f"--takes names the {side}, but {model.name} is recorded outputs, which have no inputs"
            raise UsageError(msg, hint=f"leave {side} out of --takes")
        if not all(names):
            raise UsageError(f"--takes {side}={takes[side]!r} names an input without a name", hint=_TAKES_EXAMPLE)
        sides[side] = replace(model, takes=names)
    _check_sides("--takes", takes, _TAKES_EXAMPLE)
    return sides["reference"], sides["candidate"]


def _check_sides(option: str, sides: Iterable[str], hint: str) -> None:
    for side in sides:
        if side not in _SIDES:
            msg = f"{option} names {side!r}, which is not a side of the comparison (allowed: {', '.join(_SIDES)})"
            raise UsageError(msg, hint=hint)


def with_provider(model: ModelRef, provider: str | None, *, device: str, is_emulated: bool = False) -> ModelRef:
    """Return the model with a provider of ONNX Runtime; unchanged without one.

    Raises:
        UsageError: It is not an ONNX model, is emulated, or the device has no such provider.
    """
    if provider is None:
        return model
    if model.kind is not SourceKind.ONNX:
        what = "recorded outputs" if model.is_recorded else f"a {model.kind} model"
        msg = f"provider {provider!r} belongs to ONNX Runtime, which does not run {model.name} ({what})"
        raise UsageError(msg, hint="leave --provider out, or give an ONNX model")
    if is_emulated:
        msg = f"provider {provider!r} cannot run emulated models; only ONNX Runtime's CPU provider can"
        raise UsageError(msg, hint="leave --provider or --emulate out")
    from paritygate.validate.runners.onnxruntime_providers import check_provider

    check_provider(provider, device)
    return replace(model, provider=provider)


def artifact_model(artifact: Artifact, *, provider: str | None = None) -> ModelRef:
    """Return the artifact as a model that converters and runners open; without `provider` it is the device's.

    Raises:
        InputFileError: The record of a source's copy is corrupt.
    """
    name = str(artifact.variant)
    from paritygate.models.source_copy import SOURCE_FILE, read_source_copy

    if artifact.main == SOURCE_FILE:
        # This is the only artifact without its own names.
        copy = read_source_copy(artifact.folder).source_in(artifact.folder)
        return replace(copy, name=name, signature=artifact.signature)
    return ModelRef(
        text=artifact.main,
        folder=artifact.folder,
        kind=FORMATS[artifact.variant.format].kind,
        name=name,
        # The file names its dims; its record has their sizes.
        signature=None if provider is None else artifact.signature,
        fixed_shape=artifact.folder / FIXED_SHAPE_FILE if artifact.variant.static else None,
        provider=provider,
    )
