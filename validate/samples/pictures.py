"""A folder of pictures as samples, prepared for the model as declared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from paritygate.batch import Batch
from paritygate.errors import InputFileError
from paritygate.text import first_line, row_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

# The stratum that holds the subfolder of a picture.
_FOLDER = "folder"
_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_BYTE = 255


class PictureRules(Struct, frozen=True, kw_only=True):
    """The steps from a picture to the values of an input, in this order; ValueError if they contradict one another.

    `channels` are in their order; `L` is grey. `resize` keeps proportions with `shorter`, not with `exact`. With
    `shorter`, that is the length of the shorter side afterwards; None for the smallest that covers `size`. Where a
    picture shrinks, all of it counts in `resample`. `size` is height and width of the result. `crop` cuts out the
    middle with `center`; `none` needs `exact`. Bytes are multiplied by `scale`, 1/255 if None, then less `mean`, then
    divided by `std`, one value a channel or one for all. The dtype `uint8` keeps the bytes.
    """

    input: str
    size: tuple[int, int]
    channels: Literal["RGB", "BGR", "L"] = "RGB"
    resize: Literal["shorter", "exact"] = "shorter"
    shorter: int | None = None
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    crop: Literal["center", "none"] = "center"
    scale: float | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    dtype: Literal["float32", "uint8"] = "float32"
    layout: Literal["NCHW", "NHWC"] = "NCHW"

    def __post_init__(self) -> None:
        if reason := self._contradiction():
            raise ValueError(reason)

    def _contradiction(self) -> str | None:
        if min(self.size) < 1:
            return f"size {list(self.size)} is not allowed (allowed: 1 and more)"
        if self.crop == "none" and self.resize == "shorter":
            return "crop: none leaves pictures of different sizes (allowed with it: resize: exact)"
        if self.shorter is not None and (self.resize != "shorter" or self.shorter < max(self.size)):
            return f"shorter: {self.shorter} needs resize: shorter, and {max(self.size)} or more to cut size out of"
        if self.dtype == "uint8" and (self.scale, self.mean, self.std) != (None, (0.0,), (1.0,)):
            return "dtype: uint8 keeps the bytes, and leaves no place for scale, mean and std"
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in {1, len(self.channels)}:
                return f"{name} has {len(values)} values (allowed: 1, or one for each of {self.channels})"
        return "std holds a 0, which nothing is divided by" if 0 in self.std else None


def read_pictures(folder: Path, rules: PictureRules, batch_size: int) -> Iterator[Batch]:
    """Yield the pictures below a folder, in the order of their paths, which are their ids."""
    import numpy as np

    names = iter(_names(folder))
    while chunk := list(itertools.islice(names, batch_size)):
        yield Batch(
            inputs={rules.input: np.stack([_read(folder, name, rules) for name in chunk])},
            ids=chunk,
            strata={_FOLDER: [str(Path(name).parent) for name in chunk]},
        )


def holds_pictures(folder: Path) -> bool:
    """Return whether there is a picture below a folder."""
    return any(path.suffix.lower() in _SUFFIXES and not path.name.startswith(".") for path in folder.rglob("*"))


def sizes_of_pictures(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield height and width of the pictures below a folder, without decoding pixels."""
    for name in _names(folder):
        yield _size_of(folder, name)


def _size_of(folder: Path, name: str) -> tuple[int, int]:
    from PIL import Image

    try:
        with Image.open(folder / name) as image:
            return image.height, image.width
    except Exception as err:  # as in _read
        raise _unreadable(folder, name, err) from err


def _names(folder: Path) -> Sequence[str]:
    names = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.name.startswith(".") or path.is_dir():
            continue
        # Opening a pipe would wait.
        if path.suffix.lower() not in _SUFFIXES or not path.is_file():
            msg = f"samples {folder}: {name!r} is not a picture (allowed: {', '.join(_SUFFIXES)})"
            raise InputFileError(msg, hint="move it out of the folder, because no row is left out silently")
        names.append(name)
    return sorted(names)


def _read(folder: Path, name: str, rules: PictureRules) -> NDArray[np.generic]:
    from PIL import Image, ImageOps

    try:
        with Image.open(folder / name) as image:
            if image.mode.startswith(("I", "F")):
                msg = f"its pixels have the mode {image.mode} (expected bytes)"
                raise ValueError(msg)  # noqa: TRY301 - one message for all that is wrong with a picture
            upright = ImageOps.exif_transpose(image).convert("L" if rules.channels == "L" else "RGB")
    except Exception as err:  # damaged pictures make decoders raise whatever they raise
        raise _unreadable(folder, name, err) from err
    return _values(_fitted(upright, rules), rules)


def _unreadable(folder: Path, name: str, err: Exception) -> InputFileError:
    reason = first_line(err)
    msg = f"samples {folder}: the picture of {row_name(name)} cannot be read: {reason}"
    return InputFileError(msg, hint="replace the picture, or remove it from the folder")


def _fitted(image: Image.Image, rules: PictureRules) -> Image.Image:
    """Return the picture resized and cut; sizes are rounded as torchvision rounds them."""
    from PIL.Image import Resampling

    height, width = rules.size
    if rules.resize == "exact":
        wanted = (width, height)
    elif rules.shorter is not None or height == width:
        shorter = rules.shorter or height
        wanted = (
            max(shorter, shorter * image.width // image.height),
            max(shorter, shorter * image.height // image.width),
        )
    elif image.width * height > image.height * width:
        wanted = (max(width, height * image.width // image.height), height)
    else:
        wanted = (width, max(height, width * image.height // image.width))
    resized = image.resize(wanted, Resampling[rules.resample.upper()])
    left, top = round((resized.width - width) / 2), round((resized.height - height) / 2)
    return resized.crop((left, top, left + width, top + height))


def _values(image: Image.Image, rules: PictureRules) -> NDArray[np.generic]:
    import numpy as np

    values: NDArray[np.generic] = np.array(image, dtype=np.uint8).reshape(*rules.size, -1)
    if rules.channels == "BGR":
        values = values[..., ::-1]
    if rules.dtype == "float32":
        scale = np.float32(1 / _BYTE if rules.scale is None else rules.scale)
        scaled = values.astype(np.float32) * scale
        values = (scaled - np.array(rules.mean, np.float32)) / np.array(rules.std, np.float32)
    return np.ascontiguousarray(values.transpose(2, 0, 1) if rules.layout == "NCHW" else values)
