"""`run` with metrics against gold and ignored outputs: in evidence, report and release."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_SAMPLES = """
    import numpy as np
    from paritygate.batch import Batch

    def scored():
        x = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)
        weight = np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32)
        labels = (x @ weight).argmax(axis=1)
        labels[::10] = (labels[::10] + 1) % 3
        for first in range(0, 120, 16):
            rows = slice(first, first + 16)
            ids = [str(n) for n in range(120)][rows]
            halves = {"half": ["ab"[int(i) % 2] for i in ids]}
            yield Batch(inputs={"x": x[rows]}, ids=ids, gold=labels[rows], strata=halves)
"""


@pytest.fixture
def scored(desk: Desk) -> Desk:
    desk.onnx()
    desk.module("scored_samples", _SAMPLES)
    return desk


def test_a_metric_stands_in_evidence_report_and_release(scored: Desk) -> None:
    scored.spec(
        samples={"source": "scored_samples:scored", "strata": ["half"]},
        gold={"metric": "accuracy", "output": "logits", "tolerance": {"mlperf": 99}},
        probes="none",
        report={"inputs": "show"},
    )

    called = scored.call("run", "spec.yaml")

    assert called.code == 0, called
    (entry,) = scored.evidence()["variants"]
    found = entry["result"]["gold"]["accuracy:logits"]
    assert (found["rows"], found["reference"], found["candidate"], found["ratio"]) == (120, 0.9, 0.9, 0.99)
    assert {value: item["rows"] for value, item in found["strata"]["half"].items()} == {"a": 60, "b": 60}
    for name in ("report.md", "report.html"):
        report = (scored.run_folder / name).read_text(encoding="utf-8")
        assert "Against gold" in report
        assert "accuracy:logits, half a" in report
        assert "at least 0.891" in report
    release = scored.folder / "artifacts/repository/store/tiny/1"
    assert (
        json.loads((release / "evidence.json").read_text(encoding="utf-8"))["variants"][0]["result"]["gold"]
        == entry["result"]["gold"]
    )


def test_an_ignored_output_is_on_record_to_the_release(scored: Desk) -> None:
    import onnx

    model = onnx.load(str(scored.folder / "model.onnx"))
    model.graph.node.append(onnx.helper.make_node("RandomNormalLike", ["x"], ["noise"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("noise", onnx.TensorProto.FLOAT, ["batch", 4]))
    onnx.save(model, str(scored.folder / "model.onnx"))
    scored.samples()
    scored.spec("refused.yaml", probes=["batches"])
    scored.spec(outputs={"noise": {"ignore": "drawn anew on every call"}}, probes=["batches"])

    assert scored.call("run", "refused.yaml").code == 5
    called = scored.call("run", "spec.yaml")

    assert called.code == 0, called
    run = scored.runs[-1]
    evidence = json.loads((run / "evidence.json").read_text(encoding="utf-8"))
    assert evidence["variants"][0]["result"]["outputs_ignored"] == {"noise": "drawn anew on every call"}
    recorded = json.loads((run / "reference/record.json").read_text(encoding="utf-8"))
    assert list(recorded["profiles"]) == ["logits"]
    for name in ("report.md", "report.html"):
        assert "output noise is ignored: drawn anew on every call" in (run / name).read_text(encoding="utf-8")
    manifest = json.loads(
        (scored.folder / "artifacts/repository/store/tiny/1/manifest.json").read_text(encoding="utf-8")
    )
    assert manifest["provenance"]["ignored_outputs"] == {"noise": "drawn anew on every call"}


def test_a_detector_is_released_by_its_matches_alone(scored: Desk) -> None:
    import onnx

    node = onnx.helper.make_node
    of = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [
            node("Split", ["x"], ["low", "rest"], axis=1),
            node("Add", ["low", "size"], ["high"]),
            node("Concat", ["low", "high"], ["flat"], axis=1),
            node("Unsqueeze", ["flat", "one"], ["output_0"]),
            node("ReduceSum", ["rest", "one"], ["sum"]),
            node("Sigmoid", ["sum"], ["scores"]),
        ],
        "detector",
        [of("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [
            of("output_0", onnx.TensorProto.FLOAT, ["batch", 1, 4]),
            of("scores", onnx.TensorProto.FLOAT, ["batch", 1]),
        ],
        [
            onnx.numpy_helper.from_array(np.ones(1, dtype=np.float32), "size"),
            onnx.numpy_helper.from_array(np.ones(1, dtype=np.int64), "one"),
        ],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(scored.folder / "model.onnx"))
    scored.samples()
    scored.spec(
        matches={"found": {"boxes": "logits", "scores": "scores", "max_box_diff": 1e-5}},
        decisions={},
        promote={"prefer": "smallest"},
        probes=["batches", "values"],
    )

    called = scored.call("run", "spec.yaml")

    assert called.code == 0, called
    (entry,) = scored.evidence()["variants"]
    assert entry["result"]["outputs"] == {}
    assert (entry["result"]["matches"]["found"]["matched"], entry["result"]["matches"]["found"]["expected"]) == (
        120,
        120,
    )
    assert scored.releases == ["tiny/1"]
    for name in ("report.md", "report.html"):
        assert "Detections matched" in (scored.run_folder / name).read_text(encoding="utf-8")
