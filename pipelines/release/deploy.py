"""Write the manifests with which a cluster verifies and serves a release."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from paritygate.errors import UsageError
from paritygate.files import temporary_folder
from paritygate.pipelines.release.released_files import released_benchmark
from paritygate.pipelines.release.repository.inspect import ReleaseDetails
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.pipelines.release.views.publish import model_to_serve
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.release.views.to_serve import ReleaseToServe, release_to_serve
from paritygate.pipelines.serving.manifests import REPOSITORY, SERVERS, USER, VIEW, PodContent, PodRequest, manifests_of
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.server_kind import ServerView, WrittenView, kind_of
from paritygate.pipelines.serving.triton.view import TritonView
from paritygate.pipelines.serving.written import Head, check_as_written, is_ours
from paritygate.roots import Root
from paritygate.text import from_here

_TRITON_TAG = re.compile(r"[^@]*:([0-9]{2}\.[0-9]{2})\b.*")
_MIB = 1024 * 1024
# Beside a copy of the release and its view: a server unpacks its runtime there.
_SPARE_MIB = 1024
# Kubernetes reads more words as numbers and booleans than PyYAML does, such as `y` and 1e3.
_PLAIN = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)\Z)[a-z/][\w./:=-]*", re.IGNORECASE)


class Deployed(Struct, frozen=True, kw_only=True):
    """Describe the written manifests."""

    pod: PodContent
    aliases: tuple[str, ...]
    file: Path
    objects: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    is_changed: bool


def deploy(repository: Root, release: tuple[str, str, str | None], request: PodRequest, out: Path) -> Deployed:
    """Write the manifests of a release (model, alias or version, variant or None), whose files are verified first.

    Raises:
        UsageError: A name, an image or the repository is not for a cluster, or the server does not serve the release.
        ChangedViewError: The file was changed by hand.
        ArtifactIntegrityError: The release is corrupt.
        StorageError: The file cannot be written.
    """
    request.check()
    place, server, (model, which, variant) = _in_cluster(repository, request), SERVERS[request.server], release
    kind = kind_of(server.view)
    to_serve = release_to_serve(repository, model, which, kind, variant=variant)
    details = to_serve.details
    tag = _TRITON_TAG.fullmatch(request.image) if request.server == "triton" else None
    order = ViewRequest(
        command=server.view,
        model=model,
        which=str(details.version),
        root=Path(VIEW),
        name=model,
        variant=to_serve.variant,
        server=None if tag is None else tag[1],
    )
    # A mistake that the init container would find is found here.
    with temporary_folder("deploy") as folder:
        view = kind.make(model_to_serve(to_serve, order, None), Place(folder))
    resources, note = _resources(to_serve)
    if isinstance(view, TritonView) and view.uses_gpu:
        resources.setdefault("limits", {})["nvidia.com/gpu"] = "1"
    unchecked = request.server == "triton" and tag is None
    notes = [note, *(["onnx: the image names no release of Triton, so versions were not checked"] if unchecked else ())]
    notes += _unreadable(repository, details)
    content = PodContent(
        model=model,
        version=details.version,
        variant=to_serve.variant,
        manifest=str(details.record.manifest),
        repository=place,
        view=[word for option in order.options.items() for word in option],
        start=_start(view),
        space=f"{2 * math.ceil(store_of(details.folder).size_bytes('') / _MIB) + _SPARE_MIB}Mi",
        resources=resources,
    )
    # YAML would write an anchor for each mapping that occurs twice.
    objects = json.loads(json.dumps(manifests_of(request, content)))
    body = "".join(f"# {note}\n" for note in notes) + yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False)
    head = Head(said=f"{model} version {details.version}, {to_serve.variant}")
    file = f"{request.name}.{request.target}.yaml"
    return Deployed(
        pod=content,
        aliases=details.aliases,
        file=out / file,
        objects=objects,
        notes=notes,
        is_changed=_write(Place(out), file, head.over(body).encode()),
    )


class _Dumper(yaml.SafeDumper):
    """Writes text in quotes unless every reader of YAML takes it for text."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Return a text as a node."""
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if _PLAIN.fullmatch(text) else '"')


_Dumper.add_representer(str, _Dumper.represent_text)


def _in_cluster(repository: Root, request: PodRequest) -> Root:
    """Return the repository as the pod sees it."""
    is_folder = isinstance(repository, Path)
    if is_folder and request.claim is None:
        msg = f"a cluster cannot read the folder {from_here(repository)} (expected: an object store, or a volume)"
        hint = "give --volume-claim NAME of a volume with its content, or --repository s3://BUCKET/PREFIX"
        raise UsageError(msg, hint=hint)
    if (request.secret if is_folder else request.claim) is not None:
        option, where = ("--secret", "an object store") if is_folder else ("--volume-claim", "a folder")
        msg = f"{option} is for a repository in {where} (got {from_here(repository)})"
        raise UsageError(msg, hint="leave it out")
    return Path(REPOSITORY) if is_folder else repository


def _start(view: ServerView) -> list[str]:
    if isinstance(view, TritonView):
        return ["tritonserver", f"--model-repository={VIEW}"]
    words = shlex.split(view.guide(Path(VIEW), WrittenView(is_changed=True)).start)
    # The pod serves one version.
    return [word for word in words if not word.startswith("--model_config_file_poll")]


def _resources(to_serve: ReleaseToServe) -> tuple[dict[str, dict[str, str]], str]:
    """Return the resources by the release's own benchmark, and a note on their origin."""
    benchmark = released_benchmark(to_serve.details)
    measured = None if benchmark is None else benchmark.of(to_serve.variant)
    is_of_this = measured is not None and measured.artifact == to_serve.artifact.digest
    if measured is None or not is_of_this or measured.peak_memory_bytes is None or not measured.points:
        return {}, f"resources: nothing was measured, because the release has no benchmark of {to_serve.variant}"
    peak, cores = math.ceil(measured.peak_memory_bytes / _MIB), max(point.cpu_cores for point in measured.points)
    figures = f"{peak} MiB and {cores:.1f} cores of {measured.runtime} on {measured.device}"
    requests = {"cpu": f"{max(math.ceil(cores * 10), 1) * 100}m", "memory": f"{peak}Mi"}
    return (
        {"requests": requests, "limits": {"memory": f"{2 * peak}Mi"}},
        f"resources: the benchmark measured {figures}, not this server; the limit is twice the memory",
    )


def _unreadable(repository: Root, details: ReleaseDetails) -> list[str]:
    """Return a note if the pod could not read a copy of a folder's release and log that keeps their modes."""
    if not isinstance(repository, Path):
        return []
    tops = (repository / "log" / details.model, Path(details.folder))
    paths = (path for top in tops for path in (*top.rglob("*"), top, *top.parents) if path.is_relative_to(repository))
    command = shlex.join(["chmod", "-R", "a+rX", from_here(repository)])
    note = f"files: a copy with these modes is closed to user {USER} of the pod; open it first: {command}"
    return [note] if any(~path.lstat().st_mode & (0o5 if path.is_dir() else 0o4) for path in paths) else []


def _write(place: Place, file: str, content: bytes) -> bool:
    """Write a file of ours that nobody edited, and return whether it changed."""
    before = place.read(file)
    if before is not None and not is_ours(before):
        msg = f"{place.path_of(file)} exists but this command did not write it, so it is not changed"
        raise UsageError(msg, hint="write to another folder with --out, or under another --name")
    if before is not None:
        check_as_written(before, place.path_of(file), keep="remove it, and make the change in the cluster or kustomize")
    if before != content:
        place.replace(file, content)
    return before != content
