"""Write the view of a release for OpenVINO Model Server: a folder for each version, and the list of models.

Source: `docs/models_repository_classic.md`, `docs/parameters.md` and the schema of the configuration in
`src/schema.cpp` of openvinotoolkit/model_server. No such server ever ran on such a view here. The schema allows no own
keys, and JSON has no comments. So the list has no head, and only paritygate's values are replaced in it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct, field

from paritygate.artifact import Artifact
from paritygate.errors import UsageError
from paritygate.files import parse_json
from paritygate.models.openvino.settings import DEFAULT_HINT, PRECISION_HINT, read_settings
from paritygate.pipelines.serving.place import Content, Place, add_version
from paritygate.pipelines.serving.server_kind import (
    Guide,
    ModelToServe,
    ServerKind,
    WrittenView,
    check_same_path,
    path_on_server,
)
from paritygate.roots import Root

MODELS_FILE = "config.json"
_LIST = "model_config_list"
# By format, the suffix by which the server finds the model in a version's folder.
_ENDS = {"openvino": ".xml", "onnx": ".onnx"}
# These properties change outputs, so none of an earlier version may stay. Others are the user's.
_DECIDE_ANSWERS = (PRECISION_HINT, "EXECUTION_MODE_HINT", "DYNAMIC_QUANTIZATION_GROUP_SIZE")


class OvmsView(Struct, frozen=True, kw_only=True):
    """A version of a model as the server reads it, not written yet."""

    name: str  # of the model on the server
    version: int
    files: Mapping[str, Content]  # by their names in the version's folder
    digests: Mapping[str, str]  # as released
    base_path: str  # the model's folder as the server sees it
    settings: Mapping[str, Any]  # properties to compile with, as verified
    notes: Sequence[str] = field(default_factory=tuple)  # differences from the verified release

    def to_json(self) -> dict[str, Any]:
        """Return the data specific to the server as JSON."""
        return {
            "base_path": self.base_path,
            "files": dict(self.digests),
            "settings": dict(self.settings),
            "notes": list(self.notes),
        }

    def write(self, place: Place, *, overwrite: bool = False) -> WrittenView:
        """Write the folder of the version, then at once the list of models with this one in it.

        Other models, keys and properties in the list stay.

        Raises:
            ChangedViewError: The list has the model at another base path.
            UsageError: The list cannot be read, or the version's folder holds something else.
            ArtifactIntegrityError: A file differs from the release.
            StorageError: The disk is full, or the place cannot be written.
        """
        content, models = _read(place)
        if self.name not in models:
            content[_LIST].append({"config": models.setdefault(self.name, {})})
        entry = models[self.name]
        if not overwrite:
            path = entry.get("base_path", self.base_path)
            check_same_path(place.path_of(MODELS_FILE), self.name, path, self.base_path)
        properties = {key: value for key, value in entry.get("plugin_config", {}).items() if key not in _DECIDE_ANSWERS}
        entry |= {
            "name": self.name,
            "base_path": self.base_path,
            "model_version_policy": {"specific": {"versions": [self.version]}},
            "plugin_config": {**properties, **self.settings},
        }
        is_new = add_version(place, f"{self.name}/{self.version}", self.files, self.digests)
        text = (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
        is_other = place.read(MODELS_FILE) != text
        if is_other:
            place.replace(MODELS_FILE, text)
        return WrittenView(is_changed=is_new or is_other, models=sorted(models))

    def guide(self, root: Root, written: WrittenView) -> Guide:
        """Return the user's next steps."""
        del root
        file = f"{self.base_path.removesuffix(f'/{self.name}')}/{MODELS_FILE}"
        return Guide(
            messages=(
                f"models in {MODELS_FILE}: {', '.join(written.models or ())}",
                f"compiled with: {', '.join(f'{name}={value}' for name, value in self.settings.items())}",
                *(f"note: {note}" for note in self.notes),
            ),
            start=f"ovms --config_path {shlex.quote(file)} --port 9000 --rest_port 8000",
            reload=("a server with --file_system_poll_wait_seconds above 0, its default, reads it by itself",),
            address=f"grpc://127.0.0.1:9000/{self.name}",
        )


def _make(model: ModelToServe, place: Place) -> OvmsView:
    del place
    artifact = model.artifact
    form = artifact.variant.format
    if form not in _ENDS:
        msg = f"{KIND.reads} does not serve {artifact.variant} (allowed: {', '.join(_ENDS)})"
        raise UsageError(msg, hint="leave --variant out, which takes a released variant of one of these formats")
    _check_one_model(artifact, _ENDS[form])
    settings = read_settings(artifact.path) if form == KIND.own_format else None
    unverified = "the server runs the ONNX file in OpenVINO, in which it was not verified: compare what it answers"
    return OvmsView(
        name=model.name,
        version=model.version,
        files={name: artifact.folder / name for name in artifact.files},
        digests=artifact.files,
        base_path=path_on_server(model.base_path or str(model.root), model.name),
        settings=settings or {PRECISION_HINT: DEFAULT_HINT},
        notes=() if form == KIND.own_format else (unverified,),
    )


def _check_one_model(artifact: Artifact, end: str) -> None:
    """Check that the server finds exactly the model in the version's folder by its suffix."""
    names = [name for name in artifact.files if name.endswith(end) and len(PurePosixPath(name).parts) == 1]
    if names != [artifact.main]:
        msg = f"{artifact.variant} has {', '.join(names) or 'no'} as {end} (expected one: {artifact.main})"
        raise UsageError(msg, hint="make it again with", command="convert-and-validate export")


def _read(place: Place) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the existing or an empty list, and its entries by the names of the models.

    Raises:
        UsageError: It is not a list of models.
    """
    text = place.read(MODELS_FILE)
    if text is None:
        return {_LIST: []}, {}
    try:
        content = parse_json(text)
        entries = [_checked(item["config"]) for item in content[_LIST]]
    except (AttributeError, KeyError, TypeError, ValueError) as err:
        file = place.path_of(MODELS_FILE)
        msg = f"{file} is left alone, because it is not a list of models: {type(err).__name__}: {err}"
        raise UsageError(msg, hint="write to another folder with --out") from err
    return content, {entry["name"]: entry for entry in entries}


def _checked(entry: dict[str, Any]) -> dict[str, Any]:
    for key, kind in {"name": str, "base_path": str, "plugin_config": dict}.items():
        if not isinstance(entry.get(key, {}), kind):
            raise TypeError(f"{key} is {entry.get(key)!r}")
    return entry


def _shown(place: Place, name: str) -> int | None:
    try:
        (version,) = _read(place)[1][name]["model_version_policy"]["specific"]["versions"]
        return int(version)
    except (UsageError, KeyError, TypeError, ValueError):
        return None


KIND = ServerKind(reads="OpenVINO Model Server", formats=tuple(_ENDS), own_format="openvino", make=_make, shown=_shown)
