"""Every rule of the linter: a view that breaks it is named, and the same view without the fault passes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace
from tests.pipelines.serving.conftest import SIGNATURE

from paritygate.pipelines.serving.protobuf import text_of
from paritygate.pipelines.serving.triton.lint import PARSING, RULES, View, lint
from paritygate.pipelines.serving.triton.messages import config_of
from paritygate.pipelines.serving.triton.servers import OnnxVersion
from paritygate.signature import Dim, Signature, TensorSpec

X: dict[str, Any] = {"name": "x", "data_type": "TYPE_FP32", "dims": [4]}
Y: dict[str, Any] = {**X, "name": "y"}
WARM: dict[str, Any] = {"data_type": "TYPE_FP32", "dims": [4], "input_data_file": "a/x"}
RIGHT: dict[str, Any] = {
    "name": "adds",
    "backend": "onnxruntime",
    "version_policy": {"specific": {"versions": [1]}},
    "max_batch_size": 8,
    "input": [X],
    "output": [Y],
    "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
    "dynamic_batching": {"preferred_batch_size": [8]},
    "model_warmup": [{"name": "w", "batch_size": 8, "inputs": {"x": WARM}}],
}
FILES = {"1/model.onnx": 100, "warmup/a/x": 16}


def view_of(changes: dict[str, Any], **fields: Any) -> View:  # noqa: ANN401 - any field of it
    data = {name: value for name, value in {**RIGHT, **changes}.items() if value is not None}
    text = text_of(config_of(data))
    return replace(View(folder="adds", text=text, files=FILES, signature=SIGNATURE, devices=("cpu",)), **fields)


def warm(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any field of the input
    request = {**RIGHT["model_warmup"][0], **{k: v for k, v in changes.items() if k == "batch_size"}}
    given = {k: v for k, v in {**WARM, **changes}.items() if k != "batch_size" and v is not None}
    return {"model_warmup": [{**request, "inputs": {"x": given}}]}


def static(*shape: int | str) -> dict[str, Any]:
    specs = [TensorSpec(name=name, dtype="float32", shape=shape) for name in "xy"]
    return {"signature": Signature(inputs=(specs[0],), outputs=(specs[1],))}


UNBATCHED = {"max_batch_size": 0, "dynamic_batching": None, "model_warmup": None}
ENGINE = {"backend": "tensorrt", "instance_group": [{"count": 1, "kind": "KIND_CPU"}]}
# A rule, what is changed of the configuration and of the view, and words of the message.
FAULTS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (PARSING, {}, {"text": "max_batchsize: 1"}, "1:1 : .* no field named"),
    (PARSING, {}, {"text": "version_policy { all {} latest {} }"}, "along with field"),
    (PARSING, {}, {"text": "input [{ data_type: TYPE_FLOAT }]"}, "no value named TYPE_FLOAT"),
    (PARSING, {}, {"text": 'name: "a" name: "b"'}, "multiple .name. fields"),
    (PARSING, {}, {"text": "\ufeffmax_batch_size: 1"}, "1:1"),
    ("name", {"name": "other"}, {}, "named 'other', and its folder 'adds'"),
    ("backend", {"backend": None}, {}, "backend is None"),
    ("backend", {"backend": "onnx"}, {}, "allowed: onnxruntime"),
    ("max_batch_size", {"max_batch_size": -1}, {}, "max_batch_size is -1"),
    ("max_batch_size", {"max_batch_size": 32}, {}, "at most 16 rows"),
    ("tensors", {"input": None}, {}, "there is no input"),
    ("tensors", {"input": [{**X, "name": ""}]}, {}, "input 0 has no name"),
    ("tensors", {"input": [{"name": "x", "dims": [4]}]}, {}, "x has no data_type"),
    ("tensors", {"output": [{"name": "y", "data_type": "TYPE_FP32"}]}, {}, "y has no dims"),
    ("tensors", {"output": [{**Y, "dims": [0]}]}, {}, r"the dims \[0\]"),
    ("tensors", {"output": [{**Y, "dims": [-2]}]}, {}, r"the dims \[-2\]"),
    ("tensors", {"input": [X, X]}, {}, "2 of the inputs are named 'x'"),
    ("reshape", {"output": [{**Y, "reshape": {"shape": [3]}}]}, {}, r"reshaped to \[3\]"),
    ("reshape", {**UNBATCHED, "output": [{**Y, "dims": [1], "reshape": {"shape": []}}]}, {}, "is not batched"),
    ("dynamic_batching", {"max_batch_size": 0}, {}, "merges nothing"),
    ("dynamic_batching", {"dynamic_batching": {"preferred_batch_size": [9]}}, {}, "preferred_batch_size 9"),
    ("dynamic_batching", {"dynamic_batching": {"preferred_batch_size": [0]}}, {}, "preferred_batch_size 0"),
    ("padding", {"backend": "openvino"}, {}, "answers 8 rows together and refuses fewer"),
    ("warm-up", warm(batch_size=9), {}, "kills the whole server"),
    ("warm-up", warm(batch_size=0), {}, "allowed: 1 to 8"),
    ("warm-up", {**warm(batch_size=2), "max_batch_size": 0, "dynamic_batching": None}, {}, "allowed: 1 to 1"),
    ("warm-up", {"model_warmup": [{"name": "w", "batch_size": 1, "inputs": {}}]}, {}, "gives nothing"),
    ("warm-up", {"model_warmup": [{"name": "w", "batch_size": 1, "inputs": {"z": WARM}}]}, {}, "gives z"),
    ("warm-up", warm(data_type="TYPE_INT64"), {}, "is TYPE_INT64, but the model expects TYPE_FP32"),
    ("warm-up", warm(dims=[5]), {}, r"the dims \[5\]"),
    ("warm-up", warm(dims=[-1]), {}, r"the dims \[-1\]"),
    ("warm-up", warm(input_data_file="b/x"), {}, "warmup/b/x, which is not there"),
    ("warm-up", {}, {"files": {**FILES, "warmup/a/x": 8}}, "16 bytes a row, and warmup/a/x has 8"),
    ("warm-up", warm(input_data_file=None), {}, "neither zero_data"),
    ("instance_group", {"instance_group": [{"count": 1, "kind": "KIND_GPU"}]}, {}, "verified on the CPU alone"),
    ("instance_group", {}, {"devices": ("cuda:sm90",)}, "verified on cuda:sm90 alone"),
    ("instance_group", {"instance_group": [{"count": -1}]}, {}, "count -1"),
    ("instance_group", ENGINE, {"devices": (), "files": {**FILES, "1/model.plan": 1}}, "runs on a GPU"),
    ("version_policy", {"version_policy": {"specific": {"versions": [2]}}}, {}, r"\[2\], and there are: 1"),
    ("version_policy", {"version_policy": {"latest": {}}}, {}, "latest 0 versions"),
    ("version_policy", {"version_policy": None}, {"files": {"warmup/a/x": 16}}, "no version that could be served"),
    ("version folders", {}, {"files": {**FILES, "01/model.onnx": 1}}, "'01' is not a version"),
    ("version folders", {}, {"files": {**FILES, "v2/model.onnx": 1}}, "'v2' is not a version"),
    ("model file", {}, {"files": {**FILES, "2/best.onnx": 1}}, r"version 2 has no model\.onnx"),
    ("onnx version", {}, {"server": "24.10", "onnx": OnnxVersion(ir=11, opset=21)}, "up to IR 10 and opset 21"),
    ("onnx version", {}, {"server": "24.11", "onnx": OnnxVersion(ir=10, opset=22)}, r"ONNX Runtime 1\.19\.2"),
    ("model", {"output": [{**Y, "name": "z"}]}, {}, "the outputs are z, and the model has y"),
    ("model", {"output": [{**Y, "data_type": "TYPE_FP16"}]}, {}, "y is TYPE_FP16, and of the model TYPE_FP32"),
    ("model", {"output": [{**Y, "dims": [5]}]}, {}, r"dims of y are \[5\], and of the model \[4\]"),
    ("model", {"input": [{**X, "dims": [-1, 4]}], "model_warmup": None}, {}, "that of the batch stands in them"),
    ("model", {}, static(1, 4), "the model takes no batches"),
    ("model", {"output": [{**Y, "dims": [4]}]}, static("batch", "n"), r"dims of y are \[4\], and of the model \[-1\]"),
]


def test_a_right_view_has_no_problem() -> None:
    assert lint(view_of({})) == []


def test_an_input_of_any_size_may_be_narrowed() -> None:
    view = view_of({"output": [{**Y, "dims": [-1]}]}, **static("batch", "n"))

    assert lint(view) == []


def test_openvino_may_pad_batches() -> None:
    own = {"backend": "openvino", "parameters": {"ENABLE_BATCH_PADDING": {"string_value": "YES"}}}

    assert lint(view_of(own, files={"1/model.xml": 1, "warmup/a/x": 16})) == []


def test_a_model_of_several_files_is_a_folder() -> None:
    files = {"1/model.onnx/model.onnx": 1, "1/model.onnx/weights": 1, "warmup/a/x": 16}

    assert lint(view_of({}, files=files)) == []


@pytest.mark.parametrize(("rule", "changes", "fields", "words"), FAULTS, ids=range(len(FAULTS)))
def test_a_broken_rule_is_named(rule: str, changes: dict[str, Any], fields: dict[str, Any], words: str) -> None:
    problems = lint(view_of(changes, **fields))

    found = [problem for problem in problems if problem.rule == rule]
    assert found, problems

    assert any(re.search(words, problem.words) for problem in found), problems


def test_every_rule_is_broken_once_above() -> None:
    assert {rule for rule, *_ in FAULTS} == {PARSING, *RULES}


def test_sizes_that_were_declared_bound_the_batch_of_an_engine() -> None:
    engine = replace(SIGNATURE, dims={"batch": Dim(min=1, opt=1, max=1)})

    assert [problem.rule for problem in lint(view_of({}, signature=engine))] == ["max_batch_size"]
