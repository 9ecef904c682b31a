"""`init` on a folder of Hugging Face: safetensors alone, offline, no code of the folder, and texts become tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from paritygate.errors import UsageError
from paritygate.pipelines.inspecting.hugging_face import module_of_weights
from paritygate.pipelines.inspecting.image_processor import picture_rules_of
from paritygate.pipelines.spec.loading import load_spec
from paritygate.validate.samples.pictures import read_pictures

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

pytestmark = pytest.mark.torch

_WORDS = ("good", "bad", "film", "the", "is", "very", "not", "a", "long", "short")
_QUICK = ("--target", "onnx-fp32", "--no-promote", "--probes", "none", "--no-benchmark", "--quiet")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small BERT, saved in half precision, and its tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("hub") / "weights"
    config = BertConfig(
        vocab_size=len(_WORDS) + 2,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    model = BertForSequenceClassification(config).half()  # type: ignore[no-untyped-call]  # transformers has no types
    model.save_pretrained(folder)
    words = {word: number for number, word in enumerate(("[PAD]", "[UNK]", *_WORDS))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")  # type: ignore[no-untyped-call]  # noqa: S106
    fast.save_pretrained(folder)
    return folder


def _texts(folder: Path) -> None:
    rows = [
        {"text": " ".join(_WORDS[(row * 7 + place) % len(_WORDS)] for place in range(3 + row % 5)), "label": row % 2}
        for row in range(120)
    ]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def _copied(desk: Desk, weights: Path) -> Path:
    folder = desk.folder / "weights"
    folder.mkdir()
    for file in weights.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_folder_of_weights_and_a_file_of_texts_run_at_the_first_attempt(desk: Desk, weights: Path) -> None:
    _copied(desk, weights)
    _texts(desk.folder)

    called = desk.json("init", "weights/", "--samples", "texts.jsonl", "--out", "new.yaml")

    assert called.code == 0, called
    resolved = load_spec(str(desk.folder / "new.yaml"))
    model, samples = resolved.spec.model, resolved.spec.samples
    assert (model.source, samples.source, samples.path) == ("weights_model:load", "weights_model:rows", "texts.jsonl")
    assert "weights/model.safetensors" in model.files
    assert {"input_ids", "attention_mask"} <= {*(model.inputs or ())}
    # It is loaded in FP32, whatever it was saved in.
    assert not any("half precision" in note for note in called.data["notes"])
    ran = desk.json(
        "run", "new.yaml", "--target", "onnx-fp32", "--no-promote", "--probes", "none", "--no-benchmark", "--quiet"
    )
    assert ran.code == 0, ran


@pytest.mark.parametrize("fault", ["pickle", "code", "class", "damaged"])
def test_a_folder_that_needs_more_is_refused_with_the_python_that_loads_it(
    desk: Desk, weights: Path, fault: str
) -> None:
    folder = _copied(desk, weights)
    _texts(desk.folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if fault == "pickle":
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    if fault == "code":
        config["auto_map"] = {"AutoModel": "modeling.Net"}
    if fault == "class":
        config["architectures"] = ["Net; import os"]
    (folder / "config.json").write_text("{" if fault == "damaged" else json.dumps(config), encoding="utf-8")
    seen = {"pickle": "pytorch_model.bin", "code": "auto_map", "class": "architectures", "damaged": "cannot be read"}

    called = desk.call("init", "weights", "--samples", "texts.jsonl", "--out", "new.yaml")

    assert called.code == 2, called
    assert seen[fault] in called.err
    if fault in {"pickle", "code", "class"}:
        assert "from_pretrained(" in called.err
        assert "init model:load" in " ".join(called.err.split())
    assert not list(desk.folder.rglob("weights_model.py"))
    assert not (desk.folder / "new.yaml").exists()


@pytest.mark.thorough
def test_a_folder_is_compared_as_the_model_that_it_holds(desk: Desk, weights: Path) -> None:
    folder = _copied(desk, weights)
    random = np.random.default_rng(0)
    ids = random.integers(2, 10, (8, 5))
    np.savez(desk.folder / "tokens.npz", input_ids=ids, attention_mask=np.ones_like(ids))
    shutil.copytree(folder, desk.folder / "again")
    call = ("again/", "--samples", "tokens.npz", "--probes", "none", "--min-rows", "8")

    same = desk.json("compare", "weights", *call)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "modeling.Net"}}))
    refused = desk.call("compare", "weights", *call)

    assert (same.code, same.data["verdict"]) == (0, "pass"), same
    assert same.data["reference"]["kind"] == "torch"
    assert {*same.data["outputs"]} == {"logits"}
    assert refused.code == 2
    assert "auto_map" in refused.err


def test_one_file_of_a_folder_points_to_the_folder(desk: Desk, weights: Path) -> None:
    _copied(desk, weights)

    called = desk.call("init", "weights/model.safetensors", "--out", "new.yaml")

    assert called.code == 2
    assert "name the folder: " in called.err


def test_neither_file_is_left_where_the_model_does_not_answer(desk: Desk, weights: Path) -> None:
    _copied(desk, weights)
    rows = [json.dumps({"input_ids": [[1.5, 2.5]]})] * 4
    (desk.folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")

    called = desk.call("init", "weights", "--samples", "rows.jsonl", "--out", "new.yaml")

    assert called.code != 0
    assert not (desk.folder / "weights_model.py").exists()
    assert not (desk.folder / "new.yaml").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("code", ["", "print('of another model')\n"])
def test_a_module_that_is_there_is_used_if_it_is_the_same_and_never_replaced(
    desk: Desk, weights: Path, code: str
) -> None:
    _copied(desk, weights)
    file = desk.folder / "weights_model.py"
    made = module_of_weights(desk.folder / "weights", desk.folder, None)
    file.write_text(code or made.text, encoding="utf-8")
    before = file.read_bytes()
    rows = [json.dumps({"input_ids": [1, 2, row % 5], "attention_mask": [1, 1, 1]}) for row in range(8)]
    (desk.folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")

    called = desk.call("init", "weights", "--samples", "rows.jsonl", "--out", "new.yaml")

    assert called.code == 0, called
    name = "weights_model_2" if code else "weights_model"
    assert load_spec(str(desk.folder / "new.yaml")).spec.model.source == f"{name}:load"
    assert sorted(path.name for path in desk.folder.glob("weights_model*.py")) == sorted({file.name, f"{name}.py"})
    assert file.read_bytes() == before


@pytest.mark.thorough
def test_weights_elsewhere_are_loaded_from_where_they_are(desk: Desk, weights: Path) -> None:
    _texts(desk.folder)

    called = desk.json("init", str(weights), "--samples", "texts.jsonl", "--out", "new.yaml")

    assert called.code == 0, called
    model = load_spec(str(desk.folder / "new.yaml")).spec.model
    assert (model.source, model.files) == ("weights_model:load", [])
    assert any("outside" in note for note in called.data["notes"])
    ran = desk.json(
        "run", "new.yaml", "--target", "onnx-fp32", "--no-promote", "--probes", "none", "--no-benchmark", "--quiet"
    )
    assert ran.code == 0, ran


def _processors() -> dict[str, Any]:
    import transformers

    return {
        "vit": transformers.ViTImageProcessor(size={"height": 32, "width": 32}, image_std=[0.2, 0.3, 0.4]),
        "resnet": transformers.ConvNextImageProcessor(size={"shortest_edge": 32}, crop_pct=0.875),
        "clip": transformers.CLIPImageProcessor(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}),
        "raw": transformers.ViTImageProcessor(
            size={"height": 32, "width": 32}, do_normalize=False, rescale_factor=1 / 127.5
        ),
    }


@pytest.mark.parametrize("kind", ["vit", "resnet", "clip", "raw"])
def test_pictures_are_prepared_as_the_processor_of_the_folder_does(tmp_path: Path, kind: str) -> None:
    processor = _processors()[kind]
    processor.save_pretrained(tmp_path / "weights")
    random = np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    # What is left beside the cut is even: a half is rounded otherwise by some processors.
    sizes = ((50, 64 if kind == "resnet" else 60), (70, 45))
    pictures = [Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in sizes]
    for number, picture in enumerate(pictures):
        picture.save(tmp_path / "pictures" / f"{number}.png")
    text = (tmp_path / "weights" / "preprocessor_config.json").read_text(encoding="utf-8")

    rules = picture_rules_of(tmp_path / "weights", json.loads(text))

    expected = np.concatenate([processor(picture, return_tensors="np")["pixel_values"] for picture in pictures])
    read = np.concatenate([batch.inputs["pixel_values"] for batch in read_pictures(tmp_path / "pictures", rules, 2)])
    assert read.shape == expected.shape
    assert np.abs(read - expected).max() < 0.02 * np.abs(expected).max()


@pytest.mark.parametrize(
    "part",
    [
        {"do_pad": True},
        {"do_resize": False},
        {"size": {"shortest_edge": 32}},
        {"size": {"longest_edge": 32}},
        {"size": {"height": 40, "width": 40}, "do_center_crop": True, "crop_size": 32},
        {"resample": 77},
    ],
)
def test_steps_that_a_spec_cannot_declare_are_refused_with_the_python_that_does_them(part: dict[str, Any]) -> None:
    config = {"size": 32, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    assert picture_rules_of(Path("weights"), config).size == (32, 32)

    with pytest.raises(UsageError) as caught:
        picture_rules_of(Path("weights"), {**config, **part})

    assert "AutoImageProcessor" in caught.value.hint


def test_a_vit_and_a_folder_of_pictures_run_at_the_first_attempt(desk: Desk) -> None:
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=16
    )
    ViTForImageClassification(config).save_pretrained(desk.folder / "weights")  # type: ignore[no-untyped-call]
    _processors()["vit"].save_pretrained(desk.folder / "weights")
    (desk.folder / "pictures").mkdir()
    random = np.random.default_rng(0)
    for number in range(104):
        picture = Image.fromarray(random.integers(0, 256, (40, 48, 3), dtype=np.uint8))
        picture.save(desk.folder / "pictures" / f"{number}.png")

    called = desk.json("init", "weights/", "--samples", "pictures/", "--out", "new.yaml")

    assert called.code == 0, called
    images = load_spec(str(desk.folder / "new.yaml")).spec.samples.images
    assert images is not None
    assert (images.size, images.resize, images.std) == ([32, 32], "exact", [0.2, 0.3, 0.4])
    ran = desk.json(
        "run", "new.yaml", "--target", "onnx-fp32", "--no-promote", "--probes", "none", "--no-benchmark", "--quiet"
    )
    assert ran.code == 0, ran
