"""Manifests of `deploy` have the fields and types of Kubernetes's schemas, and of KServe's own classes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.servers.conftest import environment_of
from tests.servers.test_kserve_manifest import unknown_to_kserve

import paritygate as pg
from paritygate.pipelines.release.deploy import deploy
from paritygate.pipelines.serving.manifests import PodRequest

pytestmark = [pytest.mark.servers, pytest.mark.thorough]
# An older one, and the newest that the package has.
VERSIONS = ("1.29", "1.37")
# Run where the package is installed: prints the paths of what the strict schemas refuse.
_PROGRAM = """
import json, sys
import kubernetes_validate

refused = []
for each in json.load(sys.stdin):
    try:
        kubernetes_validate.validate(each, sys.argv[1], strict=True)
    except kubernetes_validate.ValidationError as err:
        refused.append(".".join(map(str, err.path)) + ": " + err.message)
print(json.dumps(refused))
"""


def refused_by_kubernetes(objects: list[dict[str, Any]], version: str) -> list[str]:
    """Return what the strict schemas of a version refuse."""
    python = environment_of("kserve") / "bin/python"
    ran = subprocess.run(
        [str(python), "-c", _PROGRAM, version],
        input=json.dumps(objects),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return found


def manifests(release: pg.Release, folder: Path, target: str) -> list[dict[str, Any]]:
    request = PodRequest(
        target=target,
        server="triton",
        image="registry.example/triton:25.10-py3",
        init_image="registry.example/paritygate:0.3.0",
        name="scores",
        claim="releases",
    )
    return [dict(each) for each in deploy(release.root, ("scores", "prod", None), request, folder).objects]


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_them(release: pg.Release, tmp_path: Path, version: str) -> None:
    objects = manifests(release, tmp_path, "kubernetes")

    assert [each["kind"] for each in objects] == ["Deployment", "Service"]
    assert refused_by_kubernetes(objects, version) == []
    container = objects[0]["spec"]["template"]["spec"]["containers"][0]
    container["readinessprobe"] = container.pop("readinessProbe")
    objects[1]["spec"]["ports"][0]["port"] = "http"
    assert len(refused_by_kubernetes(objects, version)) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_kserve_takes_them(release: pg.Release, tmp_path: Path, version: str) -> None:
    (service,) = manifests(release, tmp_path, "kserve")
    predictor = service["spec"]["predictor"]
    of_kserve = {"minReplicas", "maxReplicas"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "scores"}}
    pod["spec"] = {key: value for key, value in predictor.items() if key not in of_kserve}

    assert unknown_to_kserve(service) == []
    assert refused_by_kubernetes([pod], version) == []
    predictor["containers"][0]["livenessprobe"] = {}
    predictor["initcontainers"] = predictor.pop("initContainers")
    assert sorted(unknown_to_kserve(service)) == [
        ".spec.predictor.containers.livenessprobe",
        ".spec.predictor.initcontainers",
    ]
