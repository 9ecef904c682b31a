"""Static variants from the spec to the release: what is refused, what passes, and faults that only padding shows."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import onnx
import pytest
import yaml
from tests.pipelines.conftest import Called, Desk

from paritygate.errors import UsageError
from paritygate.pipelines.spec.loading import parse_spec
from paritygate.pipelines.spec.schema import ResolvedSpec, schema_of_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROWS, _SIZE = "onnx-fp32@batch=6", "onnx-fp32@length=8"
# `right` counts kept places alone. `blind` ignores the mask, so longer rows are other rows to it. `mixed` holds each
# row against its batch, so rows that are made up change the others.
_FAULTY = """
< ir_version: 8, opset_import: ["" : 17] >
faulty (float[batch, length] x, int64[batch, length] mask) =>
       (float[batch] right, float[batch] blind, float[batch, length] mixed) <int64[1] axes = {1}> {
    weight = Cast <to = 1> (mask)
    kept = Mul (x, weight)
    sum = ReduceSum <keepdims = 0> (kept, axes)
    count = ReduceSum <keepdims = 0> (weight, axes)
    right = Div (sum, count)
    blind = ReduceMean <axes = [1], keepdims = 0> (x)
    average = ReduceMean <axes = [0]> (x)
    mixed = Sub (x, average)
}
"""


def _static(name: str = "onnx-fp32", **parts: Any) -> dict[str, Any]:  # noqa: ANN401 - values of YAML
    return {"name": name, **parts}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Called:
    """Return the run of a model with faults that its dynamic variant does not show."""
    import onnx

    desk = Desk(folder=tmp_path_factory.mktemp("faulty"))
    onnx.save(onnx.parser.parse_model(_FAULTY), str(desk.folder / "model.onnx"))
    random = np.random.default_rng(0)
    # Two lengths, in batches of four: six rows of a part are never full, and a length of 8 seldom is.
    cases = {f"c{number}": (4, 5 + number % 2) for number in range(30)}
    arrays = {f"{case}/x": random.normal(size=shape).astype(np.float32) for case, shape in cases.items()}
    arrays |= {f"{case}/mask": np.ones(shape, np.int64) for case, shape in cases.items()}
    np.savez(desk.folder / "inputs.npz", **arrays)  # type: ignore[arg-type]  # keys are free in a mapping
    desk.spec(
        model={"name": "tiny", "source": "model.onnx"},
        decisions={},
        targets=["onnx-fp32", _static(static={"batch": 6}), _static(static={"length": 8}, pad={"x": 0, "mask": 0})],
    )
    return desk.json("run", "spec.yaml", "--verbose")


def _failed_outputs(called: Called, variant: str) -> set[str]:
    checks = called.data["runs"][0]["variants"][variant]["checks"]
    return {check["output"] for check in checks if check["status"] == "fail"}


def test_a_model_that_ignores_its_mask_fails_where_rows_are_padded(faulty: Called) -> None:
    assert _failed_outputs(faulty, _SIZE) == {"blind"}, str(faulty)


def test_a_model_that_mixes_rows_fails_where_rows_are_made_up(faulty: Called) -> None:
    assert _failed_outputs(faulty, _ROWS) == {"mixed"}, str(faulty)


def test_the_dynamic_variant_shows_neither_fault(faulty: Called) -> None:
    assert _failed_outputs(faulty, "onnx-fp32") == set()
    assert faulty.data["runs"][0]["would_release"] == "onnx-fp32"
    assert faulty.data["runs"][0]["release"] is None
    assert faulty.code == 1


def test_the_result_says_by_which_rule_it_ran(faulty: Called) -> None:
    (note,) = (
        note for note in faulty.data["runs"][0]["variants"][_SIZE]["notes"] if note.startswith("candidate: static")
    )

    assert note == (
        "candidate: static: length 8; length padded on the right (x with 0, mask with 0); results cut back; "
        "of 30 calls were padded: length in 30"
    )


def test_a_static_variant_is_released_under_its_name_and_verified(desk: Desk) -> None:
    name = "onnx-fp32@batch=32"
    desk.spec(
        targets=[_static(static={"batch": 32})],
        required=[name],
        tolerance={name: {"max_abs_diff": 1e-4}},
        promote={"prefer": [name]},
    )

    called = desk.json("run", "spec.yaml", "--verbose")

    assert called.code == 0, str(called)
    assert called.data["runs"][0]["release"]["variants"] == [name]
    assert desk.call("verify", "tiny", "prod").code == 0
    stored = desk.folder / "artifacts/repository/store/tiny/1" / name
    assert sorted(path.name for path in stored.iterdir()) == ["artifact.json", "fixed-shape.json", "model.onnx"]
    # Its base was made on the way, and is not a target.
    assert (desk.run_folder / "bases/onnx-fp32/model.onnx").is_file()
    report = html.unescape((desk.run_folder / "report.md").read_text(encoding="utf-8"))
    assert f"{name} answers like the source" in report
    # The stages work one by one on the same folder, and again.
    assert desk.call("validate", "--verbose", "--run", str(desk.run_folder)).code == 0
    again = desk.call("promote", "--verbose", "--run", str(desk.run_folder))
    assert again.code == 0, str(again)


def test_a_pad_value_that_no_sample_needed_is_a_warning_and_compare_follows_the_rule(desk: Desk) -> None:
    size = "onnx-fp32@length=8"
    ids = np.arange(120 * 8).reshape(120, 8) % 7
    np.savez(desk.folder / "full.npz", x=ids.astype(np.float32))
    graph = onnx.parser.parse_graph("net (float[batch, length] x) => (float[batch, length] y) { y = Cos (x) }")
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
        str(desk.folder / "row.onnx"),
    )
    desk.spec(
        model={"name": "tiny", "source": "row.onnx"},
        samples={"source": "full.npz"},
        decisions={},
        targets=[_static(static={"length": 8}, pad={"x": 99})],
    )

    called = desk.json("run", "spec.yaml", "--verbose", "--no-promote")

    checks = {check["name"]: check for check in called.data["runs"][0]["variants"][size]["checks"]}
    assert checks["fixed_dims"]["status"] == "warning"
    assert "no sample has a length below the fixed size" in checks["fixed_dims"]["detail"]
    # Shorter rows are taken by way of the rule beside the file.
    np.savez(desk.folder / "short.npz", x=ids[:, :5].astype(np.float32))
    file = str(desk.run_folder / size / "model.onnx")
    assert desk.call("compare", "row.onnx", file, "--samples", "short.npz").code == 0


@pytest.mark.openvino
def test_an_openvino_variant_is_fixed_too(desk: Desk) -> None:
    desk.spec(targets=[_static("openvino-fp32", static={"batch": 32})])

    called = desk.json("run", "spec.yaml", "--verbose")

    assert called.code == 0, str(called)
    assert called.data["runs"][0]["release"]["variants"] == ["openvino-fp32@batch=32"]
    assert "; of 8 calls were padded: batch in 8" in str(
        called.data["runs"][0]["variants"]["openvino-fp32@batch=32"]["notes"]
    )


def test_a_rule_that_was_changed_is_no_evidence(desk: Desk) -> None:
    desk.spec(targets=[_static(static={"batch": 32})])
    assert desk.call("export", "--verbose", "spec.yaml").code == 0
    assert desk.call("record", "--run", str(desk.run_folder)).code == 0
    rule = desk.run_folder / "onnx-fp32@batch=32/fixed-shape.json"
    rule.write_text(rule.read_text(encoding="utf-8").replace("32", "16"), encoding="utf-8")

    called = desk.json("validate", "--verbose", "--run", str(desk.run_folder))

    assert called.code == 5
    assert "fixed-shape.json was changed" in called.out + called.err


def test_samples_longer_than_the_fixed_size_are_a_fail(desk: Desk) -> None:
    import onnx

    onnx.save(onnx.parser.parse_model(_FAULTY), str(desk.folder / "model.onnx"))
    shape = (120, 9)
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    np.savez(desk.folder / "inputs.npz", x=values, mask=np.ones(shape, np.int64))
    desk.spec(
        model={"name": "tiny", "source": "model.onnx"},
        decisions={},
        targets=[_static(static={"length": 8}, pad={"x": 0, "mask": 0})],
    )

    called = desk.call("run", "--verbose", "spec.yaml", "--no-promote")

    assert called.code == 1, str(called)
    assert "the inputs have length 9, but the model accepts at most 8" in " ".join(called.out.split())


def test_a_dim_that_only_the_source_knows_is_checked_at_export(desk: Desk) -> None:
    desk.spec(targets=[_static(static={"rows": 8})])

    called = desk.call("run", "--verbose", "spec.yaml")

    assert called.code == 2
    assert "target 'onnx-fp32@rows=8': dim 'rows' is not a symbolic dim of the inputs (they have: batch)" in called.err


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.thorough
def test_a_sentence_model_for_one_shape_is_promoted(tmp_path: Path) -> None:
    desk = Desk(folder=tmp_path)
    spec = yaml.safe_load((Path(__file__).parents[3] / "pipelines/specs/klue-sts.yaml").read_text(encoding="utf-8"))
    zero = {"input_ids": 0, "attention_mask": 0}
    shape = {"batch": 1, "sequence": 128}
    dtypes = {"input_ids": "int32", "attention_mask": "float32"}
    kept = {name: spec[name] for name in ("model", "samples", "decisions")}
    desk.spec(**kept, targets=[_static(static=shape, pad=zero, dtypes=dtypes)], promote={"alias": "prod"})

    called = desk.json("run", "spec.yaml", "--verbose")

    name = "onnx-fp32@batch=1,sequence=128"
    assert called.code == 0, str(called)
    (run,) = called.data["runs"]
    assert run["release"]["variants"] == [name]
    assert (run["variants"][name]["verdict"], run["variants"][name]["rows"]) == ("pass", 519)
    assert "of 519 calls were padded: batch in 0, sequence in " in str(run["variants"][name]["notes"])
    assert desk.call("verify", "klue-sts").code == 0


_SPEC = """
model:
  name: tiny
  source: net:model
  inputs:
    ids: {dtype: int64, shape: [batch, length]}
  outputs: {logits: {dtype: float32, shape: [batch, 3]}}
  dims: {batch: {min: 1, opt: 8, max: 64}, length: {min: 1, max: 128}}
samples: {source: net:samples}
"""
_WHOLE = _static(static={"batch": 1, "length": 128}, pad={"ids": 0}, dtypes={"ids": "int32"})


def _parse(targets: Sequence[object], **parts: object) -> ResolvedSpec:
    data = {**yaml.safe_load(_SPEC), "targets": targets, **parts}
    return parse_spec(yaml.safe_dump(data, sort_keys=False), folder=Path("/spec"), origin="spec.yaml")


def test_a_static_target_has_one_name_everywhere() -> None:
    name = "onnx-fp32@batch=1,length=128"

    resolved = _parse(["onnx-fp32", _WHOLE], required=[name], tolerance={name: {}}, promote={"prefer": [name]})

    assert resolved.target_names == ("onnx-fp32", name)
    assert tuple(map(str, resolved.variants)) == resolved.target_names


def test_the_schema_takes_names_and_mappings() -> None:
    schema = jsonschema.Draft202012Validator(schema_of_spec())
    data = {**yaml.safe_load(_SPEC), "targets": ["onnx-fp32", _WHOLE]}

    schema.validate(data)
    assert not schema.is_valid({**data, "targets": [{**_WHOLE, "bogus": 1}]})
    assert not schema.is_valid({**data, "targets": [_static(static={"batch": 0})]})
    assert not schema.is_valid({**data, "targets": [_static(static={})]})


def test_rows_alone_may_be_fixed_by_name() -> None:
    assert _parse(["onnx-fp32@batch=4"]).target_names == ("onnx-fp32@batch=4",)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (_static(static={"rows": 1}), "dim 'rows' is not a symbolic dim of the inputs (they have: batch, length)"),
        (_static(static={"batch": 65}), "dim 'batch' is fixed at 65, but model.dims allows 1 to 64"),
        (
            _static(static={"length": 8}),
            "the input ids: int64[batch, length] has a fixed dim besides rows, but pad has",
        ),
        (
            _static("savedmodel-fp32", static={"batch": 1}),
            "the dims of 'savedmodel-fp32@batch=1' cannot be fixed (form",
        ),
        (_static("onnx-fp64", static={"batch": 1}), "target 'onnx-fp64' is not available"),
        (_static("tflite-bf16", static={"batch": 1}), "target 'tflite-bf16' is not available"),
        (_static("onnx-fp32@batch=1", static={"batch": 1}), "has fixed dims in its name and under static"),
        (_static(static={"a-b": 1}), "dim 'a-b' cannot be fixed"),
        (_static(static={"batch": 1}, dtypes={"ids": "int8"}), "cannot be given as 'int8'"),
        (_static(static={"batch": 0}), "targets.1.static.batch: a number of at least 1 is needed (seen: 0)"),
        (_static(static={"batch": 10**15}), "fixes batch at 1000000000000000 (allowed: 1 to 2147483647)"),
        ("onnx-fp32@batch=2147483648", "fixes batch at 2147483648 (allowed: 1 to 2147483647)"),
        (_static(static={"batch": "1"}), "targets.1.static.batch: a whole number is needed"),
        (_static(static={}), "targets.1.static: at least 1 of them is needed"),
        (_static(), "targets.1.static: is missing"),
        (_static(static={"batch": 1}, padd={}), "targets.1.padd: unknown key (allowed: name, static, pad, dtypes)"),
        (_static(static={"batch": 1}, pad={"ids": float("inf")}), "targets.1.pad.ids: a finite number is needed"),
        (3, "targets.1: text is needed"),
        ("onnx-fp32@batch", "fixes 'batch', which is not of the form DIM=SIZE"),
        ("onnx-fp32", "a target occurs twice (onnx-fp32, onnx-fp32)"),
    ],
)
def test_a_wrong_target_is_refused_in_words(target: object, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        _parse(["onnx-fp32", target])

    assert words in str(caught.value)
    assert caught.value.hint


def test_the_same_dims_in_another_order_are_the_same_target() -> None:
    other = {**_WHOLE, "static": {"length": 128, "batch": 1}}

    with pytest.raises(UsageError, match="a target occurs twice"):
        _parse([_WHOLE, other])
