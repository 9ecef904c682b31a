"""Write a version of a model into a Triton server's folder, so that a polling server never sees half of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from paritygate.artifact import Artifact
from paritygate.batch import Arrays
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
from paritygate.roots import Root
from paritygate.signature import Signature

CONFIG_FILE = "config.pbtxt"
_WARMUP = "warmup"
_INPUT = "input-"
# The digits of a digest in a folder's name, which separates inputs of one version written at different times.
_DIGEST_SHOWN = slice(7, 19)
_OURS = re.compile(r"[0-9a-f]{12}")
_OF_WARMUP = re.compile(rf"{_WARMUP}/{_OURS.pattern}/{_INPUT}[0-9]+")


class TritonView(Struct, frozen=True, kw_only=True):
    """A version of a model as a Triton server reads it: checked, and not written yet."""

    name: str  # of the model on the server
    version: int
    variant: str  # of the release
    backend: str
    config: Mapping[str, Any]  # as JSON data
    head: Head  # of config.pbtxt
    text: str  # of config.pbtxt, with its head
    files: Mapping[str, Content]  # by their names in the version's folder
    digests: Mapping[str, str]  # as released
    warmup: Mapping[str, bytes]  # by their names in the folder `warmup`
    notes: Sequence[str]  # on decisions, with reasons
    tuned: TunedSettings

    @property
    def uses_gpu(self) -> bool:
        """Whether it was verified on a GPU, and runs on one."""
        return any(group.get("kind") == "KIND_GPU" for group in self.config.get("instance_group", ()))

    def to_json(self) -> dict[str, Any]:
        """Return the data specific to Triton as JSON."""
        return {
            "backend": self.backend,
            "config": dict(self.config),
            "files": dict(self.digests),
            "warmup": sorted(self.warmup),
            "notes": list(self.notes),
            "tuned": to_data(self.tuned),
        }

    def write(self, place: Place, *, overwrite: bool = False) -> WrittenView:
        """Write a view: first the files that the configuration names, then, at once, the configuration.

        A polling server keeps its state until then. An existing version is compared and reused, so going back to it
        replaces only the configuration. Unused warm-up inputs are removed last.

        Raises:
            UsageError: The model's folder was not written by this, or holds something else under this version.
            ChangedViewError: The configuration was changed by hand, or written with options that are left out now.
            ArtifactIntegrityError: A file differs from the release.
            StorageError: The disk is full, or the place cannot be written.
        """
        check_released(self.files, self.digests, f"version {self.version}, {self.variant}")
        text = self.text.encode()
        before = place.read(f"{self.name}/{CONFIG_FILE}")
        if before is None:
            _check_not_foreign(self, place)
            if place.adds_at_once:
                return _add_model(self, place)
        elif not is_ours(before):
            _refuse(self, "was not written by this command")
        elif not overwrite:
            check_as_written(before, place.path_of(f"{self.name}/{CONFIG_FILE}"), self.head.options)
        there = place.digests(f"{self.name}/{self.version}")
        needed = self.digests if place.adds_at_once else {*self.digests} & {*there}
        # A backend's own files beside them, such as compiled code, do not count.
        if there and any(there.get(name) != self.digests[name] for name in needed):
            msg = f"{self.name}/{self.version} exists and is not {self.variant} of version {self.version}"
            raise UsageError(msg, hint="serve another variant of a version under another --name, or remove the folder")
        added = [name for name in _parts(self) if _is_missing(self, name, place, there)]
        for name in added:
            place.add_folder(f"{self.name}/{name}", _parts(self)[name])
        if before != text:
            place.replace(f"{self.name}/{CONFIG_FILE}", text)
        is_cleared = _remove_old_warmup(self, place)
        return WrittenView(added=added, is_changed=bool(added) or before != text or is_cleared)

    def guide(self, root: Root, written: WrittenView) -> Guide:
        """Return the user's next steps."""
        del written
        return triton_guide(self.config, self.notes, self.tuned, root)


def make_view(model: ServedModel, *, warmup: Arrays | None = None, head: Head | None = None) -> TritonView:
    """Return the view of an artifact, checked by every rule; files are read when the view is written.

    `warmup` is one row of real input, each (1, ...), by the model's own names. `head` is that of the configuration.

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
    """Return the version of a model in its configuration, or None if it is missing or unreadable."""
    try:
        config = data_of(parse_text((place.read(f"{name}/{CONFIG_FILE}") or b"").decode()))
    except ValueError:
        return None
    versions = config.get("version_policy", {}).get("specific", {}).get("versions", ())
    return int(versions[0]) if len(versions) == 1 else None


def _remove_old_warmup(view: TritonView, place: Place) -> bool:
    """Remove warm-up inputs that the configuration does not name, and return whether there were any."""
    named = {name.partition("/")[0] for name in view.warmup}
    old = [name for name in place.folders(f"{view.name}/{_WARMUP}") if _OURS.fullmatch(name) and name not in named]
    for name in old:
        place.remove_folder(f"{view.name}/{_WARMUP}/{name}")
    if old and not place.digests(f"{view.name}/{_WARMUP}"):
        place.remove_folder(f"{view.name}/{_WARMUP}")
    return bool(old)


def _parts(view: TritonView) -> dict[str, dict[str, Content]]:
    """Return the folders that a configuration names, in the order of writing."""
    parts: dict[str, dict[str, Content]] = {}
    for name, value in view.warmup.items():
        folder, _, file = name.partition("/")
        parts.setdefault(f"{_WARMUP}/{folder}", {})[file] = value
    return {**parts, str(view.version): dict(view.files)}


def _is_missing(view: TritonView, part: str, place: Place, there: Mapping[str, str]) -> bool:
    """Return whether a folder is missing, or a part of it where folders are not added at once."""
    names = there if part == str(view.version) else place.digests(f"{view.name}/{part}")
    return not names if place.adds_at_once else not {*_parts(view)[part]} <= {*names}


def _check_not_foreign(view: TritonView, place: Place) -> None:
    """Refuse the folder of a model without configuration, unless an interrupted write of this version left it."""
    there = place.digests(view.name)
    ours = {f"{view.version}/{name}": digest for name, digest in view.digests.items()}
    if there and (
        place.adds_at_once
        or not all(ours.get(name) == digest or _OF_WARMUP.fullmatch(name) for name, digest in there.items())
    ):
        _refuse(view, "has no configuration")


def _add_model(view: TritonView, place: Place) -> WrittenView:
    """Add the folder of a model that is new to the server, all at once."""
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


def _warmup_of(artifact: Artifact, signature: Signature, rows: Arrays) -> tuple[dict[str, bytes], list[WarmupInput]]:
    """Return the files of the warm-up inputs by name, and their entries in the configuration."""
    from paritygate.validate.runners.endpoint.tensors import as_bytes

    arrays = [rows[spec.name] for spec in artifact.signature.inputs]
    # By number, because a model may name an input like a path.
    raw = {f"{_INPUT}{at}": as_bytes(array) for at, array in enumerate(arrays)}
    folder = digest_of_files({name: digest_of(value) for name, value in raw.items()})[_DIGEST_SHOWN]
    inputs = [
        WarmupInput(name=spec.name, dtype=spec.dtype, shape=array.shape, file=f"{folder}/{name}")
        for spec, array, name in zip(signature.inputs, arrays, raw, strict=True)
    ]
    return {f"{folder}/{name}": value for name, value in raw.items()}, inputs
