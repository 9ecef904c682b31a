"""Runs over models of many kinds: branches and loops, external data, overflow, masks, large ids, NCHW and NHWC."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.pipelines.conftest import Called, Desk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

_ROWS = 120
_ONNX = ("onnx-fp32", "onnx-fp16", "onnx-bf16", "onnx-int8")
_OPENVINO = ("openvino-fp32", "openvino-bf16", "openvino-int8")
# Each row runs for as many steps as it says, and a long one is moved on in a branch: what others do changes no row.
_BRANCHING = """
< ir_version: 8, opset_import: ["" : 17] >
branching (float[batch, 8] x, int64[batch] steps) => (float[batch, 8] state) <int64[1] axis = {1}, int64 limit = {3}> {
    entered = MatMul (x, enter)
    most = ReduceMax <keepdims = 0> (steps)
    go = Constant <value = bool {1}> ()
    looped = Loop (most, go, entered) <
        body = turn (int64 i, bool kept, float[batch, 8] before) => (bool again, float[batch, 8] after) {
            again = Identity (kept)
            product = MatMul (before, turned)
            bounded = Tanh (product)
            is_running = Less (i, steps)
            column = Unsqueeze (is_running, axis)
            after = Where (column, bounded, before)
        }
    >
    is_any_long = Greater (most, limit)
    corrected = If (is_any_long) <
        then_branch = corrected () => (float[batch, 8] shifted) {
            is_long = Greater (steps, limit)
            long_column = Unsqueeze (is_long, axis)
            moved = MatMul (looped, turned)
            shifted = Where (long_column, moved, looped)
        },
        else_branch = untouched () => (float[batch, 8] same) {
            same = Identity (looped)
        }
    >
    state = Gemm (corrected, leave, offset)
}
"""
_STACKED = """
< ir_version: 8, opset_import: ["" : 17] >
stacked (float[batch, 32] x) => (float[batch, 32] y) {
    hidden = Gemm (x, first, offset)
    bounded = Relu (hidden)
    y = MatMul (bounded, second)
}
"""
# Normalised by the root of the mean square: of values of some hundreds, the squares are beyond 65504.
_OVERFLOWING = """
< ir_version: 8, opset_import: ["" : 17] >
overflowing (float[batch, 8] x) => (float[batch, 4] logits) <float[1] scale = {400.0}> {
    hidden = MatMul (x, enter)
    large = Mul (hidden, scale)
    square = Mul (large, large)
    mean = ReduceMean <axes = [1], keepdims = 1> (square)
    root = Sqrt (mean)
    normal = Div (large, root)
    logits = MatMul (normal, leave)
}
"""
_ATTENTION = """
< ir_version: 8, opset_import: ["" : 17] >
attention (float[batch, length, 8] x, int64[batch, length] mask) => (float[batch, length, 8] y)
    <float one = {1.0}, float least = {-1000000000.0}, int64[1] axis = {1}> {
    weight = Cast <to = 1> (mask)
    hidden = Sub (one, weight)
    bias = Mul (hidden, least)
    row = Unsqueeze (bias, axis)
    query = MatMul (x, q)
    key = MatMul (x, k)
    value = MatMul (x, v)
    turned = Transpose <perm = [0, 2, 1]> (key)
    scores = MatMul (query, turned)
    masked = Add (scores, row)
    shares = Softmax <axis = -1> (masked)
    y = MatMul (shares, value)
}
"""
# The first id of the vocabulary is 2 ** 24: of two ids side by side, float32 knows every other one.
_FIRST_ID = 2**24
_VOCABULARY = 96
_IDS = """
< ir_version: 8, opset_import: ["" : 17] >
ids (int64[batch, 2] ids) => (float[batch, 2, 4] rows, int64[batch, 2] next)
    <int64 first = {16777216}, int64 one = {1}> {
    place = Sub (ids, first)
    rows = Gather (table, place)
    next = Add (ids, one)
}
"""
_BUCKETS = """
< ir_version: 8, opset_import: ["" : 17] >
buckets (int64[batch, 2] ids) => (float[batch, 2, 4] rows) <int64 size = {96}> {
    place = Mod (ids, size)
    rows = Gather (table, place)
}
"""


def _normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _weights(names: Sequence[str], *shape: int) -> dict[str, NDArray[np.float32]]:
    return {name: _normal(*shape, seed=seed) / np.float32(shape[0] ** 0.5) for seed, name in enumerate(names, 1)}


def _parsed(text: str, weights: Mapping[str, NDArray[Any]]) -> onnx.ModelProto:
    import onnx

    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def _run(
    folder: Path,
    model: onnx.ModelProto,
    arrays: Mapping[str, NDArray[Any]],
    targets: Sequence[str],
    *,
    is_external: bool = False,
    **parts: object,
) -> Called:
    import onnx

    desk = Desk(folder=folder)
    onnx.save(
        model,
        str(folder / "model.onnx"),
        save_as_external_data=is_external,
        location="weights.data",
        size_threshold=0,
    )
    np.savez(folder / "inputs.npz", **arrays)  # type: ignore[arg-type]  # keys are free in a mapping
    desk.spec(model={"name": "tiny", "source": "model.onnx"}, decisions={}, targets=list(targets), **parts)
    return desk.json("run", "spec.yaml", "--verbose")


def _verdicts(called: Called, which: str = "variants") -> dict[str, str]:
    """Return the verdict of each variant that was made."""
    found = called.data["runs"][0][which]
    return {name: result["verdict"] for name, result in found.items() if result is not None}


def _failed_outputs(called: Called, variant: str) -> set[str]:
    checks = called.data["runs"][0]["variants"][variant]["checks"]
    return {check["output"] for check in checks if check["status"] == "fail"}


def _passing(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "pass")


def _runs_bf16() -> bool:
    from paritygate.models.openvino.settings import is_capable

    return is_capable("bf16")


def _run_branching(folder: Path, targets: Sequence[str]) -> Called:
    """Return the run of a model with a Loop and an If; both branches are taken."""
    random = np.random.default_rng(0)
    arrays: dict[str, NDArray[Any]] = {}
    for case in range(60):
        arrays[f"c{case}/x"] = random.uniform(-1, 1, (4, 8)).astype(np.float32)
        arrays[f"c{case}/steps"] = random.integers(0, 4 if case % 2 else 7, 4)
    weights = {**_weights(["enter", "turned", "leave"], 8, 8), "offset": _normal(8)}
    return _run(folder, _parsed(_BRANCHING, weights), arrays, targets)


@pytest.fixture(scope="module")
def branching(tmp_path_factory: pytest.TempPathFactory) -> Called:
    """Return its run to the formats that tell of what is inside of a branch."""
    return _run_branching(tmp_path_factory.mktemp("branching"), ["onnx-fp16", "onnx-int8", "openvino-int8"])


@pytest.mark.openvino
@pytest.mark.nncf
@pytest.mark.thorough
def test_a_model_with_a_loop_and_a_branch_passes_in_every_precision_but_where_it_is_not_run(tmp_path: Path) -> None:
    branching = _run_branching(tmp_path, [*_ONNX, *_OPENVINO])
    verdicts = _verdicts(branching)

    passing = {name for name, verdict in verdicts.items() if verdict == "pass"}
    assert passing >= {"onnx-fp32", "onnx-fp16", "openvino-fp32"}, str(branching)
    # How well random weights take INT8 is not the same on every processor.
    assert verdicts["openvino-int8"] in {"pass", "fail"}, str(branching)
    assert ("openvino-bf16" in passing) == _runs_bf16(), str(branching)
    assert _verdicts(branching, "emulated") == _passing("onnx-fp16", "onnx-bf16"), str(branching)
    assert verdicts["onnx-bf16"] == "not run here"
    assert "not run here: onnx-bf16: " in branching.out


@pytest.mark.openvino
@pytest.mark.nncf
def test_what_is_inside_of_a_loop_is_rewritten_and_what_is_not_counted_is_said(branching: Called) -> None:
    variants = branching.data["runs"][0]["variants"]

    # Of the four products with weights, two are inside.
    assert any("rewritten to fp16: 8 nodes" in note for note in variants["onnx-fp16"]["notes"])
    assert "those inside If and Loop not counted" in str(variants["openvino-int8"]["notes"])


@pytest.mark.openvino
@pytest.mark.nncf
def test_what_a_branch_captures_comes_before_it_when_quantized(branching: Called) -> None:
    assert "onnx-int8" not in branching.data["runs"][0]["failures"], str(branching)
    assert _verdicts(branching)["onnx-int8"] in {"pass", "fail"}


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Called]:
    """Return the folder and the run of a model whose weights are in a file beside it."""
    folder = tmp_path_factory.mktemp("external")
    model = _parsed(_STACKED, {**_weights(["first", "second"], 32, 32), "offset": _normal(32)})
    return folder, _run(
        folder, model, {"x": _normal(300, 32)}, ["onnx-fp16", "onnx-int8", "openvino-fp32"], is_external=True,
        # Some processors add INT8 products up in 16 bits: what comes of it is not a matter here.
        tolerance={"onnx-int8": {"max_abs_diff": 100, "mean_abs_diff": 100, "max_row_rel_diff": 100}},
    )  # fmt: skip


@pytest.mark.openvino
def test_weights_in_a_file_of_their_own_come_along_in_every_format(external: tuple[Path, Called]) -> None:
    folder, called = external

    assert (folder / "weights.data").stat().st_size > (folder / "model.onnx").stat().st_size
    assert _verdicts(called) == _passing("onnx-fp16", "onnx-int8", "openvino-fp32"), str(called)
    assert called.code == 0
    found = {
        name: result["candidate"]["precision_found"] for name, result in called.data["runs"][0]["variants"].items()
    }
    assert found == {"onnx-fp16": "fp16", "onnx-int8": "int8", "openvino-fp32": "fp32"}


@pytest.mark.openvino
def test_a_release_needs_no_file_of_the_source(external: tuple[Path, Called]) -> None:
    import onnxruntime

    folder, called = external
    assert called.data["runs"][0]["release"]["variants"] == ["onnx-fp16", "onnx-int8", "openvino-fp32"]
    (stored,) = folder.glob("artifacts/repository/store/tiny/*/onnx-int8")

    session = onnxruntime.InferenceSession(str(stored / "model.onnx"))

    assert session.run(None, {"x": _normal(1, 32)})[0].shape == (1, 32)


@pytest.mark.openvino
def test_an_overflow_fails_in_fp16_and_not_in_bf16(tmp_path: Path) -> None:
    model = _parsed(_OVERFLOWING, {**_weights(["enter"], 8, 8), **_weights(["leave"], 8, 4)})

    called = _run(tmp_path, model, {"x": _normal(_ROWS, 8)}, ["onnx-fp16", "onnx-bf16", "openvino-bf16"])

    assert _verdicts(called, "emulated") == {"onnx-fp16": "fail", "onnx-bf16": "pass"}, str(called)
    if _runs_bf16():
        assert _verdicts(called)["openvino-bf16"] == "pass", str(called)


@pytest.mark.openvino
def test_a_mask_of_minus_a_billion_passes_in_half_precision(tmp_path: Path) -> None:
    mask = (np.random.default_rng(0).random((_ROWS, 6)) < 0.6).astype(np.int64)
    # Of every row something is seen: the softmax of a row that is masked whole is of the scores alone.
    mask[:, 0] = 1
    arrays = {"x": _normal(_ROWS, 6, 8) / 2, "mask": mask}

    called = _run(
        tmp_path,
        _parsed(_ATTENTION, _weights("qkv", 8, 8)),
        arrays,
        ["onnx-fp16", "onnx-bf16", "openvino-fp32", "openvino-bf16"],
    )

    assert _verdicts(called, "emulated") == _passing("onnx-fp16", "onnx-bf16"), str(called)
    verdicts = _verdicts(called)
    assert (verdicts["onnx-fp16"], verdicts["openvino-fp32"]) == ("pass", "pass"), str(called)
    assert (verdicts["openvino-bf16"] == "pass") == _runs_bf16(), str(called)
    assert "least: 1 value, -1e+09 became -65504" in called.out


def _ids(rows: int = _ROWS) -> NDArray[np.int64]:
    return _FIRST_ID + np.random.default_rng(0).integers(0, _VOCABULARY, (rows, 2))


@pytest.mark.openvino
def test_ids_that_float32_does_not_hold_are_exact_in_every_format(tmp_path: Path) -> None:
    targets = ["onnx-fp32", "onnx-fp16", "openvino-fp32"]

    called = _run(tmp_path, _parsed(_IDS, {"table": _normal(_VOCABULARY, 4)}), {"ids": _ids()}, targets)

    assert _verdicts(called) == _passing(*targets), str(called)
    assert _verdicts(called, "emulated") == _passing("onnx-fp16")


@pytest.mark.openvino
def test_an_operator_that_openvino_computes_through_float32_is_seen(tmp_path: Path) -> None:
    # The CPU plugin of OpenVINO has Sub of integers, and computes Mod of integers in float32.
    called = _run(
        tmp_path, _parsed(_BUCKETS, {"table": _normal(96, 4)}), {"ids": _ids() * 3}, ["onnx-fp32", "openvino-fp32"]
    )

    assert _verdicts(called) == {"onnx-fp32": "pass", "openvino-fp32": "fail"}, str(called)
    assert called.code == 1
    assert called.data["runs"][0]["release"] is None
    assert called.data["runs"][0]["would_release"] == "onnx-fp32"


_TORCH_SCENE = """
import torch

_FIRST_ID = 2**24


class Scene(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(3, 5, (3, 1), padding=(1, 0))
        self.normal = torch.nn.BatchNorm2d(5)
        self.second = torch.nn.Conv2d(5, 4, 3, stride=(2, 1), padding=1)
        self.table = torch.nn.Embedding(96, 4)

    def forward(self, image, ids):
        hidden = torch.relu(self.normal(self.first(image)))
        # An exporter feeds zeros.
        return {"pixels": self.second(hidden), "rows": self.table((ids - _FIRST_ID).clamp(min=0))}


def model():
    return Scene().eval()
"""
_KERAS_SCENE = """
import keras

_FIRST_ID = 2**24


def model():
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 6, 3), name="image")
    ids = keras.Input((2,), dtype="int64", name="ids")
    hidden = keras.layers.Conv2D(5, (3, 1), padding="same")(image)
    hidden = keras.layers.ReLU()(keras.layers.BatchNormalization()(hidden))
    pixels = keras.layers.Conv2D(4, 3, strides=(2, 2), padding="same")(hidden)
    rows = keras.layers.Embedding(96, 4)(ids - _FIRST_ID)
    return keras.Model({"image": image, "ids": ids}, {"pixels": pixels, "rows": rows})
"""


def _run_scene(folder: Path, text: str, image: Sequence[int], pixels: Sequence[int], targets: Sequence[str]) -> Called:
    desk = Desk(folder=folder)
    desk.module("scene", text)
    np.savez(folder / "inputs.npz", image=_normal(_ROWS, *image), ids=_ids())
    float32, int64 = {"dtype": "float32"}, {"dtype": "int64"}
    model = {
        "name": "tiny",
        "source": "scene:model",
        "inputs": {"image": {**float32, "shape": ["batch", *image]}, "ids": {**int64, "shape": ["batch", 2]}},
        "outputs": {"pixels": {**float32, "shape": ["batch", *pixels]}, "rows": {**float32, "shape": ["batch", 2, 4]}},
        "dims": {"batch": {"min": 1, "opt": 16, "max": 64}},
    }
    desk.spec(model=model, decisions={}, targets=list(targets))
    return desk.json("run", "spec.yaml", "--verbose")


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.torch
@pytest.mark.openvino
def test_nchw_images_and_large_ids_pass_in_every_format_of_a_torch_module(tmp_path: Path) -> None:
    targets = ["onnx-fp32", "openvino-fp32", "torch-fp32", "torchscript-fp32", "pt2-fp32"]

    called = _run_scene(tmp_path, _TORCH_SCENE, (3, 8, 6), (4, 4, 6), targets)

    assert _verdicts(called) == _passing(*targets), str(called)
    assert called.code == 0


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.litert
@pytest.mark.openvino
@pytest.mark.thorough
def test_nhwc_images_and_large_ids_pass_in_every_format_of_a_keras_model(tmp_path: Path) -> None:
    targets = ["savedmodel-fp32", "onnx-fp32", "tflite-fp32", "openvino-fp32"]

    called = _run_scene(tmp_path, _KERAS_SCENE, (8, 6, 3), (4, 3, 4), targets)

    assert _verdicts(called) == _passing(*targets), str(called)
    assert called.code == 0
