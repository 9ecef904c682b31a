"""Classifiers of scikit-learn, exported by skl2onnx: mappings as outputs, text, and what targets cannot take."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.pipelines.compare.result import NOT_AVAILABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Desk

# Its import takes seconds, in each worker that collects this file.
pytestmark = pytest.mark.skipif(find_spec("skl2onnx") is None, reason="needs skl2onnx: pip install 'paritygate[dev]'")

_ROWS = 200
_NAMES = np.array(["cat", "dog", "eel"])
_COLOURS = np.array(["red", "green", "blue"])


def _numbers() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(_ROWS, 4)).astype(np.float32)


def _classes(values: NDArray[np.float32]) -> NDArray[np.int64]:
    return (values[:, 0] + values[:, 1] * values[:, 2] > 0).astype(np.int64) + (values[:, 3] > 0.7)


@pytest.fixture(scope="module")
def forest() -> onnx.ModelProto:
    """Return a random forest that answers one of three names, and a mapping from name to probability."""
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier

    values = _numbers()
    model = RandomForestClassifier(10, max_depth=4, random_state=0).fit(values, _NAMES[_classes(values)])
    return to_onnx(model, values[:1], target_opset={"": 17, "ai.onnx.ml": 3})


@pytest.fixture(scope="module")
def columns() -> onnx.ModelProto:
    """Return a pipeline that takes a column of numbers and one of text, and answers 0 or 1 and a mapping."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    size, colour = _columns()
    table = np.stack([size.astype(object), colour.astype(object)], axis=1)
    prepared = ColumnTransformer([("size", StandardScaler(), [0]), ("colour", OneHotEncoder(), [1])])
    model = make_pipeline(prepared, LogisticRegression()).fit(table, size + (colour == "red") > 0.5)
    kinds = [("size", FloatTensorType([None, 1])), ("colour", StringTensorType([None, 1]))]
    return convert_sklearn(model, initial_types=kinds, target_opset={"": 17, "ai.onnx.ml": 3})


def _columns() -> tuple[NDArray[np.float32], NDArray[np.str_]]:
    random = np.random.default_rng(1)
    return random.normal(size=_ROWS).astype(np.float32), _COLOURS[random.integers(0, 3, _ROWS)]


def _save(model: onnx.ModelProto, path: Path) -> str:
    import onnx

    onnx.save(model, str(path))
    return str(path)


def _spec(desk: Desk, model: onnx.ModelProto, **parts: Any) -> None:  # noqa: ANN401 - parts of a spec
    _save(model, desk.folder / "model.onnx")
    np.savez(desk.folder / "inputs.npz", X=_numbers())
    desk.spec(**{"model": {"name": "tiny", "source": "model.onnx"}, "decisions": {}, **parts})


def test_a_classifier_is_served_as_the_table_that_its_mappings_are_made_of(desk: Desk, forest: onnx.ModelProto) -> None:
    decisions = {"output_probability": {"argmax": True}}
    _spec(desk, forest, decisions=decisions, probes=["batches", "values", "sensitivity", "repeats"])

    done = desk.json("run", "spec.yaml", "--verbose")

    assert done.code == 0, done
    found = done.data["runs"][0]["variants"]["onnx-fp32"]
    outputs = {name: output["dtype"] for name, output in found["outputs"].items()}
    assert outputs == {"output_label": "string", "output_probability": "float32"}
    assert found["outputs"]["output_label"]["mismatches"] == 0
    assert found["decisions"]["output_probability"]["decisions"] == _ROWS
    assert {name: probe["status"] for name, probe in found["probes"]["asked"].items()} == dict.fromkeys(
        ("batches", "values", "sensitivity", "repeats"), "pass"
    )
    assert (
        "note: the ZipMap of 'output_probability' was taken apart: a table, whose columns are the classes 'cat', "
        "'dog', 'eel'" in done.out
    )


def test_the_table_holds_what_the_mappings_say(desk: Desk, forest: onnx.ModelProto) -> None:
    import onnxruntime

    _spec(desk, forest)
    assert desk.call("run", "spec.yaml", "--quiet").code == 0

    (served,) = desk.folder.glob("artifacts/runs/tiny/*/onnx-fp32/model.onnx")
    label, mappings = onnxruntime.InferenceSession(forest.SerializeToString()).run(None, {"X": _numbers()})
    own_label, table = onnxruntime.InferenceSession(str(served)).run(None, {"X": _numbers()})
    assert (label == own_label).all()
    assert table.tolist() == [[row["cat"], row["dog"], row["eel"]] for row in mappings]


def _with_leaf(model: onnx.ModelProto) -> None:
    (trees,) = (node for node in model.graph.node if node.op_type == "TreeEnsembleClassifier")
    (weights,) = (attribute for attribute in trees.attribute if attribute.name == "class_weights")
    weights.floats[0] += 0.05


def _with_other_labels(model: onnx.ModelProto) -> None:
    (trees,) = (node for node in model.graph.node if node.op_type == "TreeEnsembleClassifier")
    (labels,) = (attribute for attribute in trees.attribute if attribute.name == "classlabels_strings")
    labels.strings[0], labels.strings[1] = labels.strings[1], labels.strings[0]


def _with_columns_swapped(model: onnx.ModelProto) -> None:
    import onnx

    (zipped,) = (node for node in model.graph.node if node.op_type == "ZipMap")
    order = onnx.numpy_helper.from_array(np.array([1, 0, 2]), "order")
    model.graph.initializer.append(order)
    gather = onnx.helper.make_node("Gather", [zipped.input[0], "order"], ["swapped"], axis=1)
    model.graph.node.insert(len(model.graph.node) - 1, gather)
    zipped.input[0] = "swapped"


def _with_classes_swapped(model: onnx.ModelProto) -> None:
    (zipped,) = (node for node in model.graph.node if node.op_type == "ZipMap")
    labels = zipped.attribute[0].strings
    labels[0], labels[1] = labels[1], labels[0]


@pytest.mark.parametrize(
    ("fault", "failed", "words"),
    [
        (_with_leaf, "max_abs_diff", "0.05 > 0.0001, worst in channel 0 of 3, worst at row "),
        (_with_columns_swapped, "max_abs_diff", " > 0.0001, worst in channel 0 of 3, worst at row "),
        (_with_other_labels, "exact", " of 200 values differ"),
        (
            _with_classes_swapped,
            "contract.classes",
            "'output_probability' are the classes ['dog', 'cat', 'eel'], the reference's ['cat', 'dog', 'eel']",
        ),
    ],
)
def test_a_fault_in_a_classifier_is_caught(
    bench: Bench, forest: onnx.ModelProto, fault: Callable[[onnx.ModelProto], None], failed: str, words: str
) -> None:
    import onnx

    broken = onnx.ModelProto()
    broken.CopyFrom(forest)
    fault(broken)
    models = [_save(model, bench.folder / name) for model, name in ((forest, "a.onnx"), (broken, "b.onnx"))]

    found = bench.compare(*models, "--samples", bench.npz("x.npz", {"X": _numbers()}))

    assert found.code == 1, found
    assert failed in found.failed
    assert words in str(next(check["detail"] for check in found.result["checks"] if check["name"] == failed))


def test_two_passes_answer_text_alike(bench: Bench, forest: onnx.ModelProto) -> None:
    import onnx

    other = onnx.ModelProto()
    other.CopyFrom(forest)
    other.producer_version = "another"
    models = [_save(model, bench.folder / name) for model, name in ((forest, "a.onnx"), (other, "b.onnx"))]

    found = bench.compare(*models, "--samples", bench.npz("x.npz", {"X": _numbers()}), "--repeat", "2")

    assert found.code == 0, found
    assert found.result["outputs"]["output_label"]["repeat_max_abs_diff"] == 0


def test_text_is_no_argmax(bench: Bench, forest: onnx.ModelProto) -> None:
    model = _save(forest, bench.folder / "a.onnx")

    found = bench.compare(
        model,
        _save(forest, bench.folder / "b.onnx"),
        "--samples",
        bench.npz("x.npz", {"X": _numbers()}),
        "--argmax-of",
        "output_label=output_probability",
    )

    assert found.code == 2
    assert "the first must be an integer output, the second a float one" in found.err


@pytest.mark.parametrize("kind", ["npz", "jsonl"])
def test_columns_of_text_are_samples(desk: Desk, columns: onnx.ModelProto, kind: str) -> None:
    size, colour = _columns()
    _spec(desk, columns, samples={"source": f"rows.{kind}"}, probes=["batches", "values", "sensitivity"])
    if kind == "npz":
        # One value a row, as a table has it: the model takes columns.
        np.savez(desk.folder / "rows.npz", size=size, colour=colour)
    else:
        rows = [f'{{"size": {a}, "colour": "{b}"}}' for a, b in zip(size.tolist(), colour, strict=True)]
        (desk.folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")

    done = desk.json("run", "spec.yaml", "--quiet")

    assert done.code == 0, done
    found = done.data["runs"][0]["variants"]["onnx-fp32"]
    assert {name: probe["status"] for name, probe in found["probes"]["asked"].items()} == dict.fromkeys(
        ("batches", "values", "sensitivity"), "pass"
    )


@pytest.mark.openvino
def test_what_a_target_cannot_take_is_not_available_for_the_model(desk: Desk, forest: onnx.ModelProto) -> None:
    targets = ["onnx-fp32", "onnx-fp16", "onnx-int8", "openvino-fp32", "openvino-int8"]
    _spec(desk, forest, targets=targets)

    done = desk.json("run", "spec.yaml", "--quiet")

    assert done.code == 0, done
    assert done.data["runs"][0]["required"] == ["onnx-fp32"]
    assert {failure["verdict"] for failure in done.data["runs"][0]["failures"].values()} == {NOT_AVAILABLE}
    entries = {entry["variant"]: (entry["verdict"], entry["exit_code"]) for entry in desk.evidence()["variants"]}
    assert entries == {"onnx-fp32": ("pass", 0), **dict.fromkeys(targets[1:], (NOT_AVAILABLE, 4))}
    assert (
        "not available for this model: onnx-fp16: no node that computes can be converted to fp16 "
        "(kept in fp32: ai.onnx.ml::TreeEnsembleClassifier)\n" in done.err
    )
    assert (
        "not available for this model: onnx-int8: no node of the model has constant weights that INT8 would make "
        "faster (Conv, MatMul, Gemm); its operators are: Identity, ai.onnx.ml::TreeEnsembleClassifier\n" in done.err
    )
    assert "does not have this operator of the model: ai.onnx.ml::TreeEnsembleClassifier\n" in done.err
    assert "not available for this model: openvino-int8: openvino-fp32, from which it is made, failed:" in done.err
    assert "Traceback" not in done.err
    assert NOT_AVAILABLE in (desk.run_folder / "report.md").read_text(encoding="utf-8")


def test_what_is_not_available_is_an_error_where_it_is_required(desk: Desk, forest: onnx.ModelProto) -> None:
    _spec(desk, forest, targets=["onnx-fp32", "onnx-fp16"], required=["onnx-fp32", "onnx-fp16"])

    done = desk.json("run", "spec.yaml", "--verbose")

    assert done.code == 4, done
    assert "1 of 2 required variants passed (not available for this model: onnx-fp16)" in done.out
    assert desk.releases == []


def test_a_run_of_which_nothing_is_available_has_not_passed(desk: Desk, forest: onnx.ModelProto) -> None:
    _spec(desk, forest, targets=["onnx-fp16"])

    assert desk.call("run", "spec.yaml", "--quiet").code == 4
