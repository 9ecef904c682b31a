"""`init` writes a spec that runs as it stands, never over a file, never by half; with random rows nothing passes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml

from paritygate.files import StorageError
from paritygate.pipelines.inspecting import init
from paritygate.pipelines.spec.loading import load_spec

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_MODULE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 16)
        self.linear = torch.nn.Linear(16, 3)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask.unsqueeze(-1).float()
        hidden = torch.relu(self.embedding(input_ids)) * mask
        return {"hidden": hidden, "logits": self.linear(hidden.sum(1) / mask.sum(1).clamp(min=1))}

def load():
    return Net()
"""


def _texts(desk: Desk, rows: int = 120) -> None:
    """Write rows of tokens that differ in length."""
    random = np.random.default_rng(0)
    lines = []
    for row in range(rows):
        length = int(random.integers(4, 12))
        ids = random.integers(1, 50, length).tolist()
        lines.append(json.dumps({"id": f"row-{row}", "input_ids": ids, "attention_mask": [1] * length}))
    (desk.folder / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")


_OPTIONAL = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 4)

    def forward(self, ids=None, mask=None):
        if ids is None:
            raise ValueError("give ids")
        return (self.embedding(ids) * mask[..., None]).mean(1)


def load():
    return Net()
"""


def _torch_files(desk: Desk) -> None:
    """Write the module as TorchScript, and as a program of torch.export with open dims."""
    import torch

    module: dict[str, type[torch.nn.Module]] = {}
    exec(_MODULE, module)  # noqa: S102 - the text above
    net = module["Net"]().eval()
    given = (torch.ones(4, 6, dtype=torch.int64), torch.ones(4, 6, dtype=torch.int64))
    torch.jit.save(torch.jit.trace(net, given, strict=False), str(desk.folder / "net.pt"))  # type: ignore[no-untyped-call]  # torch has no types
    dims = {0: torch.export.Dim("rows", min=1, max=64), 1: torch.export.Dim("places", min=2, max=32)}
    program = torch.export.export(net, given, dynamic_shapes={"input_ids": dims, "attention_mask": dims})
    torch.export.save(program, desk.folder / "net.pt2")


def _keras_files(desk: Desk) -> None:
    """Write a small model as a Keras file and as a SavedModel, and rows for it."""
    import keras

    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    hidden = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(30, 8)(ids))
    model = keras.Model(ids, keras.layers.Dense(2, activation="softmax", name="probs")(hidden))
    model.save(desk.folder / "net.keras")
    model.export(desk.folder / "saved", verbose=False)
    rows = np.random.default_rng(0).integers(0, 30, (120, 7)).astype("int32")
    np.savez(desk.folder / "ids.npz", ids=rows)


def test_what_was_written_and_guessed_is_said_with_the_next_command(desk: Desk) -> None:
    called = desk.json("init", "model.onnx", "--samples", "inputs.npz", "--out", "new.yaml", "--name", "tiny")

    assert called.code == 0, called
    assert "wrote new.yaml: tiny as onnx-fp16" in called.out
    assert "guess: model.dims.batch: {min: 1, opt: 8, max: 64} - " in called.out
    assert called.out.endswith("next: convert-and-validate run new.yaml\n")
    assert max(map(len, called.out.splitlines())) <= 80
    assert {"path", "guesses", "next_command", "schema_version"} <= set(called.data)
    assert called.data["rows"] == 120
    spec = load_spec(str(desk.folder / "new.yaml")).spec
    assert (spec.model.name, spec.model.source, spec.samples.source) == ("tiny", "model.onnx", "inputs.npz")
    text = (desk.folder / "new.yaml").read_text(encoding="utf-8")
    assert text.startswith("# Written by: convert-and-validate init model.onnx --samples inputs.npz\n")


@pytest.mark.torch
def test_two_callables_of_a_module_are_two_models(desk: Desk) -> None:
    functions = (f"def {name}():\n    return torch.nn.Linear(4, 3)" for name in ("first", "second"))
    desk.module("nets", "\n\n".join(("import torch", *functions)))
    names = []
    for name in ("first", "second"):
        called = desk.json("init", f"nets:{name}", "--samples", "inputs.npz", "--out", f"{name}.yaml")
        assert f"guess: model.name: nets-{name} - after the module and its callable" in called.out, called
        names.append(called.data["name"])
        assert load_spec(str(desk.folder / f"{name}.yaml")).spec.model.name == names[-1]

    assert names == ["nets-first", "nets-second"]


def test_paths_are_written_as_the_spec_reads_them(desk: Desk) -> None:
    (desk.folder / "specs").mkdir()

    assert desk.call("init", "model.onnx", "--samples", "inputs.npz", "--out", "specs/a.yaml").code == 0

    spec = load_spec(str(desk.folder / "specs/a.yaml")).spec
    assert (spec.model.name, spec.model.source, spec.samples.source) == ("model", "../model.onnx", "../inputs.npz")


def test_a_file_that_is_there_is_left_alone_but_by_force(desk: Desk) -> None:
    before = (desk.folder / "spec.yaml").read_text(encoding="utf-8")

    called = desk.call("init", "model.onnx", "--samples", "inputs.npz")

    assert called.code == 2
    assert "spec.yaml exists" in called.err
    assert (desk.folder / "spec.yaml").read_text(encoding="utf-8") == before
    (command,) = [line for line in called.err.replace(" \\\n", " ").splitlines() if "convert-and-validate init" in line]
    again = shlex.split(command)
    assert desk.call(*again[again.index("convert-and-validate") + 1 :]).code == 0
    assert (desk.folder / "spec-2.yaml").is_file()
    assert desk.call("init", "model.onnx", "--samples", "inputs.npz", "--force").code == 0
    assert (desk.folder / "spec.yaml").read_text(encoding="utf-8") != before


def test_what_cannot_be_written_whole_is_not_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (desk.folder / "spec.yaml").read_text(encoding="utf-8")

    def full(path: Path, content: bytes) -> None:
        del content
        msg = f"{path} could not be written: No space left on device"
        raise StorageError(msg)

    monkeypatch.setattr(init, "write_bytes_atomically", full)

    assert desk.call("init", "model.onnx", "--samples", "inputs.npz", "--force").code == 5
    assert (desk.folder / "spec.yaml").read_text(encoding="utf-8") == before
    assert desk.call("init", "model.onnx", "--out", "no/such.yaml").code == 2


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.full((8, 4), "a")}, "the samples hold 'x' as string, but the model expects float32"),
        ({"x": np.zeros((8, 5), np.float32)}, "'x' has the shape [8, 5], but the model expects x: float32[batch, 4]"),
        ({"x": np.zeros((0, 4), np.float32)}, "hold no rows"),
        ({"a": np.zeros((8, 4), np.float32), "b": np.zeros((8, 4), np.float32)}, "the samples have no input 'x'"),
    ],
)
def test_samples_that_do_not_fit_the_model_are_refused_before_anything_is_written(
    desk: Desk, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(desk.folder / "other.npz", **arrays)

    called = desk.call("init", "model.onnx", "--samples", "other.npz", "--out", "new.yaml")

    assert called.code in {2, 5}, called
    assert message in called.err
    assert not (desk.folder / "new.yaml").exists()


def test_the_one_array_that_is_no_input_is_taken_for_the_one_that_is_missing(desk: Desk) -> None:
    np.savez(desk.folder / "other.npz", features=np.ones((120, 4), np.float32))

    assert desk.call("init", "model.onnx", "--samples", "other.npz", "--out", "new.yaml").code == 0

    assert load_spec(str(desk.folder / "new.yaml")).rename == {"x": "features"}


def test_fewer_rows_than_a_verdict_needs_are_said(desk: Desk) -> None:
    desk.samples(rows=8)

    called = desk.call("init", "model.onnx", "--samples", "inputs.npz", "--out", "new.yaml")

    assert "note: the samples hold 8 rows, and fewer than 100 are inconclusive" in called.out


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nothing.onnx", "nothing.onnx does not exist"),
        ("model.txt", "is not a model of a known kind"),
        ("net.xml", "is a model of kind 'openvino', from which nothing can be converted"),
        ("client:ask", "client:ask is a function with an argument"),
        ("client", "client:FUNCTION"),
    ],
)
def test_what_is_no_source_is_refused(desk: Desk, model: str, message: str) -> None:
    for name in ("model.txt", "net.xml"):
        (desk.folder / name).write_text("x", encoding="utf-8")
    desk.module("client", "def ask(arrays):\n    return arrays")

    called = desk.call("init", model, "--out", "new.yaml")

    assert called.code == 2
    assert message in called.err


@pytest.mark.torch
@pytest.mark.parametrize("model", ["net:load", "net.pt"])
def test_a_model_that_does_not_say_its_inputs_needs_samples(desk: Desk, model: str) -> None:
    desk.module("net", _MODULE)
    _torch_files(desk)

    called = desk.call("init", model, "--out", "new.yaml")

    assert called.code == 2
    assert f"the inputs and outputs of {model} are unknown" in called.err
    assert "hint: give rows that the model accepts, as an .npz or .jsonl file: --samples FILE" in called.err
    assert not (desk.folder / "new.yaml").exists()


@pytest.mark.torch
@pytest.mark.parametrize("at", [2, 17])
def test_rows_that_a_module_refuses_are_wrong_samples_and_named(desk: Desk, at: int) -> None:
    desk.module("net", _OPTIONAL)
    lengths = {f"r{number}": 3 + number % 5 for number in range(24)}
    rows: list[dict[str, Any]] = [{"id": row, "ids": [1] * of, "mask": [1] * of} for row, of in lengths.items()]
    too_high = {**rows[at], "ids": [50, *rows[at]["ids"][1:]]}
    short = {**rows[at], "ids": [1] * 9, "mask": [1] * 8}
    faults = {
        "too_high": ([*rows[:at], too_high, *rows[at + 1 :]], (f"'r{at}'", f"index {at}", "'ids'", "at most 49")),
        "short": ([*rows[:at], short, *rows[at + 1 :]], (f"'r{at}'", f"index {at}", "ids: 9, mask: 8")),
        "misspelt": ([{"idss": row["ids"], "mask": row["mask"]} for row in rows], ("'idss'", "did you mean 'ids'")),
    }
    for name, (samples, words) in faults.items():
        (desk.folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, samples)), encoding="utf-8")
        called = desk.call("init", "net:load", "--samples", f"{name}.jsonl", "--out", "new.yaml")

        assert called.code == 2, called
        assert all(word in " ".join(called.err.split()) for word in words), called.err


def test_a_run_on_random_rows_is_inconclusive_and_releases_nothing(desk: Desk) -> None:
    called = desk.call("init", "model.onnx", "--out", "new.yaml", "--name", "tiny")
    assert called.code == 0, called
    assert "note: the samples are random: they show that the model converts, not that it" in called.out

    # Nothing required lets no random row through either.
    text = (desk.folder / "new.yaml").read_text(encoding="utf-8")
    spec = yaml.safe_load(text)
    text = yaml.safe_dump({**spec, "targets": ["onnx-fp32", "onnx-fp16"], "required": []})
    (desk.folder / "new.yaml").write_text(text, encoding="utf-8")
    ran = desk.json("run", "new.yaml", "--probes", "none", "--no-benchmark", "--quiet")

    assert desk.releases == []
    variants = ran.data["runs"][0]["variants"]
    for name in ("onnx-fp32", "onnx-fp16"):
        assert variants[name]["verdict"] == "inconclusive", ran
        (check,) = [item for item in variants[name]["checks"] if item["name"] == "samples"]
        assert check["status"] == "inconclusive"
        assert "--samples FILE" in check["detail"]
    loud = " ".join(desk.call("run", "new.yaml", "--probes", "none", "--no-benchmark").out.split())
    assert "the samples are random" in loud

    text = text.replace("required: []", "required: [onnx-fp32]")
    (desk.folder / "new.yaml").write_text(text, encoding="utf-8")
    assert desk.call("run", "new.yaml", "--probes", "none", "--no-benchmark", "--quiet").code == 3
    assert desk.releases == []
    # What is made up is in no file that a pack would take along.
    assert desk.call("pack", "--run", str(desk.runs[0]), "--output", "run.tar", "--quiet").code == 0
    # Real rows in their place are judged as ever.
    real = ("--samples", "inputs.npz", "--target", "onnx-fp32", "--no-promote")
    assert desk.call("run", "new.yaml", "--probes", "none", "--no-benchmark", "--quiet", *real).code == 0


def _run_as_written(desk: Desk, model: str, samples: str) -> None:
    called = desk.call("init", model, "--samples", samples, "--out", "new.yaml", "--name", "tiny")
    assert called.code == 0, called
    ran = desk.json("run", "new.yaml", "--no-benchmark", "--quiet")

    assert ran.code == 0, ran
    (required,) = load_spec(str(desk.folder / "new.yaml")).spec.required
    variant = ran.data["runs"][0]["variants"][required]
    assert variant["verdict"] == "pass"
    # A gate that holds a copy of the source against the source is empty.
    assert [check["status"] for check in variant["checks"] if check["name"] == "distinct"] == ["pass"]
    assert desk.releases == ["tiny/1"]


def test_the_spec_of_an_onnx_model_runs_as_it_was_written(desk: Desk) -> None:
    desk.onnx("logits.onnx", output="logits")

    _run_as_written(desk, "logits.onnx", "inputs.npz")


# What stands where the mask is 0 is nothing in the first; in the second, it is the answer.
_LEAVES_OUT = "seen = Cast<to=1>(mask) some = Mul(x, seen) y = Mul(some, two)"
_FILLS_IN = """
  is_seen = Equal(mask, one) seen = Cast<to=1>(mask) some = Mul(x, seen) new = Mul(some, two) y = Where(is_seen, x, new)
"""


def _masked(desk: Desk, body: str, *, is_scattered: bool) -> None:
    """Write a model of a series with a mask, and rows whose zeros lie at the end, or anywhere."""
    import onnx
    from onnx import numpy_helper, parser

    head = '<ir_version: 9, opset_import: ["" : 17]> g (float[B, N] x, int64[B, N] mask) => (float[B, N] y)'
    model = parser.parse_model(f"{head} {{ {body} }}")
    for name, number in (("one", np.int64(1)), ("two", np.float32(2))):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(number), name))
    onnx.save(model, desk.folder / "masked.onnx")
    random = np.random.default_rng(0)
    lines = []
    for _ in range(60):
        length = int(random.integers(6, 12))
        mask = (random.random(length) < 0.6) if is_scattered else np.ones(length)
        lines.append(json.dumps({"x": random.normal(size=length).tolist(), "mask": mask.astype(int).tolist()}))
    (desk.folder / "series.jsonl").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("body", "is_scattered", "is_guessed"),
    [(_LEAVES_OUT, False, True), (_LEAVES_OUT, True, False), (_FILLS_IN, False, False), (_FILLS_IN, True, False)],
)
def test_what_a_mask_of_what_was_observed_leaves_out_is_compared(
    desk: Desk, body: str, *, is_scattered: bool, is_guessed: bool
) -> None:
    _masked(desk, body, is_scattered=is_scattered)

    assert desk.call("init", "masked.onnx", "--samples", "series.jsonl", "--out", "new.yaml").code == 0

    spec = load_spec(str(desk.folder / "new.yaml")).spec
    assert {name: output.valid_where for name, output in spec.outputs.items()} == ({"y": "mask"} if is_guessed else {})
    # What is filled up was not observed, also where the model looks for ones.
    assert spec.samples.pad == {"x": 0, "mask": 0}
    assert spec.roles["mask"].role == "mask"


@pytest.mark.torch
@pytest.mark.thorough
@pytest.mark.parametrize("model", ["net:load", "net.pt", "net.pt2"])
def test_the_spec_of_a_pytorch_model_runs_as_it_was_written(desk: Desk, model: str) -> None:
    desk.module("net", _MODULE)
    _torch_files(desk)
    _texts(desk)

    _run_as_written(desk, model, "texts.jsonl")

    spec = load_spec(str(desk.folder / "new.yaml")).spec
    assert spec.decisions["logits"].argmax
    assert spec.roles["attention_mask"].of == "input_ids"
    # No graph says that the mask leaves positions out, so all of it is compared.
    assert not spec.outputs
    assert spec.samples.pad == {"input_ids": 0, "attention_mask": 0}
    assert (spec.model.inputs is None) == (model == "net.pt2")


@pytest.mark.tensorflow
@pytest.mark.thorough
@pytest.mark.parametrize("model", ["net.keras", "saved"])
def test_the_spec_of_a_tensorflow_model_runs_as_it_was_written(desk: Desk, model: str) -> None:
    _keras_files(desk)

    _run_as_written(desk, model, "ids.npz")

    (decision,) = load_spec(str(desk.folder / "new.yaml")).decisions
    assert decision.output == ("probs" if model == "net.keras" else "output_0")


def _scaled_columns(desk: Desk, scales: list[float]) -> None:
    """Write `y`, columns of these sizes, in place of the desk's own model."""
    import onnx
    import onnx.parser

    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 17]> m (float[batch, 4] x) => (float[batch, 4] y)
        <float[4] scales = {{{", ".join(f"{scale:.10f}" for scale in scales)}}}> {{ y = Mul (x, scales) }}
    """)
    onnx.save(model, desk.folder / "model.onnx")


def test_columns_of_unlike_sizes_have_a_block_with_their_limits(desk: Desk) -> None:
    _scaled_columns(desk, [1e-5, 1, 0, 20])

    assert desk.call("init", "model.onnx", "--samples", "inputs.npz", "--out", "new.yaml").code == 0

    text = (desk.folder / "new.yaml").read_text(encoding="utf-8")
    assert load_spec(str(desk.folder / "new.yaml")).spec.tolerance == {}
    # Without the sign of a comment, the block is a part of the spec.
    block = [line for line in text.splitlines() if line.startswith(("#   outputs:", "#   tolerance:"))]
    lines = [line.removeprefix("#   ") for line in block]
    (desk.folder / "limits.yaml").write_text("\n".join([text, *lines, ""]), encoding="utf-8")
    spec = load_spec(str(desk.folder / "limits.yaml")).spec
    limits = spec.tolerance[spec.required[0]]["outputs"]["y"]["max_abs_diff"]
    assert limits[2] is None
    assert [limit for limit in limits if limit] == pytest.approx([1e-8, 1e-3, 2e-2], rel=0.5)
    assert spec.outputs["y"].columns == ["column_0", "column_1", "column_2", "column_3"]
    assert desk.call("plan", "limits.yaml").code == 0


@pytest.mark.parametrize("scales", [[1, 2, 5, 50], [0, 0, 0, 1]])
def test_columns_of_like_sizes_have_none(desk: Desk, scales: list[float]) -> None:
    _scaled_columns(desk, scales)

    assert desk.call("init", "model.onnx", "--samples", "inputs.npz", "--out", "new.yaml").code == 0

    assert "max_abs_diff" not in (desk.folder / "new.yaml").read_text(encoding="utf-8")


def test_a_target_that_the_model_cannot_become_is_not_written(desk: Desk) -> None:
    import onnx

    weights, offsets = [0.5, -0.5, 1.0, 2.0], [0.1]
    node = onnx.helper.make_node(
        "LinearRegressor", ["x"], ["y"], domain="ai.onnx.ml", coefficients=weights, intercepts=offsets
    )
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node],
        "linear",
        [onnx.helper.make_tensor_value_info("x", float32, ["batch", 4])],
        [onnx.helper.make_tensor_value_info("y", float32, ["batch", 1])],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    onnx.save(model, str(desk.folder / "regressor.onnx"))

    called = desk.json("init", "regressor.onnx", "--samples", "inputs.npz", "--out", "new.yaml")

    assert called.code == 0, called
    assert called.data["targets"] == ["onnx-fp32"]
    assert [note for note in called.data["notes"] if note.startswith("targets: left out onnx-fp16: ")]


def test_init_names_the_row_with_an_id_beyond_the_table(desk: Desk) -> None:
    import onnx

    text = '<ir_version: 9, opset_import: ["": 17]> table (int64[n,3] ids) => (float[n,3,2] y) { y = Gather(e, ids) }'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((50, 2), np.float32), "e"))
    onnx.save(model, desk.folder / "ids.onnx")
    ids = np.zeros((120, 3), np.int64)
    ids[7, 1] = 60
    np.savez(desk.folder / "ids.npz", ids=ids)

    called = desk.call("init", "ids.onnx", "--samples", "ids.npz", "--out", "new.yaml")

    assert called.code == 2
    said = " ".join(called.err.split())
    assert "row '7'" in said
    assert "the 60 in 'ids' (allowed: at most 49)" in said


@pytest.mark.tensorflow
@pytest.mark.thorough
def test_a_keras_model_with_operators_that_tflite_lacks_gets_no_such_target(desk: Desk) -> None:
    import keras

    layers = [keras.Input((None, 4), name="x"), keras.layers.LSTM(3)]
    keras.Sequential(layers).save(desk.folder / "lstm.keras")
    np.savez(desk.folder / "rows.npz", x=np.random.default_rng(0).standard_normal((120, 5, 4)).astype(np.float32))

    called = desk.json("init", "lstm.keras", "--samples", "rows.npz", "--out", "new.yaml")

    assert called.code == 0, called
    assert "tflite-fp32" not in called.data["targets"]
    assert [note for note in called.data["notes"] if note.startswith("targets: left out tflite-fp32: ")]
