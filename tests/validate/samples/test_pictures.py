"""A folder of pictures is prepared as the rules say, with the numbers that the usual image processors give."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.errors import MissingBackendError, ParitygateError
from paritygate.validate.samples.pictures import PictureRules
from paritygate.validate.samples.samples import SampleSource, open_samples

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from paritygate.batch import Batch

Image = pytest.importorskip("PIL.Image", reason="the extra `images` is not installed")

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _smooth(height: int, width: int) -> NDArray[np.uint8]:
    """Return a picture whose colours change slowly, so that a byte more or less is what rounding makes."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / 9 + 1), np.cos(y / 7), np.sin((x + y) / 11)]
    return np.stack([127 + 120 * wave for wave in waves], axis=-1).round().astype(np.uint8)


def _save(folder: Path, name: str, values: NDArray[np.uint8], **options: Any) -> None:  # noqa: ANN401 - Pillow's own
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(folder / name, **options)


def _read(folder: Path, **rules: Any) -> list[Batch]:  # noqa: ANN401 - the fields of the rules
    images = PictureRules(**{"input": "x", "size": (8, 8), **rules})
    return list(open_samples(SampleSource(text=".", folder=folder, batch_size=2, images=images, key="samples"))())


def _weights(size: int, target: int) -> NDArray[np.float64]:
    """Return the weights of bilinear interpolation with smoothing: a triangle as wide as the scale."""
    scale = size / target
    width = max(scale, 1.0)
    centres = (np.arange(target) + 0.5) * scale
    weights = np.maximum(0, 1 - np.abs(np.arange(size) + 0.5 - centres[:, None]) / width)
    return weights / weights.sum(axis=1, keepdims=True)


def _expected(values: NDArray[np.uint8], shorter: int, size: int) -> NDArray[np.float64]:
    """Return a picture in the shape NCHW after resize, crop and normalisation, by the formulas."""
    height, width = values.shape[:2]
    wanted = [int(shorter * side / min(height, width)) for side in (height, width)]
    resized = np.einsum("ah,bw,hwc->abc", _weights(height, wanted[0]), _weights(width, wanted[1]), values.astype(float))
    top, left = (round((side - size) / 2) for side in wanted)
    cut = resized[top : top + size, left : left + size]
    return ((cut / 255 - np.array(_MEAN)) / np.array(_STD)).transpose(2, 0, 1)[None]


@pytest.mark.parametrize(("height", "width"), [(90, 61), (61, 90), (20, 33)])
def test_the_numbers_are_those_of_the_formulas(tmp_path: Path, height: int, width: int) -> None:
    _save(tmp_path, "a.png", _smooth(height, width))

    (batch,) = _read(tmp_path, size=(32, 32), shorter=37, mean=_MEAN, std=_STD)

    found = batch.inputs["x"]
    assert (found.dtype, found.shape) == (np.float32, (1, 3, 32, 32))
    # Pillow rounds to bytes after each of the two directions.
    assert np.abs(found - _expected(_smooth(height, width), 37, 32)).max() < 1.6 / 255 / min(_STD)


def test_the_numbers_are_those_of_an_image_processor_of_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil

    # Below 384, this one resizes the shorter side to size / crop_pct, and cuts the centre out.
    processor = ConvNextImageProcessorPil(
        size={"shortest_edge": 32}, crop_pct=0.875, resample=2, image_mean=list(_MEAN), image_std=list(_STD)
    )
    _save(tmp_path, "a.png", _smooth(90, 61))

    (batch,) = _read(tmp_path, size=(32, 32), shorter=math.floor(32 / 0.875), mean=_MEAN, std=_STD)

    expected = processor(Image.open(tmp_path / "a.png"), return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(batch.inputs["x"], expected, atol=1e-5)


def test_exact_bytes_come_through_in_each_order_of_colours_and_axes(tmp_path: Path) -> None:
    values = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
    _save(tmp_path, "a.png", values)

    def read(**rules: Any) -> NDArray[np.generic]:  # noqa: ANN401 - the fields of the rules
        return _read(tmp_path, dtype="uint8", **rules)[0].inputs["x"]

    np.testing.assert_array_equal(read(layout="NHWC"), values[None], strict=True)
    np.testing.assert_array_equal(read(layout="NCHW"), values.transpose(2, 0, 1)[None], strict=True)
    np.testing.assert_array_equal(read(layout="NHWC", channels="BGR"), values[None, ..., ::-1], strict=True)
    grey = np.round(values @ np.array([0.299, 0.587, 0.114]))
    assert np.abs(read(layout="NHWC", channels="L")[0, ..., 0].astype(float) - grey).max() <= 1


def test_scale_mean_and_std_are_applied_in_this_order(tmp_path: Path) -> None:
    _save(tmp_path, "a.png", np.full((8, 8, 3), 100, np.uint8))

    (batch,) = _read(tmp_path, scale=0.5, mean=(10.0, 20.0, 30.0), std=(2.0,))

    assert batch.inputs["x"][0, :, 0, 0].tolist() == [20, 15, 10]


@pytest.mark.parametrize(("height", "width"), [(20, 30), (30, 20), (9, 40)])
def test_a_size_that_is_no_square_is_covered(tmp_path: Path, height: int, width: int) -> None:
    _save(tmp_path, "a.png", np.full((height, width, 3), 255, np.uint8))

    (batch,) = _read(tmp_path, size=(8, 12))

    assert batch.inputs["x"].shape == (1, 3, 8, 12)
    # Where the cut went beyond the picture, black would come in.
    assert batch.inputs["x"].min() == 1


def test_an_exact_resize_keeps_the_whole_picture(tmp_path: Path) -> None:
    values = np.zeros((16, 32, 3), np.uint8)
    values[:, 16:] = 255
    _save(tmp_path, "a.png", values)

    (batch,) = _read(tmp_path, resize="exact", crop="none", resample="nearest", dtype="uint8")

    assert batch.inputs["x"][0, 0, 0].tolist() == [0] * 4 + [255] * 4


def test_a_picture_is_turned_upright_as_its_exif_data_says(tmp_path: Path) -> None:
    values = np.zeros((8, 8, 3), np.uint8)
    values[:, :4] = 255
    exif = Image.Exif()
    # Turned by 90 degrees clockwise, what is on the left comes to the top.
    exif[0x0112] = 6
    _save(tmp_path, "a.png", values, exif=exif)

    (batch,) = _read(tmp_path, dtype="uint8")

    assert batch.inputs["x"][0, 0, :, 0].tolist() == [255] * 4 + [0] * 4


def test_rows_are_sorted_paths_and_the_subfolder_is_a_stratum(tmp_path: Path) -> None:
    for name in ("dog/1.png", "cat/2.PNG", "cat/1.bmp", "top.png"):
        _save(tmp_path, name, _smooth(8, 8))
    (tmp_path / ".DS_Store").write_bytes(b"")

    batches = _read(tmp_path)

    assert [row for batch in batches for row in batch.ids] == ["cat/1.bmp", "cat/2.PNG", "dog/1.png", "top.png"]
    assert [value for batch in batches for value in batch.strata["folder"]] == ["cat", "cat", "dog", "."]


def test_a_damaged_picture_is_named(tmp_path: Path) -> None:
    _save(tmp_path, "a.png", _smooth(64, 64))
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:300])

    with pytest.raises(ParitygateError, match=r"the picture of row 'a.png' cannot be read: ") as caught:
        _read(tmp_path)

    assert caught.value.exit_code == 2


def test_a_picture_of_more_than_bytes_is_refused(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(tmp_path / "a.png")

    with pytest.raises(ParitygateError, match=r"row 'a.png' cannot be read: its pixels have the mode I;16"):
        _read(tmp_path)


def test_a_file_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("cat")

    with pytest.raises(ParitygateError, match=r"'classes.txt' is not a picture \(allowed: .bmp, ") as caught:
        _read(tmp_path)

    assert caught.value.exit_code == 2


def test_a_pipe_among_pictures_is_not_waited_at(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")

    with pytest.raises(ParitygateError, match=r"'a.png' is not a picture"):
        _read(tmp_path)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"crop": "none"}, "crop: none leaves pictures of different sizes"),
        ({"shorter": 4}, "shorter: 4 needs resize: shorter, and 8 or more to cut size out of"),
        ({"dtype": "uint8", "mean": (0.5,)}, "dtype: uint8 keeps the bytes"),
        ({"mean": (0.5, 0.5)}, r"mean has 2 values \(allowed: 1, or one for each of RGB\)"),
        ({"std": (0.0,)}, "std holds a 0"),
        ({"size": (0, 8)}, r"size \[0, 8\] is not allowed"),
    ],
)
def test_rules_that_contradict_one_another_are_refused(tmp_path: Path, rules: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _read(tmp_path, **rules)


def test_rules_for_what_is_no_folder_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    images = PictureRules(input="x", size=(8, 8))

    with pytest.raises(
        ParitygateError, match=r"samples.images needs a folder of pictures, but 'x.npy' is not a folder"
    ):
        open_samples(SampleSource(text="x.npy", folder=tmp_path, images=images, key="samples"))


def test_without_pillow_the_command_that_installs_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(MissingBackendError, match="pillow is needed to read pictures as samples") as caught:
        _read(tmp_path)

    assert caught.value.hint is not None
    assert "[images]" in caught.value.hint
