"""Write the view of a release for KServe's Triton: a repository of models by version, and an InferenceService.

Source: `serving.kserve.io_inferenceservices.yaml`, the schema of an InferenceService (v1beta1) of KServe 0.20, its
runtime `kserve-tritonserver.yaml`, and its controller's rules on storageUri. No Kubernetes ever ran such a view here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from paritygate.errors import UsageError
from paritygate.pipelines.serving.manifests import LONGEST_NAME, SUBDOMAIN, check_label
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.server_kind import Guide, ModelToServe, ServerKind, WrittenView
from paritygate.pipelines.serving.triton.backends import BACKENDS, files_of
from paritygate.pipelines.serving.triton.server import triton_view_of
from paritygate.pipelines.serving.triton.view import TritonView
from paritygate.pipelines.serving.written import check_as_written, is_ours
from paritygate.roots import Root
from paritygate.text import from_here

MANIFEST = "inferenceservice.yaml"
_RUNTIME = "kserve-tritonserver"
# KServe's sources that hold folders, which it copies into the container.
_FOLDERS = ("gs://", "s3://", "pvc://", "hdfs://", "webhdfs://")
_FOLDER = re.compile("(gs|s3|pvc|hdfs|webhdfs)://[^/]")
_EXAMPLE = "give for example --storage-uri pvc://CLAIM/PATH"
# A hint on lasting changes of the service.
_KEEP = "make the change in the cluster, with kubectl patch or kustomize"
_AZURE = re.compile(r"https://[^/]+\.blob\.core\.windows\.net/.+")


class KServeView(Struct, frozen=True, kw_only=True):
    """A version of a model for KServe, not written yet: files for its Triton, and the InferenceService as JSON data."""

    triton: TritonView
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the service, and of the model on its server."""
        return self.triton.name

    @property
    def folder(self) -> str:
        """The folder to copy to the place that the service reads."""
        return f"{self.name}/{self.triton.version}"

    @property
    def storage_uri(self) -> str:
        """The place that the service reads."""
        return str(self.manifest["spec"]["predictor"]["model"]["storageUri"])

    def to_json(self) -> dict[str, Any]:
        """Return the data specific to KServe as JSON."""
        return {"manifest": dict(self.manifest), "folder": self.folder, "triton": self.triton.to_json()}

    def write(self, place: Place, *, overwrite: bool = False) -> WrittenView:
        """Write a view: first the version's folder, then at once the service that names it.

        Raises:
            UsageError: The service's file was not written by this, or the version's folder holds something else.
            ChangedViewError: A file was changed by hand, or written with options that are left out now.
            ArtifactIntegrityError: A file differs from the release.
            StorageError: The disk is full, or the place cannot be written.
        """
        name = f"{self.name}/{MANIFEST}"
        before = place.read(name)
        if before is not None and not is_ours(before):
            msg = f"{name} exists and this command did not write it, so it is not changed"
            raise UsageError(msg, hint="write to another folder with --out, or serve it under another --name")
        foreign = [] if before is not None else [item for item in place.digests(self.name) if not _is_of_version(item)]
        if foreign:
            msg = (
                f"the folder {self.name} exists and this command did not write {foreign[0]} in it, so the "
                "folder is not changed"
            )
            raise UsageError(msg, hint="write to another folder with --out, or serve it under another --name")
        if before is not None and not overwrite:
            check_as_written(before, place.path_of(name), self.triton.head.options, keep=_KEEP)
        written = self.triton.write(place.within(self.folder), overwrite=overwrite)
        text = self.triton.head.over(yaml.safe_dump(dict(self.manifest), sort_keys=False)).encode()
        if before != text:
            place.replace(name, text)
        return WrittenView(is_changed=written.is_changed or before != text)

    def guide(self, root: Root, written: WrittenView) -> Guide:
        """Return the user's next steps, because only the user can bring it into the cluster."""
        return replace(
            self.triton.guide(root, written),
            copy=f"{from_here(root / self.folder)} to {self.storage_uri}",
            start=f"kubectl apply -f {shlex.quote(from_here(root / self.name / MANIFEST))}",
            reload=(),
            address=f"http://HOST/v2/models/{self.name}",
        )


def make_kserve_view(triton: TritonView, *, storage_uri: str, server: str) -> KServeView:
    """Return the view of a Triton view, for all models at `storage_uri` in the cluster, and a release of Triton.

    Raises:
        UsageError: KServe does not allow that name of a service, or cannot read a folder from that place.
    """
    check_label(triton.name, LONGEST_NAME["kserve"])
    _check_claim(storage_uri)
    if not _FOLDER.match(storage_uri) and _AZURE.fullmatch(storage_uri) is None:
        allowed = f"{', '.join(_FOLDERS)}, each with a name, or https://ACCOUNT.blob.core.windows.net/"
        msg = f"KServe cannot read a folder of models from {storage_uri!r} (allowed prefixes: {allowed})"
        raise UsageError(msg, hint=_EXAMPLE)
    model: dict[str, Any] = {
        "modelFormat": {"name": "triton"},
        "runtime": _RUNTIME,
        # KServe's own is 23.05, older than any release with known limits here.
        "runtimeVersion": f"{server}-py3",
        "protocolVersion": "v2",
        # One for each version, because a service with an unchanged place is not restarted.
        "storageUri": f"{storage_uri.rstrip('/')}/{triton.name}/{triton.version}",
    }
    if triton.uses_gpu:
        model["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    manifest = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": triton.name},
        "spec": {"predictor": {"model": model}},
    }
    return KServeView(triton=triton, manifest=manifest)


def _check_claim(storage_uri: str) -> None:
    """Check that a place on a volume has the claim, a slash, and the path.

    A claim alone, which KServe allows, is refused, because `pvc://models` often means a folder.
    """
    place = storage_uri.removeprefix("pvc://")
    if place == storage_uri:
        return
    claim, slash, _ = place.partition("/")
    if SUBDOMAIN.fullmatch(claim) is None:
        msg = f"{storage_uri!r} names no volume claim {claim!r} (allowed: pvc://CLAIM/PATH; CLAIM of a-z, 0-9, - and .)"
        raise UsageError(msg, hint=_EXAMPLE)
    if not slash:
        msg = f"{storage_uri!r} names the volume claim {claim!r} without a path (allowed: pvc://CLAIM/PATH)"
        whole = f"pvc://{claim}/ for the whole volume"
        raise UsageError(msg, hint=f"give pvc://{claim}/PATH, {whole}, or pvc://CLAIM/{claim} if {claim} is the path")


def _is_of_version(name: str) -> bool:
    """Return whether a file is in a version's folder, which an interrupted write leaves without a service."""
    return name.partition("/")[0].isdecimal()


def version_in_kserve(place: Place, name: str) -> int | None:
    """Return the version that a service reads, or None if it is missing or unreadable."""
    try:
        manifest = yaml.safe_load(place.read(f"{name}/{MANIFEST}") or b"")
        return int(str(manifest["spec"]["predictor"]["model"]["storageUri"]).rpartition("/")[2])
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        return None


def _make(model: ModelToServe, place: Place) -> KServeView:
    del place
    # Both are required.
    return make_kserve_view(triton_view_of(model), storage_uri=str(model.storage_uri), server=str(model.server))


KIND = ServerKind(
    reads="KServe's Triton",
    formats=tuple(BACKENDS),
    required={"--storage-uri": "pvc://CLAIM/PATH", "--server": "25.10"},
    make=_make,
    shown=version_in_kserve,
    files_of=files_of,
    folder="{name}/{version}/{name}/{version}",
    # A cluster has one service of a name, from whichever folder.
    is_one_per_name=True,
)
