"""`diagnose` draws its places into a page, and writes the errors of the nodes for Model Explorer."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest
from tests.pipelines.conftest import Desk

_MODEL = """<ir_version: 9, opset_import: ["": 17]> net (float[n,4] x) => (float[n,4] y)
<float[4] w = {0.5, 2, 1.5, 3}> {
  [scaled] a = Mul(x, w) [cut] b = OPERATOR(a) [<b>bold] c = Add(b, x) [again] d = Mul(c, w) [last] y = Sub(d, x) }"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a folder with two models that part at one node, whose reader has a name that is markup."""
    for name, operator in (("reference", "Relu"), ("candidate", "Abs")):
        onnx.save(_model(operator), tmp_path / f"{name}.onnx")
    np.savez(tmp_path / "inputs.npz", x=np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32))
    return Desk(folder=tmp_path)


def _model(operator: str) -> onnx.ModelProto:
    text = _MODEL.replace("OPERATOR", operator).replace("[scaled]", "").replace("[cut]", "").replace("[<b>bold]", "")
    model = onnx.parser.parse_model(text.replace("[again]", "").replace("[last]", ""))
    for node, name in zip(model.graph.node, ("scaled", "cut", "<b>bold", "again", "last"), strict=True):
        node.name = name
    return model


_CALL = ("diagnose", "reference.onnx", "candidate.onnx", "--samples", "inputs.npz", "--quiet")


def test_the_page_draws_both_models_at_the_place_and_runs_nothing(desk: Desk) -> None:
    assert desk.call(*_CALL, "--report", "page.html").code == 1

    page = (desk.folder / "page.html").read_text(encoding="utf-8")
    drawings = [ET.fromstring(part.split("</svg>")[0] + "</svg>") for part in _svg_parts(page)]  # noqa: S314 - our own
    titles = [[title.text for title in drawing.iter("title")] for drawing in drawings]
    here = [
        [path.find("title").text for path in each.iter("path") if "here" in path.get("class", "")] for each in drawings
    ]  # type: ignore[union-attr]
    assert here == [["Relu cut"], ["Abs cut"]]
    assert all(set(names) == {"Mul scaled", names[1], "Add <b>bold", "Mul again", "Sub last"} for names in titles)
    assert "<b>" not in page
    assert "<script" not in page


def _svg_parts(page: str) -> list[str]:
    return [f"<svg {part}" for part in page.split("<svg ")[1:]]


def test_node_data_has_the_error_of_each_node_and_marks_the_place(desk: Desk) -> None:
    called = desk.call(*_CALL, "--node-data", "errors.json")

    data = json.loads((desk.folder / "errors.json").read_text(encoding="utf-8"))
    assert data["results"]["scaled"]["value"] < 1e-6
    assert data["results"]["cut"]["value"] > 1e-3
    assert [name for name, item in data["results"].items() if "bgColor" in item] == ["cut"]
    values = [item["value"] for item in data["thresholds"]]
    assert values == sorted(values)
    assert values[-1] >= max(item["value"] for item in data["results"].values())
    assert "--node_data_paths=errors.json" in called.out


@pytest.mark.parametrize("options", [("--report", "page.pdf"), ("--node-data", "no/such/folder/errors.json")])
def test_what_cannot_be_written_is_wrong_usage(desk: Desk, options: tuple[str, ...]) -> None:
    assert desk.call(*_CALL, *options).code == 2


def test_node_data_replace_no_model(desk: Desk) -> None:
    model = desk.folder / _CALL[2]
    before = model.read_bytes()

    assert desk.call(*_CALL, "--node-data", str(model)).code == 2
    assert model.read_bytes() == before
