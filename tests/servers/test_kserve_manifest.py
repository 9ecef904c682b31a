"""The service that is written for KServe has the fields of the classes that KServe's own package describes it by."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.servers.conftest import environment_of

import paritygate as pg
from paritygate.pipelines.release.views.publish import publish_view
from paritygate.pipelines.release.views.request import ViewRequest

pytestmark = [pytest.mark.servers, pytest.mark.thorough]
# Run where KServe is installed: prints the fields that its classes do not have.
_PROGRAM = """
import json, sys
import kserve
from kubernetes import client

def unknown(data, kind, at=""):
    if kind.startswith("list["):
        return [name for each in data for name in unknown(each, kind[5:-1], at)]
    if not kind.startswith("V1"):
        return []
    found = getattr(kserve, kind, None) or getattr(client, kind)
    types = {found.attribute_map[name]: said for name, said in found.openapi_types.items()}
    wrong = [f"{at}.{name}" for name in data if name not in types]
    for name in set(data) & set(types):
        wrong += unknown(data[name], types[name], f"{at}.{name}")
    return wrong

print(json.dumps(unknown(json.load(sys.stdin), "V1beta1InferenceService")))
"""


def unknown_to_kserve(service: object) -> list[str]:
    """Return the fields of a service that KServe's classes do not have."""
    python = environment_of("kserve") / "bin/python"
    ran = subprocess.run(
        [str(python), "-c", _PROGRAM], input=json.dumps(service), check=True, stdout=subprocess.PIPE, text=True
    )
    found: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_every_field_is_one_of_kserve(release: pg.Release, tmp_path: Path) -> None:
    order = ViewRequest(
        command="kserve",
        model="scores",
        which="prod",
        root=tmp_path / "models",
        name="scores",
        server="25.10",
        storage_uri="pvc://models/scores",
    )
    publish_view(release.root, order)
    service = yaml.safe_load((tmp_path / "models/scores/inferenceservice.yaml").read_text())
    service["spec"]["predictor"]["model"]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}

    assert unknown_to_kserve(service) == []
    service["spec"]["predictor"]["model"]["storageURI"] = "pvc://models"
    service["spec"]["predictor"]["model"]["resources"]["limit"] = {}
    assert sorted(unknown_to_kserve(service)) == [
        ".spec.predictor.model.resources.limit",
        ".spec.predictor.model.storageURI",
    ]
