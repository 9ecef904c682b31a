"""`init` on a folder of pictures: the size from the model, and the preparation written as a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from PIL import Image

from paritygate.pipelines.spec.loading import load_spec
from paritygate.validate.samples.samples import open_samples

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_QUICK = ("--probes", "none", "--no-benchmark", "--quiet")


def _pictures(desk: Desk, sizes: tuple[tuple[int, int], ...] = ((40, 32), (32, 48)), rows: int = 104) -> None:
    random = np.random.default_rng(0)
    for row in range(rows):
        path = desk.folder / "pictures" / f"class{row % 2}" / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        width, height = sizes[row % len(sizes)]
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)


def _conv(desk: Desk, shape: tuple[int | str, ...], *, dtype: int = onnx.TensorProto.FLOAT) -> None:
    """Write a model with one convolution over pictures of that shape, channels first, and a mean."""
    helper = onnx.helper
    weight = np.random.default_rng(0).standard_normal((4, int(shape[1]), 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["image"], ["floats"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Conv", ["floats", "weight"], ["maps"]),
        helper.make_node("GlobalAveragePool", ["maps"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "conv",
        [helper.make_tensor_value_info("image", dtype, list(shape))],
        [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [shape[0], 4])],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(desk.folder / "conv.onnx"))


@pytest.mark.parametrize(
    ("channels", "dtype", "colours", "kind"),
    [
        (3, onnx.TensorProto.FLOAT, "RGB", "float32"),
        (1, onnx.TensorProto.FLOAT, "L", "float32"),
        (3, onnx.TensorProto.UINT8, "RGB", "uint8"),
    ],
)
def test_a_folder_of_pictures_becomes_the_declared_input(
    desk: Desk, channels: int, dtype: int, colours: str, kind: str
) -> None:
    _pictures(desk)
    _conv(desk, ("batch", channels, 24, 16), dtype=dtype)

    called = desk.json("init", "conv.onnx", "--samples", "pictures/", "--out", "new.yaml")

    assert called.code == 0, called
    resolved = load_spec(str(desk.folder / "new.yaml"))
    images = resolved.spec.samples.images
    assert images is not None
    assert (images.input, images.size, images.channels, images.dtype) == ("image", [24, 16], colours, kind)
    assert any(guess.startswith("samples.images: ") for guess in called.data["guesses"])
    (first, *_) = open_samples(resolved.samples())()
    assert first.inputs["image"].shape[1:] == (channels, 24, 16)
    # Rounding may tie these few rows.
    assert desk.json("run", "new.yaml", "--target", "onnx-fp16", "--no-promote", *_QUICK).code in {0, 3}


@pytest.mark.parametrize(("sizes", "size"), [(((40, 32),), [32, 40]), (((40, 32), (32, 48)), [224, 224])])
def test_open_sides_are_those_of_the_pictures_where_all_have_one_size(
    desk: Desk, sizes: tuple[tuple[int, int], ...], size: list[int]
) -> None:
    _pictures(desk, sizes, rows=8)
    _conv(desk, ("batch", 3, "height", "width"))

    called = desk.json("init", "conv.onnx", "--samples", "pictures", "--out", "new.yaml")

    assert called.code == 0
    (guess,) = (guess for guess in called.data["guesses"] if guess.startswith("samples.images: "))
    assert ("32x40 to 48x32" in guess or "32x48 to 40x32" in guess) == (len(sizes) > 1)
    images = load_spec(str(desk.folder / "new.yaml")).spec.samples.images
    assert images is not None
    assert images.size == size


@pytest.mark.torch
def test_a_module_gets_pictures_of_the_size_that_it_answers(desk: Desk) -> None:
    _pictures(desk)
    desk.module(
        "cnn",
        """
        import torch

        def load():
            torch.manual_seed(0)
            return torch.nn.Sequential(
                torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 30 * 30, 5)
            )
        """,
    )

    assert desk.call("init", "cnn:load", "--samples", "pictures", "--out", "new.yaml").code == 0

    images = load_spec(str(desk.folder / "new.yaml")).spec.samples.images
    assert images is not None
    assert images.size == [32, 32]
    assert desk.json("run", "new.yaml", "--target", "onnx-fp32", "--no-promote", *_QUICK).code == 0


@pytest.mark.parametrize("fault", ["empty", "corrupt", "other", "no pictures", "channels"])
def test_a_folder_that_is_no_folder_of_pictures_is_refused_with_what_was_seen(desk: Desk, fault: str) -> None:
    _conv(desk, ("batch", 4 if fault == "channels" else 3, 24, 24))
    seen = {"channels": "4", "corrupt": "bad.jpg", "empty": "without a file", "other": "a.csv", "no pictures": "kind"}
    folder = desk.folder / "pictures"
    folder.mkdir()
    if fault in {"corrupt", "other", "channels"}:
        _pictures(desk, rows=4)
    if fault == "corrupt":
        (folder / "bad.jpg").write_bytes(b"no picture")
    if fault in {"other", "no pictures"}:
        (folder / "a.csv").write_text("a,b", encoding="utf-8")

    called = desk.call("init", "conv.onnx", "--samples", "pictures", "--out", "new.yaml")

    assert called.code in {2, 5}, called
    assert called.err.count("error: ") == 1
    assert seen[fault] in called.err
    assert "hint: " in called.err
    assert not (desk.folder / "new.yaml").exists()


def test_pictures_without_a_spec_lead_to_init(desk: Desk) -> None:
    _pictures(desk, rows=2)
    desk.onnx("other.onnx", output="logits")

    called = desk.call("compare", "model.onnx", "other.onnx", "--samples", "pictures")

    assert "convert-and-validate init MODEL --samples pictures" in called.err
