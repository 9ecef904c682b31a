"""Write a version of a model where a Triton server looks for models, so that a server that polls sees no half of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.artifact import Artifact
from paritygate.codec import to_data
from paritygate.errors import UsageError
from paritygate.files import digest_of_files
from paritygate.pipelines.serving.place import Content, Place, check_released, digest_of
from paritygate.pipelines.serving.protobuf import ConfigError, data_of, text_of
from paritygate.pipelines.serving.server_kind import Guide, WrittenView
from paritygate.pipelines.serving.triton.backends import backend_of, files_of, served_signature
from paritygate.pipelines.serving.triton.config import ServedModel, WarmupInput, make_config
from paritygate.pipelines.serving.triton.guide import triton_guide
from paritygate.pipelines.serving.triton.lint import Problem, View, lint
from paritygate.pipelines.serving.triton.messages import config_of, parse_text
from paritygate.pipelines.serving.triton.servers import OnnxVersion
from paritygate.pipelines.serving.triton.settings import TunedSettings
from paritygate.pipelines.serving.written import Head, check_as_written, is_ours
from paritygate.signature import Signature

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIG_FILE = "config.pbtxt"
_WARMUP = "warmup"
_INPUT = "input-"
# Of a digest, after `sha256:`; as a folder's name it tells inputs of one version from those of another time.
_DIGEST_SHOWN = slice(7, 19)
_OURS = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonView:
    """A version of a model as a Triton server reads it: checked, and not written yet.

    Attributes:
        name: The model's name on the server.
        version: The version that is served.
        variant: What of the release it is.
        backend: The backend that serves it.
        config: The configuration as JSON data.
        head: The head of `config.pbtxt`.
        text: What `config.pbtxt` holds, with its head.
        files: The files of the version, by their names within its folder.
        digests: The digest of each as it was released.
        warmup: The warm-up inputs, by their names within the folder `warmup`.
        notes: What was decided and why, in words.
        tuned: What `tune` measured of the model there, and whether it counts.
    """

    name: str
    version: int
    variant: str
    backend: str
    config: Mapping[str, Any]
    head: Head
    text: str
    files: Mapping[str, Content]
    digests: Mapping[str, str]
    warmup: Mapping[str, bytes]
    notes: Sequence[str]
    tuned: TunedSettings

    def to_json(self) -> dict[str, Any]:
        """Return what is particular to Triton as JSON data."""
        return {
            "backend": self.backend,
            "config": dict(self.config),
            "files": dict(self.digests),
            "warmup": sorted(self.warmup),
            "notes": list(self.notes),
            "tuned": to_data(self.tuned),
        }

    def write(self, place: Place, *, overwrite: bool = False) -> WrittenView:
        """Write a view: first what the configuration names, then, at once, the configuration.

        A server that polls goes on with what it has until then. A version that is there is compared and kept: going
        back to it replaces nothing but the configuration. Warm-up inputs that are named no longer are removed at last.

        Raises:
            UsageError: The model's folder was not written by this, or holds something else under this version.
            ChangedViewError: The configuration was changed by hand, or written with options that are left out now.
            ArtifactIntegrityError: A file is not what was released.
            StorageError: The disk is full, or the place cannot be written.
        """
        check_released(self.files, self.digests, f"version {self.version}, {self.variant}")
        text = self.text.encode()
        before = place.read(f"{self.name}/{CONFIG_FILE}")
        if before is None:
            return _add_model(self, place)
        if not is_ours(before):
            _refuse(self, "was not written by this command")
        if not overwrite:
            check_as_written(before, place.path_of(f"{self.name}/{CONFIG_FILE}"), self.head.options)
        there = place.digests(f"{self.name}/{self.version}")
        # What a backend leaves beside them, such as compiled code, is no part of the release.
        if there and any(there.get(name) != digest for name, digest in self.digests.items()):
            msg = f"{self.name}/{self.version} exists and is not {self.variant} of version {self.version}"
            raise UsageError(msg, hint="serve another variant of a version under another --name, or remove the folder")
        added = [name for name in _parts(self) if not place.digests(f"{self.name}/{name}")]
        for name in added:
            place.add_folder(f"{self.name}/{name}", _parts(self)[name])
        if before != text:
            place.replace(f"{self.name}/{CONFIG_FILE}", text)
        is_cleared = _remove_old_warmup(self, place)
        return WrittenView(added=added, is_changed=bool(added) or before != text or is_cleared)

    def guide(self, root: Path, written: WrittenView) -> Guide:
        """Return what a user does with it."""
        del written
        return triton_guide(self.config, self.notes, self.tuned, root)


def make_view(
    model: ServedModel, *, warmup: Mapping[str, NDArray[np.generic]] | None = None, head: Head | None = None
) -> TritonView:
    """Return the view of an artifact, after every rule was held against it.

    Args:
        model: What is served; its files are read when the view is written.
        warmup: One row of real input, each of shape (1, ...), by the model's own names; no warm-up if None.
        head: The head of the configuration, such as the release that it is of; one that says nothing if None.

    Raises:
        UsageError: Triton does not serve the format, or the configuration breaks a rule.
    """
    artifact, here, head = model.artifact, files_of(model.artifact), head or Head()
    signature = served_signature(artifact)
    raw, inputs = _warmup_of(artifact, signature, warmup) if warmup else ({}, [])
    try:
        made = make_config(model, warmup=inputs)
        text = head.over(text_of(config_of(made.data)))
    except ConfigError as err:
        msg = f"serve.triton: {err}"
        raise UsageError(msg, hint="see serve in docs/spec.md, or Triton's own description of config.pbtxt") from err
    files: dict[str, Content] = {name: artifact.folder / place for name, place in here.items()}
    sizes = {f"{model.version}/{name}": (artifact.folder / place).stat().st_size for name, place in here.items()}
    sizes.update({f"{_WARMUP}/{name}": len(value) for name, value in raw.items()})
    problems = lint(
        View(
            folder=model.name,
            text=text,
            files=sizes,
            signature=signature,
            devices=model.devices,
            onnx=None if model.server is None else _onnx_version(artifact),
            server=model.server,
        )
    )
    if problems:
        msg = "Triton would refuse the view, or answer wrongly: " + "; ".join(map(str, problems))
        raise UsageError(msg, hint=_hint(problems))
    return TritonView(
        name=model.name,
        version=model.version,
        variant=str(artifact.variant),
        backend=backend_of(artifact.variant.format).name,
        config=made.data,
        head=head,
        text=text,
        files=files,
        digests={name: artifact.files[place] for name, place in here.items()},
        warmup=raw,
        notes=made.notes,
        tuned=model.tuned,
    )


def _hint(problems: Sequence[Problem]) -> str:
    if any(problem.rule == "onnx version" for problem in problems):
        return "set opset in the spec to one that the server reads and release it again, or serve it by a later Triton"
    return "correct serve.triton in the spec, or leave it out; nothing was written"


def version_in_config(place: Place, name: str) -> int | None:
    """Return the version of a model that its configuration names; None where there is none, or it cannot be read."""
    try:
        config = data_of(parse_text((place.read(f"{name}/{CONFIG_FILE}") or b"").decode()))
    except ValueError:
        return None
    versions = config.get("version_policy", {}).get("specific", {}).get("versions", ())
    return int(versions[0]) if len(versions) == 1 else None


def _remove_old_warmup(view: TritonView, place: Place) -> bool:
    """Remove the warm-up inputs that the configuration does not name, and return whether there were any."""
    named = {name.partition("/")[0] for name in view.warmup}
    old = [name for name in place.folders(f"{view.name}/{_WARMUP}") if _OURS.fullmatch(name) and name not in named]
    for name in old:
        place.remove_folder(f"{view.name}/{_WARMUP}/{name}")
    if old and not place.digests(f"{view.name}/{_WARMUP}"):
        place.remove_folder(f"{view.name}/{_WARMUP}")
    return bool(old)


def _parts(view: TritonView) -> dict[str, dict[str, Content]]:
    """Return the folders that a configuration names, in the order in which they are written."""
    parts: dict[str, dict[str, Content]] = {}
    for name, value in view.warmup.items():
        folder, _, file = name.partition("/")
        parts.setdefault(f"{_WARMUP}/{folder}", {})[file] = value
    return {**parts, str(view.version): dict(view.files)}


def _add_model(view: TritonView, place: Place) -> WrittenView:
    """Add the folder of a model that the server does not have: all of it at once."""
    if place.digests(view.name):
        _refuse(view, "has no configuration")
    parts = _parts(view)
    files: dict[str, Content] = {f"{part}/{name}": value for part in parts for name, value in parts[part].items()}
    place.add_folder(view.name, {**files, CONFIG_FILE: view.text.encode()})
    return WrittenView(added=list(parts), is_changed=True)


def _refuse(view: TritonView, why: str) -> None:
    msg = f"the folder {view.name} exists and {why}, so it is not changed"
    raise UsageError(msg, hint="write to another folder with --out, or serve it under another --name")


def _onnx_version(artifact: Artifact) -> OnnxVersion | None:
    if artifact.variant.format != "onnx":
        return None
    from paritygate.models.onnx.file import opset_of, read_onnx

    model = read_onnx(artifact.path)
    return OnnxVersion(ir=model.ir_version, opset=opset_of(model))


def _warmup_of(
    artifact: Artifact, signature: Signature, rows: Mapping[str, NDArray[np.generic]]
) -> tuple[dict[str, bytes], list[WarmupInput]]:
    """Return the files of the warm-up inputs by name, and what the configuration says of them."""
    from paritygate.validate.runners.endpoint.tensors import as_bytes

    arrays = [rows[spec.name] for spec in artifact.signature.inputs]
    # By number, since a model may name an input like a path.
    raw = {f"{_INPUT}{at}": as_bytes(array) for at, array in enumerate(arrays)}
    folder = digest_of_files({name: digest_of(value) for name, value in raw.items()})[_DIGEST_SHOWN]
    inputs = [
        WarmupInput(name=spec.name, dtype=spec.dtype, shape=array.shape, file=f"{folder}/{name}")
        for spec, array, name in zip(signature.inputs, arrays, raw, strict=True)
    ]
    return {f"{folder}/{name}": value for name, value in raw.items()}, inputs
