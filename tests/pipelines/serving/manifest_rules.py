"""Rules for manifests beyond their schemas: what no cluster refuses, and nobody wants in one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

# Stands in the text if a release has no measured figures.
NOT_MEASURED = "# resources: nothing was measured"
_CREDENTIAL = re.compile(r"://[^\s/]*@|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|PRIVATE KEY")
_SECRET_NAME = re.compile("secret|password|token|credential|key", re.IGNORECASE)
_PORT = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_LABEL = re.compile("[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_LEAST_START_S = 60


@dataclass(frozen=True)
class Manifests:
    """Manifests as text, and what the rules read in them: the workload, and the service where there is one."""

    text: str
    objects: list[dict[str, Any]]

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.objects[0]["spec"]
        return spec

    @property
    def pod(self) -> dict[str, Any]:
        pod: dict[str, Any] = self.spec["predictor"] if "predictor" in self.spec else self.spec["template"]["spec"]
        return pod

    @property
    def release(self) -> tuple[str, str]:
        holder = self.spec.get("template", self.objects[0])
        notes = holder["metadata"].get("annotations", {})
        return notes.get("paritygate/version", ""), notes.get("paritygate/manifest", "")

    @property
    def first(self) -> list[dict[str, Any]]:
        return list(self.pod.get("initContainers", ()))

    @property
    def server(self) -> dict[str, Any]:
        server: dict[str, Any]
        (server,) = self.pod["containers"]
        return server

    @property
    def containers(self) -> list[dict[str, Any]]:
        return [*self.first, self.server]


def lint(text: str) -> list[tuple[str, str]]:
    """Return each broken rule with what breaks it."""
    manifests = Manifests(text, list(yaml.safe_load_all(text)))
    return [(name, problem) for name, rule in RULES.items() for problem in rule(manifests)]


def _image(manifests: Manifests) -> Iterator[str]:
    for image in (container["image"] for container in manifests.containers):
        name, _, digest = image.partition("@")
        tag = name.rpartition("/")[2].partition(":")[2]
        if "@" in image and _DIGEST.fullmatch(digest) is None:
            yield f"{image} has no digest behind its @"
        if "@" not in image and tag in {"", "latest"}:
            yield f"{image} has neither a tag nor a digest, or moves"


def _replicas(manifests: Manifests) -> Iterator[str]:
    count = manifests.pod["minReplicas"] if "predictor" in manifests.spec else manifests.spec["replicas"]
    if count < 1:
        yield f"{count} of them"


def _limits(manifests: Manifests) -> Iterator[str]:
    resources = manifests.server.get("resources", {})
    has_all = "memory" in resources.get("limits", {}) and {"cpu", "memory"} <= {*resources.get("requests", {})}
    if not has_all and NOT_MEASURED not in manifests.text:
        yield "the server lacks a limit or requests"


def _probes(manifests: Manifests) -> Iterator[str]:
    for name in _PROBES:
        probe = manifests.server.get(name, {})
        if not {"httpGet", "tcpSocket", "grpc"} & {*probe}:
            yield f"there is no {name}"
        elif name == _PROBES[0] and probe["periodSeconds"] * probe["failureThreshold"] < _LEAST_START_S:
            yield f"less than {_LEAST_START_S} s to start"


def _credentials(manifests: Manifests) -> Iterator[str]:
    if _CREDENTIAL.search(manifests.text):
        yield "the text holds one"
    for container in manifests.containers:
        for variable in container.get("env", ()):
            if "value" in variable and _SECRET_NAME.search(variable["name"]):
                yield f"{variable['name']} is a value"


def _user(manifests: Manifests) -> Iterator[str]:
    if manifests.pod.get("securityContext", {}).get("runAsNonRoot") is not True:
        yield "the pod may run as root"
    for container in manifests.containers:
        if container.get("securityContext", {}).get("allowPrivilegeEscalation") is not False:
            yield f"{container['name']} may become root"


def _volumes(manifests: Manifests) -> Iterator[str]:
    if manifests.pod.get("securityContext", {}).get("fsGroup") is None:
        yield "no group of the pod owns its volumes"
    for volume in manifests.pod["volumes"]:
        if "sizeLimit" not in volume.get("emptyDir", {"sizeLimit": ""}):
            yield f"{volume['name']} may fill the disk of its node"


def _files(manifests: Manifests) -> Iterator[str]:
    for container in manifests.containers:
        if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
            yield f"{container['name']} may write to its image"
        for mount in container["volumeMounts"]:
            may_write = {"tmp", "models"} if container["name"] == "view" else {"tmp"}
            if not mount.get("readOnly") and mount["name"] not in may_write:
                yield f"{container['name']} may write to {mount['name']}"


def _ports(manifests: Manifests) -> Iterator[str]:
    names = [port.get("name", "") for port in manifests.server.get("ports", ())]
    if not names or len({*names}) < len(names) or not all(map(_PORT.fullmatch, names)):
        yield f"the names are {names}"
    for port in (port for each in manifests.objects[1:] for port in each["spec"]["ports"]):
        if port["targetPort"] not in names:
            yield f"{port['name']} of the service is open in no container"


def _release(manifests: Manifests) -> Iterator[str]:
    version, digest = manifests.release
    if not version.isdecimal() or _DIGEST.fullmatch(digest) is None:
        yield f"it is {version!r} with {digest!r}"


def _verify(manifests: Manifests) -> Iterator[str]:
    version, digest = manifests.release
    commands = [container["command"][1:] for container in manifests.first]
    if not commands or commands[0][:1] != ["verify"] or commands[0][2:5] != [version, "--manifest", digest]:
        yield "the first init container does not verify the release"
    if any(words[2:3] != [version] for words in commands[1:]):
        yield "an init container reads another release"


def _name(manifests: Manifests) -> Iterator[str]:
    for each in manifests.objects:
        if _LABEL.fullmatch(each["metadata"]["name"]) is None:
            yield f"{each['metadata']['name']} is no DNS label"


RULES: Mapping[str, Callable[[Manifests], Iterator[str]]] = {
    "image": _image,
    "replicas": _replicas,
    "limits": _limits,
    "probes": _probes,
    "credentials": _credentials,
    "user": _user,
    "volumes": _volumes,
    "file system": _files,
    "port names": _ports,
    "release": _release,
    "verify": _verify,
    "name": _name,
}
