"""Write the view of a release for TensorFlow Serving: a SavedModel by version, and its configuration files.

Source: `model_server_config.proto`, `file_system_storage_path_source.proto` and `session_bundle_config.proto` of
tensorflow/serving: messages, fields, their numbers and types. No TensorFlow Serving ever ran on such a view here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from paritygate.artifact import Artifact
from paritygate.errors import UsageError
from paritygate.pipelines.serving.place import Content, Place, add_version
from paritygate.pipelines.serving.protobuf import (
    ConfigError,
    data_of,
    message_class,
    message_of,
    parse_message,
    text_of,
)
from paritygate.pipelines.serving.server_kind import (
    Guide,
    ModelToServe,
    ServerKind,
    WrittenView,
    check_same_path,
    path_on_server,
)
from paritygate.pipelines.serving.written import Head, check_as_written, is_ours
from paritygate.roots import Root
from paritygate.signature import Signature

FORMAT = "savedmodel"
MODELS_FILE = "models.config"
# The option that makes the server read the list of models again.
_POLLS = "--model_config_file_poll_wait_seconds"
# The time that a request waits for others.
_BATCH_TIMEOUT_US = 100
_SERVER: Mapping[str, str] = {
    "Specific": "versions 1 int64*",
    "VersionPolicy": "specific 102 Specific |policy_choice",
    "ModelConfig": "name 1 string, base_path 2 string, model_platform 4 string, model_version_policy 7 VersionPolicy",
    "ModelConfigList": "config 1 ModelConfig*",
    "ModelServerConfig": "model_config_list 1 ModelConfigList |config",
}
_BATCHING: Mapping[str, str] = {
    "Int64Value": "value 1 int64",
    "BatchingParameters": "max_batch_size 1 Int64Value, batch_timeout_micros 2 Int64Value, "
    "max_enqueued_batches 3 Int64Value, num_batch_threads 4 Int64Value",
}


@functools.cache
def _server_config() -> Any:  # noqa: ANN401 - a class that protobuf makes
    return message_class("tensorflow.serving", "ModelServerConfig", _SERVER, {})


class SavedModelView(Struct, frozen=True, kw_only=True):
    """A version of a model as TensorFlow Serving reads it, not written yet."""

    name: str  # of the model on the server
    version: int
    files: Mapping[str, Content]  # by their names in the version's folder
    digests: Mapping[str, str]  # as released
    base_path: str  # the model's folder as the server sees it
    batching: str | None  # the batching file; None without batching
    notes: Sequence[str] = field(default_factory=tuple)  # why requests are not batched

    def to_json(self) -> dict[str, Any]:
        """Return the data specific to TensorFlow Serving as JSON."""
        return {
            "base_path": self.base_path,
            "files": dict(self.digests),
            "is_batched": self.batching is not None,
            "notes": list(self.notes),
        }

    @property
    def batching_file(self) -> str:
        """The name of the batching file, beside that of the models: a server reads one for all its models."""
        return f"batching-{self.name}.config"

    def write(self, place: Place, *, overwrite: bool = False) -> WrittenView:
        """Write a view: first the version, then the batching file, then at once the list of models with this one in it.

        Raises:
            ChangedViewError: The list or the batching file was changed by hand, or the model has another base path.
            UsageError: The list of models was not written by this, or the version's folder holds something else.
            ArtifactIntegrityError: A file differs from the release.
            StorageError: The disk is full, or the place cannot be written.
        """
        before = place.read(MODELS_FILE)
        models = _models_of(before)
        if not overwrite:
            _check_nothing_is_lost(self, place, models)
        models[self.name] = _entry(self)
        text = Head().over(text_of(_list_of(models))).encode()
        is_new = add_version(place, f"{self.name}/{self.version}", self.files, self.digests)
        batching = None if self.batching is None else self.batching.encode()
        is_other = batching is not None and place.read(self.batching_file) != batching
        if batching is not None and is_other:
            place.replace(self.batching_file, batching)
        if before != text:
            place.replace(MODELS_FILE, text)
        return WrittenView(is_changed=is_new or is_other or before != text, models=sorted(models))

    def guide(self, root: Root, written: WrittenView) -> Guide:
        """Return the user's next steps."""
        del root
        place = self.base_path.removesuffix(f"/{self.name}")
        batching = f" --enable_batching --batching_parameters_file={place}/{self.batching_file}"
        # The version before may be batched, and its server reads this one by itself.
        unbatched = "note: its requests are not batched: run its server without --enable_batching"
        reload = f"a server with {_POLLS} reads it by itself"
        return Guide(
            messages=(
                f"models in {MODELS_FILE}: {', '.join(written.models or ())}",
                *(f"note: {note}" for note in self.notes),
            ),
            start=f"tensorflow_model_server --model_config_file={place}/{MODELS_FILE}"
            f"{'' if self.batching is None else batching} {_POLLS}=60 --rest_api_port=8501",
            reload=(reload, unbatched) if self.batching is None else (reload,),
            address=f"http://127.0.0.1:8501/v1/models/{self.name}",
        )


def make_saved_model_view(artifact: Artifact, *, name: str, version: int, base_path: str) -> SavedModelView:
    """Return the view of a SavedModel; `base_path` is the folder of all models, as the server sees it.

    Raises:
        UsageError: It is not a SavedModel, or the path is not absolute.
    """
    if artifact.variant.format != FORMAT:
        msg = f"TensorFlow Serving does not serve {artifact.variant} (allowed: {FORMAT})"
        raise UsageError(msg, hint=f"leave --variant out, which takes the released variant of the format {FORMAT}")
    hindrance = _hindrance_of_batching(artifact.signature)
    return SavedModelView(
        name=name,
        version=version,
        files={name: artifact.folder / name for name in artifact.files},
        digests=artifact.files,
        base_path=path_on_server(base_path, name),
        batching=None if hindrance else _batching_of(artifact.signature),
        notes=(f"requests are not batched: {hindrance}",) if hindrance else (),
    )


def version_in_models_file(place: Place, name: str) -> int | None:
    """Return the version of a model in the list of models, or None if it is missing or unreadable."""
    try:
        entry = _models_of(place.read(MODELS_FILE)).get(name, {})
    except UsageError:
        return None
    versions = entry.get("model_version_policy", {}).get("specific", {}).get("versions", ())
    return int(versions[0]) if len(versions) == 1 else None


def _make(model: ModelToServe, place: Place) -> SavedModelView:
    del place
    base_path = model.base_path or str(model.root)
    return make_saved_model_view(model.artifact, name=model.name, version=model.version, base_path=base_path)


def _check_nothing_is_lost(view: SavedModelView, place: Place, models: Mapping[str, Mapping[str, Any]]) -> None:
    for name in (MODELS_FILE, view.batching_file):
        content = place.read(name)
        if content is not None:
            check_as_written(content, place.path_of(name), keep="put a copy elsewhere, and start the server with that")
    before = models.get(view.name, {}).get("base_path", view.base_path)
    check_same_path(place.path_of(MODELS_FILE), view.name, before, view.base_path)


def _entry(view: SavedModelView) -> dict[str, Any]:
    return {
        "name": view.name,
        "base_path": view.base_path,
        "model_platform": "tensorflow",
        "model_version_policy": {"specific": {"versions": [view.version]}},
    }


def _list_of(models: Mapping[str, Mapping[str, Any]]) -> Any:  # noqa: ANN401 - a message of protobuf
    config = [models[name] for name in sorted(models)]
    return message_of({"model_config_list": {"config": config}}, _server_config())


def _models_of(content: bytes | None) -> dict[str, dict[str, Any]]:
    if content is None:
        return {}
    try:
        if not is_ours(content):
            raise ConfigError("this command did not write it")
        data = data_of(parse_message(content.decode(), _server_config()))
    except ValueError as err:
        msg = f"{MODELS_FILE} exists and is not changed: {err}"
        raise UsageError(msg, hint="write to another folder with --out") from err
    return {entry["name"]: entry for entry in data.get("model_config_list", {}).get("config", [])}


def _hindrance_of_batching(signature: Signature) -> str:
    """Return why requests cannot be batched; empty if they can."""
    batch = signature.batch_dim
    if batch is None:
        return "not every input and output has the same symbolic first dim"
    varying = [spec for spec in signature.inputs if not all(isinstance(dim, int) for dim in (spec.shape or ())[1:])]
    if varying:
        # Padding with zeros would change the outputs of a model without a mask.
        return (
            f"{', '.join(map(str, varying))} may differ in length between requests, and TensorFlow Serving refuses "
            "requests of different lengths that it would batch, or pads them, which changes the answers of a model "
            "without a mask"
        )
    if batch not in signature.dims:
        return f"nobody declared how many rows a call may have; declare model.dims.{batch} in the spec"
    return ""


def _batching_of(signature: Signature) -> str:
    """Return the batching file, with the declared sizes of the batch."""
    sizes = signature.dims[str(signature.batch_dim)]
    data = {"max_batch_size": {"value": sizes.max}, "batch_timeout_micros": {"value": _BATCH_TIMEOUT_US}}
    message = message_of(data, message_class("tensorflow.serving", "BatchingParameters", _BATCHING, {}))
    return Head().over(text_of(message))


KIND = ServerKind(reads="TensorFlow Serving", formats=(FORMAT,), make=_make, shown=version_in_models_file)
