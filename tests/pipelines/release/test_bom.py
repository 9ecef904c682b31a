"""The bill of materials of a release: it names what was released and measured, and fits the strict schema."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_STORE = "artifacts/repository/store/tiny/1"


def _bom(desk: Desk, tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    shown = desk.json("show", "tiny", "1", "--bom", str(tmp_path / "bom.json"))
    assert shown.code == 0
    return json.loads((tmp_path / "bom.json").read_text()), shown.data


def _facts(component: dict[str, Any]) -> dict[str, str]:
    return {item["name"].removeprefix("paritygate:"): item["value"] for item in component["properties"]}


def test_it_names_files_samples_precision_limits_and_figures(finished: Desk, tmp_path: Path) -> None:
    bom, shown = _bom(finished, tmp_path)

    manifest = shown["manifest"]
    parts = {component["bom-ref"]: component for component in bom["components"]}
    variant = parts["variant:onnx-fp32"]
    hashes = {file["name"]: file["hashes"][0]["content"] for file in variant["components"]}
    folder = finished.folder / _STORE / "onnx-fp32"
    assert hashes == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    limits = manifest["provenance"]["tolerances"]["onnx-fp32"]
    facts = _facts(variant)
    assert (facts["format"], facts["precision"], facts["verdict"]) == ("onnx", "fp32", "pass")
    declared = {name: limit for name, limit in limits.items() if limit is not None}
    assert {name for name in facts if name.startswith("limit:")} == {f"limit:{name}" for name in declared} != set()
    assert json.loads(facts["limit:max_abs_diff"]) == declared["max_abs_diff"]
    assert _facts(parts["samples"]) == {"digest": manifest["provenance"]["samples"]}
    metrics = variant["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    (measured,) = {item["max_abs_diff"] for item in shown["numbers"] if item["variant"] == "onnx-fp32"}
    assert [float(item["value"]) for item in metrics if item["type"] == "max_abs_diff"] == [measured]
    assert bom["metadata"]["component"]["hashes"][0]["content"] == shown["record"]["manifest"].partition(":")[2]
    assert _bom(finished, tmp_path)[0] == bom


def test_it_fits_the_strict_schema(finished: Desk, tmp_path: Path) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json", reason="cyclonedx-python-lib is not installed")
    schema = pytest.importorskip("cyclonedx.schema").SchemaVersion
    bom, _ = _bom(finished, tmp_path)
    check = validation.JsonStrictValidator(schema.V1_6).validate_str

    assert check(json.dumps(bom)) is None
    assert check(json.dumps({**bom, "verdict": "pass"})) is not None
