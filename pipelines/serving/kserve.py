"""The view of a release that KServe runs on its Triton: a repository of models by version, and an InferenceService.

Source: `serving.kserve.io_inferenceservices.yaml`, the schema of an InferenceService (v1beta1) in the sources of
KServe 0.20, `kserve-tritonserver.yaml`, its runtime, and what its controller takes as a storageUri. No Kubernetes ever
ran such a view here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from paritygate.errors import UsageError
from paritygate.pipelines.serving.place import FolderOfPlace, Place
from paritygate.pipelines.serving.triton.view import TritonView, write_view
from paritygate.pipelines.serving.written import check_as_written, is_ours

MANIFEST = "inferenceservice.yaml"
_RUNTIME = "kserve-tritonserver"
# Its services have this name and `-predictor`, and names of Kubernetes have 63 characters at most.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,51}[a-z0-9])?")
# Of what KServe reads from, those that hold folders: it copies all that is below into the container.
_FOLDERS = ("gs://", "s3://", "pvc://", "hdfs://", "webhdfs://")
_FOLDER = re.compile("(gs|s3|pvc|hdfs|webhdfs)://[^/]")
# The name of a volume claim, as Kubernetes has names.
_CLAIM = re.compile(r"(?=.{1,253}$)[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_EXAMPLE = "give for example --storage-uri pvc://CLAIM/PATH"
# How a change of the service lasts.
_KEEP = "make the change in the cluster, with kubectl patch or kustomize"
_AZURE = re.compile(r"https://[^/]+\.blob\.core\.windows\.net/.+")


@dataclass(frozen=True, kw_only=True, slots=True)
class KServeView:
    """A version of a model as KServe runs it, not written yet.

    Attributes:
        triton: What its Triton reads.
        manifest: The InferenceService as JSON data.
    """

    triton: TritonView
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the service, and of the model on its server."""
        return self.triton.name

    @property
    def folder(self) -> str:
        """What is to be copied to where the service reads it."""
        return f"{self.name}/{self.triton.version}"

    @property
    def storage_uri(self) -> str:
        """Where the service reads it."""
        return str(self.manifest["spec"]["predictor"]["model"]["storageUri"])

    def to_json(self) -> dict[str, Any]:
        """Return what is particular to KServe as JSON data."""
        return {"manifest": dict(self.manifest), "folder": self.folder, "triton": self.triton.to_json()}


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenKServe:
    """What writing a view came to: whether anything was written."""

    is_changed: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {"is_changed": self.is_changed}


def make_kserve_view(triton: TritonView, *, storage_uri: str, server: str, is_on_gpu: bool) -> KServeView:
    """Return the view of what a Triton reads.

    Args:
        triton: What it reads.
        storage_uri: The place of all models as the cluster sees it.
        server: The release of Triton.
        is_on_gpu: Whether it is served on a GPU.

    Raises:
        UsageError: KServe takes no service of that name, or reads no folder from that place.
    """
    if _NAME.fullmatch(triton.name) is None:
        msg = f"KServe has no service called {triton.name!r} (allowed: a-z, 0-9 and -, a letter first, at most 53 long)"
        raise UsageError(msg, hint="serve it under another --name")
    _check_claim(storage_uri)
    if not _FOLDER.match(storage_uri) and _AZURE.fullmatch(storage_uri) is None:
        allowed = f"{', '.join(_FOLDERS)}, each with a name, or https://ACCOUNT.blob.core.windows.net/"
        msg = f"KServe reads no folder of models from {storage_uri!r} (allowed: what begins with {allowed})"
        raise UsageError(msg, hint=_EXAMPLE)
    model: dict[str, Any] = {
        "modelFormat": {"name": "triton"},
        "runtime": _RUNTIME,
        # KServe's own is 23.05, older than all of which is known here what they open.
        "runtimeVersion": f"{server}-py3",
        "protocolVersion": "v2",
        # One for each version: a service whose place stays the same is not started again.
        "storageUri": f"{storage_uri.rstrip('/')}/{triton.name}/{triton.version}",
    }
    if is_on_gpu:
        model["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    manifest = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": triton.name},
        "spec": {"predictor": {"model": model}},
    }
    return KServeView(triton=triton, manifest=manifest)


def _check_claim(storage_uri: str) -> None:
    """Check that a place on a volume is written as KServe reads it: the claim, a slash, and the path.

    Why is a claim alone refused, which KServe takes? `pvc://models` is meant as a folder as often as it names a claim.
    """
    place = storage_uri.removeprefix("pvc://")
    if place == storage_uri:
        return
    claim, slash, _ = place.partition("/")
    if _CLAIM.fullmatch(claim) is None:
        msg = f"{storage_uri!r} names no volume claim {claim!r} (allowed: pvc://CLAIM/PATH; CLAIM of a-z, 0-9, - and .)"
        raise UsageError(msg, hint=_EXAMPLE)
    if not slash:
        msg = f"{storage_uri!r} names the volume claim {claim!r} and no path on it (allowed: pvc://CLAIM/PATH)"
        whole = f"pvc://{claim}/ for the whole volume"
        raise UsageError(msg, hint=f"give pvc://{claim}/PATH, {whole}, or pvc://CLAIM/{claim} where it is the path")


def write_kserve(view: KServeView, place: Place, *, overwrite: bool = False) -> WrittenKServe:
    """Write a view: first the version's folder, then at once the service that names it.

    Args:
        view: The view.
        place: Where the folder of the service is.
        overwrite: As of `write_view`, of the service as well.

    Raises:
        UsageError: The service's file was not written by this, or the version's folder holds something else.
        ChangedViewError: A file was changed by hand, or written with options that are left out now.
        ArtifactIntegrityError: A file is not what was released.
        StorageError: The disk is full, or the place cannot be written.
    """
    name = f"{view.name}/{MANIFEST}"
    before = place.read(name)
    if before is not None and not is_ours(before):
        msg = f"{name} is there and was not written by this command: it is left alone"
        raise UsageError(msg, hint="write to another folder with --out, or serve it under another --name")
    foreign = [] if before is not None else [item for item in place.digests(view.name) if not _is_of_version(item)]
    if foreign:
        msg = f"the folder {view.name} is there, and this command did not write {foreign[0]} in it: it is left alone"
        raise UsageError(msg, hint="write to another folder with --out, or serve it under another --name")
    if before is not None and not overwrite:
        check_as_written(before, place.path_of(name), view.triton.head.options, keep=_KEEP)
    written = write_view(view.triton, FolderOfPlace(place, view.folder), overwrite=overwrite)
    text = view.triton.head.over(yaml.safe_dump(dict(view.manifest), sort_keys=False)).encode()
    if before != text:
        place.replace(name, text)
    return WrittenKServe(is_changed=written.is_changed or before != text)


def _is_of_version(name: str) -> bool:
    """Return whether a file lies in the folder of a version: where writing broke off, there is no service beside it."""
    return name.partition("/")[0].isdecimal()


def version_in_kserve(place: Place, name: str) -> int | None:
    """Return the version that a service reads; None where there is no service, or it cannot be read."""
    try:
        manifest = yaml.safe_load(place.read(f"{name}/{MANIFEST}") or b"")
        return int(str(manifest["spec"]["predictor"]["model"]["storageUri"]).rpartition("/")[2])
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        return None
