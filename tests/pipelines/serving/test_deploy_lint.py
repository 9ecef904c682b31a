"""What `deploy` writes breaks no rule for manifests, and each rule finds the fault that is planted for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.pipelines.serving.manifest_rules import NOT_MEASURED, RULES, lint

from paritygate.pipelines.serving.manifests import LONGEST_NAME, SERVERS, PodContent, PodRequest, manifests_of
from paritygate.roots import Address

_DIGEST = f"sha256:{'0' * 64}"
_RESOURCES = {"requests": {"cpu": "500m", "memory": "300Mi"}, "limits": {"memory": "600Mi"}}


def objects_of(target: str = "kubernetes", server: str = "triton") -> list[dict[str, Any]]:
    """Return right manifests as data."""
    request = PodRequest(
        target=target,
        server=server,
        image="registry.example:5000/team/triton:25.10-py3",
        init_image=f"paritygate@{_DIGEST}",
        name="scores",
        secret="models-read",  # noqa: S106 - its name
    )
    content = PodContent(
        model="scores",
        version=3,
        variant="onnx-fp32",
        manifest=_DIGEST,
        repository=Address("s3://models/releases"),
        view=["--variant", "onnx-fp32"],
        start=["tritonserver"],
        space="1024Mi",
        resources=_RESOURCES,
    )
    request.check()
    # Nothing is shared between objects, so that a fault is planted in one place.
    objects: list[dict[str, Any]] = json.loads(json.dumps(manifests_of(request, content)))
    return objects


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("target", LONGEST_NAME)
def test_right_manifests_break_no_rule(target: str, server: str) -> None:
    assert lint(yaml.safe_dump_all(objects_of(target, server))) == []


def _pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    spec = objects[0]["spec"]
    pod: dict[str, Any] = spec["predictor"] if "predictor" in spec else spec["template"]["spec"]
    return pod


def _server(objects: list[dict[str, Any]]) -> dict[str, Any]:
    server: dict[str, Any] = _pod(objects)["containers"][0]
    return server


def _first(objects: list[dict[str, Any]]) -> dict[str, Any]:
    first: dict[str, Any] = _pod(objects)["initContainers"][0]
    return first


def _annotations(objects: list[dict[str, Any]]) -> dict[str, str]:
    holder = objects[0]["spec"].get("template", objects[0])
    annotations: dict[str, str] = holder["metadata"]["annotations"]
    return annotations


def _set_replicas(objects: list[dict[str, Any]], count: int) -> None:
    spec = objects[0]["spec"]
    spec.get("predictor", spec).update(minReplicas=count, replicas=count)


PLANTS: list[tuple[str, Callable[[list[dict[str, Any]]], object]]] = [
    ("image", lambda all_: _server(all_).update(image="triton:latest")),
    ("image", lambda all_: _server(all_).update(image="triton")),
    ("image", lambda all_: _first(all_).update(image="registry.example:5000/paritygate")),
    ("image", lambda all_: _server(all_).update(image="triton@sha256:12")),
    ("replicas", lambda all_: _set_replicas(all_, 0)),
    ("limits", lambda all_: _server(all_).pop("resources")),
    ("limits", lambda all_: _server(all_)["resources"].pop("limits")),
    ("limits", lambda all_: _server(all_)["resources"].pop("requests")),
    ("probes", lambda all_: _server(all_).pop("startupProbe")),
    ("probes", lambda all_: _server(all_).pop("readinessProbe")),
    ("probes", lambda all_: _server(all_)["livenessProbe"].pop("httpGet")),
    ("probes", lambda all_: _server(all_)["startupProbe"].update(failureThreshold=3)),
    ("credentials", lambda all_: _first(all_)["command"].append("s3://key:word@models/releases")),
    ("credentials", lambda all_: _annotations(all_).update(note="AKIA" + "A1B2" * 4)),
    ("credentials", lambda all_: _first(all_)["env"].append({"name": "AWS_SECRET_ACCESS_KEY", "value": "word"})),
    ("user", lambda all_: _pod(all_)["securityContext"].pop("runAsNonRoot")),
    ("user", lambda all_: _server(all_)["securityContext"].pop("allowPrivilegeEscalation")),
    ("volumes", lambda all_: _pod(all_)["securityContext"].pop("fsGroup")),
    ("volumes", lambda all_: _pod(all_)["volumes"][1]["emptyDir"].clear()),
    ("file system", lambda all_: _server(all_)["securityContext"].update(readOnlyRootFilesystem=False)),
    ("file system", lambda all_: _first(all_).pop("securityContext")),
    ("file system", lambda all_: _server(all_)["volumeMounts"][0].pop("readOnly")),
    ("file system", lambda all_: _first(all_)["volumeMounts"][0].update(readOnly=False)),
    ("port names", lambda all_: _server(all_)["ports"].append({"name": "http", "containerPort": 9000})),
    ("port names", lambda all_: _server(all_)["ports"].append({"containerPort": 9000})),
    ("port names", lambda all_: _server(all_)["ports"].append({"name": "a-name-of-16-long", "containerPort": 9000})),
    ("port names", lambda all_: _server(all_).pop("ports")),
    ("release", lambda all_: _annotations(all_).update({"paritygate/version": "prod"})),
    ("release", lambda all_: _annotations(all_).pop("paritygate/manifest")),
    ("verify", lambda all_: _pod(all_)["initContainers"].pop(0)),
    ("verify", lambda all_: _pod(all_).pop("initContainers")),
    ("verify", lambda all_: _first(all_)["command"].__setitem__(3, "prod")),
    ("verify", lambda all_: _first(all_)["command"].remove("--manifest")),
    ("verify", lambda all_: _pod(all_)["initContainers"][1]["command"].__setitem__(3, "prod")),
    ("verify", lambda all_: _pod(all_)["initContainers"].reverse()),
    ("name", lambda all_: all_[0]["metadata"].update(name="scores.v2")),
]


@pytest.mark.parametrize("target", LONGEST_NAME)
@pytest.mark.parametrize(("rule", "plant"), PLANTS, ids=[f"{rule}-{at}" for at, (rule, _) in enumerate(PLANTS)])
def test_a_fault_is_found(target: str, rule: str, plant: Callable[[list[dict[str, Any]]], object]) -> None:
    objects = objects_of(target)
    plant(objects)

    assert rule in {name for name, _ in lint(yaml.safe_dump_all(objects))}


def test_a_service_names_ports_that_are_open() -> None:
    objects = objects_of()
    objects[1]["spec"]["ports"][0]["targetPort"] = "web"

    assert {name for name, _ in lint(yaml.safe_dump_all(objects))} == {"port names"}


def test_manifests_without_measured_figures_say_so() -> None:
    objects = objects_of()
    _server(objects).pop("resources")

    assert lint(f"{NOT_MEASURED}\n{yaml.safe_dump_all(objects)}") == []


def test_every_rule_has_a_fault() -> None:
    assert {rule for rule, _ in PLANTS} == {*RULES}
