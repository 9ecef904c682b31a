"""Describe a release for a cluster: its pod verifies it, writes the server's view of it, and starts the server.

Source: the documentation of Triton, of TensorFlow Serving's REST interface and of Kubernetes. The predictor of an
InferenceService (v1beta1 of KServe 0.21) holds a pod's specification. No cluster ever ran such a pod here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from paritygate.errors import UsageError
from paritygate.roots import Root

# As the containers see them. A view is prepared beside its folder, so the volume of models is one level above.
_MODELS = "/models"
VIEW = f"{_MODELS}/view"
REPOSITORY = "/repository"
# It is nobody's on the machine that filled the volume.
USER = 1000
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# The name of a volume claim, or of a secret.
SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?[a-z0-9]+(?:[./_-]+[a-z0-9]+)*"
    r"(?:(?::(?!latest(?:@|$))\w[\w.-]{0,127})?@sha256:[0-9a-f]{64}|:(?!latest$)\w[\w.-]{0,127})"
)
# Kubernetes's limit for a service. KServe makes one called NAME-predictor.
LONGEST_NAME: Mapping[str, int] = {"kubernetes": 63, "kserve": 53}
_NAME = "app.kubernetes.io/name"


class PodServer(Struct, frozen=True, kw_only=True):
    """A server that a pod can run, and its requests for probes."""

    view: str  # the command that writes its models
    ports: Mapping[str, int]  # the first one answers probes
    ready: str  # answers 200 once the version is loaded
    live: Mapping[str, Any]  # the probe of a server that need not be ready
    start: str  # the field with its command: `args` keeps the entrypoint of its image


SERVERS: Mapping[str, PodServer] = {
    "triton": PodServer(
        view="triton",
        ports={"http": 8000, "grpc": 8001, "metrics": 8002},
        ready="/v2/models/{name}/versions/{version}/ready",
        live={"httpGet": {"path": "/v2/health/live", "port": "http"}},
        start="args",
    ),
    "tensorflow-serving": PodServer(
        view="tfserving",
        ports={"http": 8501, "grpc": 8500},
        # The version's status is 200 even if it failed to load.
        ready="/v1/models/{name}/versions/{version}/metadata",
        live={"tcpSocket": {"port": "http"}},
        start="command",
    ),
}


class PodRequest(Struct, frozen=True, kw_only=True):
    """The options for a pod."""

    target: str
    server: str
    image: str  # of the server
    init_image: str  # with paritygate
    name: str  # of the objects
    replicas: int = 1
    claim: str | None = None  # the volume with the repository
    secret: str | None = None  # the credentials of its object store

    def check(self) -> None:
        """Raise UsageError if a cluster does not allow a name, or an image has neither a tag nor a digest."""
        check_label(self.name, LONGEST_NAME[self.target])
        for option, name in (("--volume-claim", self.claim), ("--secret", self.secret)):
            if name is not None and SUBDOMAIN.fullmatch(name) is None:
                msg = f"{option} is {name!r} (allowed: a-z, 0-9, - and ., a letter or digit first and last)"
                raise UsageError(msg, hint="list the names with kubectl get pvc,secret")
        for option, image in (("--image", self.image), ("--init-image", self.init_image)):
            if _IMAGE.fullmatch(image) is None:
                msg = f"{option} is {image!r} (expected NAME:TAG, where TAG is not latest, or NAME@sha256:DIGEST)"
                raise UsageError(msg, hint="name the version that you tested")


class PodContent(Struct, frozen=True, kw_only=True):
    """The release in a pod."""

    model: str
    version: int
    variant: str
    manifest: str  # its digest
    repository: Root  # as the containers see it
    view: Sequence[str]  # options of the command that writes the server's models
    start: Sequence[str]  # the server's command
    space: str  # the most that each volume of the pod may hold
    resources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def check_label(name: str, longest: int) -> None:
    """Raise UsageError, with an allowed name in the hint, if no service may have a name."""
    if _LABEL.fullmatch(name) is None or len(name) > longest:
        msg = f"the service name is {name!r} (allowed: a-z, 0-9 and -, a letter first, at most {longest} long)"
        made = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
        made = made if made[:1].isalpha() else f"m-{made}"
        raise UsageError(msg, hint=f"give it another name: --name {made[:longest].rstrip('-')}")


def manifests_of(request: PodRequest, content: PodContent) -> list[dict[str, Any]]:
    """Return a Deployment with its Service, or an InferenceService."""
    ports = SERVERS[request.server].ports
    release = {key: str(getattr(content, key)) for key in ("model", "version", "variant", "manifest")}
    annotations = {f"paritygate/{key}": value for key, value in release.items()}
    if request.target == "kserve":
        # Its service is for one port. The mode needs no Knative, which refuses init containers by default.
        pod = _pod(request, content, "kserve-container", [*ports][:1])
        pod |= {"minReplicas": request.replicas, "maxReplicas": request.replicas}
        service = _object("serving.kserve.io/v1beta1", "InferenceService", request.name, {"predictor": pod})
        service["metadata"]["annotations"] = {"serving.kserve.io/deploymentMode": "Standard", **annotations}
        return [service]
    template = {
        "metadata": {"labels": {_NAME: request.name}, "annotations": annotations},
        "spec": _pod(request, content, "server", [*ports]),
    }
    spec = {"replicas": request.replicas, "selector": {"matchLabels": {_NAME: request.name}}, "template": template}
    targets = [{"name": name, "port": port, "targetPort": name} for name, port in ports.items()]
    return [
        _object("apps/v1", "Deployment", request.name, spec),
        _object("v1", "Service", request.name, {"selector": {_NAME: request.name}, "ports": targets}),
    ]


def _object(version: str, kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": {_NAME: name}}, "spec": spec}


def _pod(request: PodRequest, content: PodContent, name: str, ports: Sequence[str]) -> dict[str, Any]:
    server, release = SERVERS[request.server], (content.model, str(content.version))
    ready = {"httpGet": {"path": server.ready.format(name=content.model, version=content.version), "port": "http"}}
    view = (server.view, *release, "--out", VIEW, *content.view, "--no-follow", "--quiet")
    claimed = {"name": "repository", "persistentVolumeClaim": {"claimName": request.claim, "readOnly": True}}
    return {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [
            _init(request, content, "verify", "verify", *release, "--manifest", content.manifest),
            _init(request, content, "view", *view),
        ],
        "containers": [
            {
                **_container(name, request.image, _mount("models", _MODELS, is_read_only=True)),
                server.start: list(content.start),
                "ports": [{"name": port, "containerPort": server.ports[port]} for port in ports],
                # Five minutes to load. Then a pod that is not ready gets no requests, and one that hangs is restarted.
                "startupProbe": _probe(ready, every_s=5, failures=60),
                "readinessProbe": _probe(ready, every_s=5, failures=3),
                "livenessProbe": _probe(server.live, every_s=10, failures=6),
                "resources": {key: dict(value) for key, value in content.resources.items()},
            }
        ],
        "volumes": [
            *({"name": name, "emptyDir": {"sizeLimit": content.space}} for name in ("models", "tmp")),
            *([claimed] if request.claim else ()),
        ],
    }


def _init(request: PodRequest, content: PodContent, name: str, *words: str) -> dict[str, Any]:
    claim = [_mount("repository", REPOSITORY, is_read_only=True)] if request.claim else []
    return {
        **_container(name, request.init_image, _mount("models", _MODELS, is_read_only=name == "verify"), *claim),
        "command": ["convert-and-validate", *words, "--repository", str(content.repository)],
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - a volume of the pod
        "envFrom": [{"secretRef": {"name": request.secret}}] if request.secret else [],
    }


def _container(name: str, image: str, *mounts: Mapping[str, Any]) -> dict[str, Any]:
    confined = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    tmp = _mount("tmp", "/tmp", is_read_only=False)  # noqa: S108 - a volume of the pod
    return {"name": name, "image": image, "securityContext": confined, "volumeMounts": [*mounts, tmp]}


def _mount(name: str, place: str, *, is_read_only: bool) -> dict[str, Any]:
    return {"name": name, "mountPath": place, "readOnly": is_read_only}


def _probe(request: Mapping[str, Any], *, every_s: int, failures: int) -> dict[str, Any]:
    return {**request, "periodSeconds": every_s, "timeoutSeconds": 5, "failureThreshold": failures}
