"""`init` on tables as people have them: CSV, Parquet as pandas writes it, text and labels beside the inputs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paritygate.errors import InputFileError
from paritygate.pipelines.spec.loading import load_spec
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

_NAMES = ("age", "income", "height", "weight")
_QUICK = ("--probes", "none", "--no-benchmark", "--quiet")


def _columns(rows: int = 120) -> dict[str, list[object]]:
    """Return columns as of a DataFrame: whole numbers, float64, text, and what was to be learned."""
    random = np.random.default_rng(0)
    columns: dict[str, list[object]] = {"age": random.integers(18, 90, rows).tolist()}
    columns |= {name: random.standard_normal(rows).tolist() for name in _NAMES[1:]}
    columns["name"] = [f"Person, {row}" for row in range(rows)]
    columns["label"] = random.integers(0, 3, rows).tolist()
    return columns


def _csv(path: Path, columns: dict[str, list[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _parquet(path: Path, columns: dict[str, list[object]]) -> None:
    pq.write_table(pa.table(columns), path)


def _ran(desk: Desk, spec: str = "new.yaml") -> Called:
    return desk.json("run", spec, "--target", "onnx-fp16", "--no-promote", *_QUICK)


@pytest.mark.parametrize(("name", "write"), [("rows.csv", _csv), ("rows.parquet", _parquet)])
def test_columns_side_by_side_are_the_one_input_of_a_model(desk: Desk, name: str, write: type[object]) -> None:
    columns = _columns()
    write(desk.folder / name, columns)  # type: ignore[call-arg]  # a function

    called = desk.json("init", "model.onnx", "--samples", name, "--out", "new.yaml")

    assert called.code == 0, called
    spec = load_spec(str(desk.folder / "new.yaml")).spec
    assert spec.samples.columns == {"x": list(_NAMES)}
    assert any("name, label" in note for note in called.data["notes"])
    assert _ran(desk).code == 0
    # What ran are the values of the columns, in their order.
    source = load_spec(str(desk.folder / "new.yaml")).samples()
    (first, *_) = open_samples(source)()
    assert first.inputs["x"].dtype == np.float32
    expected = np.array([columns[column][: first.rows] for column in _NAMES], dtype=np.float32).T
    assert np.array_equal(first.inputs["x"], expected)


def test_a_cast_is_declared_where_pandas_wrote_float64(desk: Desk) -> None:
    vectors = np.random.default_rng(0).standard_normal((120, 4))
    _parquet(desk.folder / "rows.parquet", {"x": vectors.tolist()})

    assert desk.call("init", "model.onnx", "--samples", "rows.parquet", "--out", "new.yaml").code == 0

    assert load_spec(str(desk.folder / "new.yaml")).spec.samples.cast == {"x": "float32"}
    assert _ran(desk).code == 0


def test_a_value_that_the_cast_would_lose_is_refused(desk: Desk) -> None:
    vectors = np.random.default_rng(0).standard_normal((120, 4))
    vectors[77, 2] = 1e300
    _parquet(desk.folder / "rows.parquet", {"x": vectors.tolist()})

    called = desk.call("init", "model.onnx", "--samples", "rows.parquet", "--out", "new.yaml")

    assert called.code == 2
    assert "1e+300" in called.err
    assert not (desk.folder / "new.yaml").exists()


def test_the_columns_of_an_input_may_be_named(desk: Desk) -> None:
    columns = _columns()
    columns["extra"] = columns["income"]
    _csv(desk.folder / "rows.csv", columns)
    wrong = desk.call("init", "model.onnx", "--samples", "rows.csv", "--out", "new.yaml")
    assert wrong.code == 2
    assert "--columns x=" in wrong.err
    # The first of them may be right, or one that the model predicts.
    assert "x=age" not in wrong.err
    order = ("weight", "height", "income", "age")

    named = desk.call(
        "init", "model.onnx", "--samples", "rows.csv", "--out", "new.yaml", "--columns", f"x={','.join(order)}"
    )

    assert named.code == 0, named
    assert load_spec(str(desk.folder / "new.yaml")).spec.samples.columns == {"x": list(order)}


_MODULE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask=None, labels=None, **kwargs):
        if kwargs:
            raise ValueError(f"unexpected {list(kwargs)}")
        logits = self.head(self.embedding(input_ids).mean(1))
        if labels is None:
            return {"logits": logits}
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

class Tabular(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    def forward(self, features):
        return self.net(features)
"""


@pytest.mark.torch
@pytest.mark.parametrize("suffix", ["jsonl", "npz"])
def test_text_and_labels_beside_the_ids_are_no_inputs(desk: Desk, suffix: str) -> None:
    desk.module("net", _MODULE)
    random = np.random.default_rng(0)
    ids, labels = random.integers(1, 50, (120, 6)), random.integers(0, 3, 120)
    texts = [f"text {row}" for row in range(120)]
    if suffix == "npz":
        np.savez(desk.folder / "rows.npz", input_ids=ids, labels=labels, text=np.array(texts))
    else:
        rows = [
            {"text": text, "labels": label, "note": None if row else "x", "input_ids": list(values)}
            for row, (text, label, values) in enumerate(zip(texts, labels.tolist(), ids.tolist(), strict=True))
        ]
        (desk.folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    called = desk.json("init", "net:Net", "--samples", f"rows.{suffix}", "--out", "new.yaml")

    assert called.code == 0, called
    resolved = load_spec(str(desk.folder / "new.yaml"))
    assert list(resolved.spec.model.inputs or ()) == ["input_ids"]
    assert list(resolved.spec.model.outputs or ()) == ["logits"]
    assert any("text" in note and "labels" in note for note in called.data["notes"])
    assert _ran(desk).code == 0


@pytest.mark.torch
def test_columns_become_the_one_parameter_of_a_module(desk: Desk) -> None:
    desk.module("tabular", _MODULE)
    _parquet(desk.folder / "rows.parquet", _columns())

    called = desk.json("init", "tabular:Tabular", "--samples", "rows.parquet", "--out", "new.yaml")

    assert called.code == 0, called
    spec = load_spec(str(desk.folder / "new.yaml")).spec
    assert (spec.samples.columns, spec.samples.cast) == ({"features": list(_NAMES)}, {"features": "float32"})
    assert _ran(desk).code == 0


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", "are empty"),
        ("1,2,3,4\n5,6,7,8\n", "1, 2, 3, 4"),
        ("a,b,c,a\n1,2,3,4\n", "'a'"),
        ("a,b,,d\n1,2,3,4\n", "column 3"),
        ("a,b,c,d\n1,2,3,4\n1,2,3\n", "line 3"),
        ("a,b,c,d\n1,2,3,4\n1,,3,4\n", "line 3"),
        ('a,b,c,d\n1,2,3,"4\n', "cannot be read"),
        ("a,b,c,d\n1,2,3,\xff\n", "line 2"),
        ("a,b,c,d\n", "no rows"),
    ],
)
def test_a_csv_that_is_no_table_of_numbers_is_refused_with_what_was_seen(desk: Desk, text: str, seen: str) -> None:
    (desk.folder / "rows.csv").write_bytes(text.encode("latin-1"))

    called = desk.call("init", "model.onnx", "--samples", "rows.csv", "--out", "new.yaml")

    assert called.code == 2, called
    assert called.err.count("error: ") == 1
    assert seen in called.err
    assert "hint: " in called.err
    assert not (desk.folder / "new.yaml").exists()


def test_all_columns_to_fill_up_are_named_at_once(desk: Desk) -> None:
    rows = [{"x": [1.0] * 4, "ids": [1] * length, "mask": [1] * length} for length in (2, 3)]
    (desk.folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    desk.onnx("other.onnx", output="logits")

    called = desk.call("compare", "model.onnx", "other.onnx", "--samples", "rows.jsonl")

    assert "--pad ids=0 --pad mask=0" in called.err


def test_lists_of_different_lengths_are_filled_up_under_the_name_of_their_input(desk: Desk) -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
        "sums",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", "n"])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch"])],
        [onnx.numpy_helper.from_array(np.array([1]), "axes")],
    )
    for name in ("sums.onnx", "again.onnx"):
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, desk.folder / name)
    rows = [{"values": [0.5] * (2 + row % 4), "who": "a"} for row in range(20)]
    (desk.folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    compare = ("compare", "sums.onnx", "again.onnx", "--samples", "rows.jsonl", "--columns", "x=values", *_QUICK[:2])

    called = desk.json("init", "sums.onnx", "--samples", "rows.jsonl", "--out", "new.yaml")
    refused = desk.json(*compare)

    assert called.code == 0, called
    samples = load_spec(str(desk.folder / "new.yaml")).spec.samples
    assert (samples.columns, samples.pad) == ({"x": "values"}, {"x": 0})
    option, pad = refused.data["error"]["hint"].rpartition(": ")[2].split()
    assert (option, pad) == ("--pad", "x=0")
    assert desk.json(*compare, option, pad).data["rows"] == 20


@pytest.mark.parametrize("cell", ["abc", "1,5", "-"])
def test_one_cell_that_is_no_number_is_named_and_no_reason_to_leave_its_column_out(desk: Desk, cell: str) -> None:
    desk.onnx()
    lines = [f"{row * 0.5},{row * 0.25},{row * 0.1},{row * 0.2},{row % 2}" for row in range(40)]
    lines[6] = f'"{cell}",1,2,3,0'
    (desk.folder / "rows.csv").write_text("\n".join(["a,b,c,d,label", *lines]), encoding="utf-8")

    called = desk.call("init", "model.onnx", "--samples", "rows.csv", "--out", "odd.yaml")

    assert called.code == 2
    assert "line 8" in called.err
    assert repr(cell) in called.err
    assert not (desk.folder / "odd.yaml").exists()


@pytest.mark.parametrize(("cell", "seen"), [("", "line 32"), ("maybe", "text")])
def test_a_late_cell_of_a_column_of_booleans_counts(tmp_path: Path, cell: str, seen: str) -> None:
    cells = ["True", "False"] * 20
    cells[30] = cell
    (tmp_path / "rows.csv").write_text("\n".join(["a,b", *(f"{value},1" for value in cells)]), encoding="utf-8")

    if seen == "text":
        batches = list(open_samples(SampleSource(text="rows.csv", folder=tmp_path))())
        assert batches[0].inputs["a"].dtype.kind == "U"
    else:
        with pytest.raises(InputFileError, match=seen):
            list(open_samples(SampleSource(text="rows.csv", folder=tmp_path))())


def test_a_row_with_nan_is_named_before_a_run_refuses_it(desk: Desk) -> None:
    columns = _columns()
    columns["height"][7] = float("nan")
    _csv(desk.folder / "rows.csv", columns)

    called = desk.json("init", "model.onnx", "--samples", "rows.csv", "--out", "new.yaml")

    assert called.code == 0, called
    assert any("NaN" in note and "'7'" in note for note in called.data["notes"])
    assert load_spec(str(desk.folder / "new.yaml")).spec.non_finite == "refuse"


@pytest.mark.parametrize(("name", "write"), [("rows.csv", _csv), ("rows.parquet", _parquet)])
def test_compare_takes_columns_side_by_side(desk: Desk, name: str, write: type[object]) -> None:
    desk.onnx("other.onnx", output="logits")
    write(desk.folder / name, _columns())  # type: ignore[call-arg]  # a function
    arguments = ("compare", "model.onnx", "other.onnx", "--samples", name, "--map", "logits=output_0", *_QUICK[:2])
    unnamed = desk.json(*arguments)
    assert unnamed.code == 2
    option, columns = unnamed.data["error"]["hint"].rpartition(": ")[2].split()

    named = desk.json(*arguments, option, columns, "--cast", "x=float32")

    assert (option, columns) == ("--columns", f"x={','.join(_NAMES)}")
    assert named.code == 0, named
    assert named.data["rows"] == 120
    wrong = desk.json(*arguments, option, columns.replace("age", "ages"))
    assert (wrong.code, "'ages'" in wrong.data["error"]["message"]) == (2, True)


def test_a_misspelt_column_is_found_before_the_model_is_converted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    _csv(desk.folder / "rows.csv", _columns())
    monkeypatch.setattr("paritygate.pipelines.jobs.export.convert_and_check", lambda *_: pytest.fail("converted"))
    for columns, seen in ((["age", "income", "height", "wieght"], "wieght"), (["age", "income", "name"], "name")):
        desk.spec(samples={"source": "rows.csv", "columns": {"x": columns}})

        called = desk.json("run", "spec.yaml", *_QUICK)

        assert called.code == 2, called
        assert seen in called.err


@pytest.mark.parametrize(
    ("first", "last", "left_out"),
    [("age", "churned", ["churned"]), ("churned", "fee", ["churned"]), ("churned", "senior", None)],
)
def test_the_classes_that_a_classifier_predicts_are_no_input(
    desk: Desk, first: str, last: str, left_out: list[str] | None
) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    skl2onnx = pytest.importorskip("skl2onnx")
    random = np.random.default_rng(0)
    numbers = random.standard_normal((120, 4)).astype(np.float32)
    # Another column of zeros and ones.
    numbers[:, 2] = random.integers(0, 2, 120)
    churned = (numbers[:, 0] > 0).astype(np.int64)
    model = linear_model.LogisticRegression().fit(numbers, churned)
    exported = skl2onnx.to_onnx(model, numbers[:1])
    (desk.folder / "churn.onnx").write_bytes(exported.SerializeToString())
    columns = dict(zip(("age", "tenure", "senior", "fee"), numbers.T.tolist(), strict=True))
    columns["churned"] = churned.tolist()
    between = [name for name in columns if name not in {first, last}]
    _csv(desk.folder / "rows.csv", {name: columns[name] for name in (first, *between, last)})

    called = desk.json("init", "churn.onnx", "--samples", "rows.csv", "--out", "new.yaml")

    if left_out is None:
        # Both ends look like labels. The options that settle it are those of the hint.
        assert called.code == 2
        assert "--columns X=" in called.err
        return
    assert called.code == 0, called
    (read,) = load_spec(str(desk.folder / "new.yaml")).spec.samples.columns.values()
    assert sorted(columns.keys() - {*read}) == left_out
    # OpenVINO has no classifier, whatever the ZipMap behind it is rewritten to.
    assert called.data["targets"] == ["onnx-fp32"]
    assert any("churned" in note for note in called.data["notes"])


@pytest.mark.parametrize(("is_first", "feature"), [(False, "fee"), (True, "fee"), (False, "churned")])
def test_a_label_without_a_usual_name_is_left_out_or_doubted(desk: Desk, feature: str, *, is_first: bool) -> None:
    desk.onnx(width=2)
    random = np.random.default_rng(0)
    features = {name: random.standard_normal(120).tolist() for name in ("age", "income", "height", feature)}
    classes = {"churned": random.integers(0, 2, 120).tolist()}
    _csv(desk.folder / "rows.csv", {**classes, **features} if is_first else {**features, **classes})

    called = desk.json("init", "model.onnx", "--samples", "rows.csv", "--out", "new.yaml")

    assert called.code == 0, called
    # As many columns as the model takes: the label may be one of them.
    is_fed = feature == "churned"
    assert load_spec(str(desk.folder / "new.yaml")).spec.samples.columns == {"x": list(features)}
    about = [note for note in called.data["notes"] if "churned" in note]
    assert ["--columns" in note for note in about] == [is_fed]
    assert ("churned" in (desk.folder / "new.yaml").read_text().partition("columns:")[0]) == bool(about)


@pytest.mark.parametrize(
    ("width", "first", "last"),
    [
        (1, "sex", "probability"),  # one number a row is not a class
        (1, "age", "sex"),
        (2, "sex", "probability"),  # the other end may be what the model predicts
        (2, "sex", "outcome"),
        (2, "sex", "answer"),
        (3, "sex", "age"),  # fewer numbers than classes
    ],
)
def test_a_feature_is_never_left_out_as_if_it_were_the_label(desk: Desk, width: int, first: str, last: str) -> None:
    desk.onnx(width=width)
    desk.onnx("other.onnx", output="output_0", width=width)
    random = np.random.default_rng(0)
    columns: dict[str, list[object]] = {name: random.standard_normal(120).tolist() for name in ("fare", "sibsp", "age")}
    columns["sex"] = random.integers(0, 2, 120).tolist()
    columns["probability"] = random.random(120).tolist()
    columns["outcome"] = random.integers(0, 2, 120).tolist()
    columns["answer"] = ["no" if value else "yes" for value in columns["sex"]]
    more = [f"more{at}" for at in range(2 if last in {"outcome", "answer"} else 1)]
    between = ["fare", "sibsp", *more]
    columns |= {name: random.standard_normal(120).tolist() for name in more}
    _csv(desk.folder / "rows.csv", {name: columns[name] for name in (first, *between, last)})

    called = desk.json("init", "model.onnx", "--samples", "rows.csv", "--out", "new.yaml")
    compared = desk.json("compare", "model.onnx", "other.onnx", "--samples", "rows.csv", *_QUICK[:2])

    assert (called.code, compared.code) == (2, 2), called
    assert first in called.err
    assert called.err.rstrip().endswith("--columns x=COLUMN,COLUMN")
    assert compared.data["error"]["hint"].endswith("--columns x=COLUMN,COLUMN")
    assert not (desk.folder / "new.yaml").exists()


def test_a_recorded_reference_and_a_table_get_columns_to_paste(desk: Desk) -> None:
    desk.onnx()
    columns = _columns()
    columns["churned"] = columns.pop("label")
    _csv(desk.folder / "rows.csv", columns)
    np.savez(desk.folder / "expected.npz", output_0=np.arange(360, dtype=np.float32).reshape(120, 3))

    called = desk.json("compare", "expected.npz", "model.onnx", "--samples", "rows.csv", *_QUICK[:2])

    assert called.code == 2, called
    assert called.data["error"]["hint"].endswith(f": --columns x={','.join(_NAMES)}")


def test_zeros_and_ones_among_others_are_features(desk: Desk) -> None:
    desk.onnx(width=2)
    flags = np.random.default_rng(0).integers(0, 2, (120, 4))
    _csv(desk.folder / "rows.csv", dict(zip(_NAMES, flags.T.tolist(), strict=True)))

    called = desk.json("init", "model.onnx", "--samples", "rows.csv", "--out", "new.yaml")

    assert not any("--columns" in note for note in called.data["notes"])
