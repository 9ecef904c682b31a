"""Find how the pictures of a folder become the input of a model: as the model declares, or by a guess."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from paritygate.backends import require_backend
from paritygate.errors import ParitygateError, UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.source import SourceKind
from paritygate.pipelines.inspecting.reading import ModelFacts
from paritygate.signature import TensorSpec
from paritygate.text import first_line
from paritygate.validate.samples.pictures import PictureRules, sizes_of_pictures

_RANK = 4
_COLOURS = {1: "L", 3: "RGB"}
# By far the most published networks were trained on pictures normalised so.
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Layers of Keras that prepare pictures inside the model.
_PREPARING = frozenset({"Rescaling", "Normalization"})
# Sides of published networks, the most usual first; the pictures' own size comes before.
_SIDES = (224, 299, 384, 256, 192, 160, 128, 96, 64, 32, 28)
_PICTURES_LOOKED_AT = 64
_LARGEST_SIDE = 4096
_FILTERS = frozenset({"nearest", "bilinear", "bicubic", "lanczos"})


class PictureGuess(Struct, frozen=True, kw_only=True):
    """Rules that prepare pictures, and the origin of size and values."""

    rules: PictureRules
    why: str


def guess_pictures(loaded: LoadedModel, facts: ModelFacts, folder: Path, name: str | None) -> PictureGuess:
    """Return how the pictures below a folder become the one input of a model.

    `name` is the parameter, if the model does not declare its inputs.

    Raises:
        UsageError: The model has no input of pictures, or several, or does not take any usual size.
        InputFileError: A picture cannot be read.
    """
    require_backend("pillow")
    sizes = sorted(set(itertools.islice(sizes_of_pictures(folder), _PICTURES_LOOKED_AT)))
    own = sizes[0] if len(sizes) == 1 and max(sizes[0]) <= _LARGEST_SIDE else None
    guess = _guess(loaded, facts, folder, name, own)
    if len(sizes) <= 1:
        return guess
    seen = " to ".join(f"{height}x{width}" for height, width in (sizes[0], sizes[-1]))
    resized = f"the pictures have {len(sizes)} sizes ({seen}): each is resized, and its middle is cut out"
    return replace(guess, why=f"{guess.why}; {resized}")


def _guess(
    loaded: LoadedModel, facts: ModelFacts, folder: Path, name: str | None, own: tuple[int, int] | None
) -> PictureGuess:
    if facts.signature is not None:
        return _of_declared(loaded, facts, _input(facts.signature.inputs, folder), own)
    if name is None or loaded.ref.kind is not SourceKind.TORCH:
        msg = f"{loaded.ref.text} does not declare its inputs, so the size of the pictures in {folder} is unknown"
        raise UsageError(msg, hint="write the spec by hand, with samples.images: see docs/spec.md")
    return _of_module(loaded.model, name, own)


def _input(specs: tuple[TensorSpec, ...], folder: Path) -> TensorSpec:
    fitting = [spec for spec in specs if spec.shape is not None and len(spec.shape) == _RANK]
    if len(fitting) == len(specs) == 1:
        return fitting[0]
    seen = ", ".join(map(str, specs))
    msg = (
        f"the pictures in {folder} fit no input (got {seen}, expected one input of pictures, such as [N, 3, 224, 224])"
    )
    raise UsageError(msg, hint="give real inputs as arrays: --samples inputs.npz")


def _of_declared(loaded: LoadedModel, facts: ModelFacts, spec: TensorSpec, own: tuple[int, int] | None) -> PictureGuess:
    shape = spec.shape or ()
    is_last = shape[3] in _COLOURS and shape[1] not in _COLOURS
    channels = shape[3] if is_last else shape[1]
    if channels not in _COLOURS and not isinstance(channels, int):
        # TensorFlow has channels last, all others first.
        is_last = loaded.ref.kind in {SourceKind.KERAS, SourceKind.SAVEDMODEL}
        channels = 3
    if channels not in _COLOURS:
        msg = f"pictures have 1 or 3 channels, but the model expects {spec}"
        raise UsageError(msg, hint="give real inputs as arrays: --samples inputs.npz")
    sides = shape[1:3] if is_last else shape[2:4]
    size, why = _size(sides, own)
    rules = PictureRules(
        input=spec.name,
        size=size,
        channels="L" if channels == 1 else "RGB",
        layout="NHWC" if is_last else "NCHW",
        dtype="uint8" if spec.dtype == "uint8" else "float32",
    )
    if rules.dtype == "uint8":
        return PictureGuess(rules=rules, why=f"{why}; the model takes bytes")
    if _PREPARING & facts.counts.keys():
        return PictureGuess(rules=replace(rules, scale=1.0), why=f"{why}; values 0 to 255, as the model scales itself")
    if is_last or channels == 1:
        return PictureGuess(rules=rules, why=f"{why}; values 0 to 1")
    return _imagenet(rules, why)


def _size(sides: tuple[int | str | None, ...], own: tuple[int, int] | None) -> tuple[tuple[int, int], str]:
    numbers = [side for side in sides if isinstance(side, int)]
    if len(numbers) == len(sides):
        return (numbers[0], numbers[1]), "size as the model declares it"
    if own is not None:
        return own, "size of the pictures, which all have the same"
    return (_SIDES[0], _SIDES[0]), f"size {_SIDES[0]}, because neither the model nor the pictures have one size"


def _imagenet(rules: PictureRules, why: str) -> PictureGuess:
    prepared = replace(rules, mean=_IMAGENET_MEAN, std=_IMAGENET_STD)
    return PictureGuess(rules=prepared, why=f"{why}; mean and std of ImageNet")


def _of_module(module: Any, name: str, own: tuple[int, int] | None) -> PictureGuess:  # noqa: ANN401 - a torch.nn.Module
    """Return rules for a PyTorch module: declared as in timm or transformers, else found by trying sizes."""
    rules = PictureRules(input=name, size=(1, 1), channels="L" if _in_channels(module) == 1 else "RGB")
    declared = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None)
    if isinstance(declared, Mapping) and _is_size(declared.get("input_size")):
        return PictureGuess(rules=_of_timm(rules, declared), why="as the model declares it in its pretrained_cfg")
    side = getattr(getattr(module, "config", None), "image_size", None)
    pair = side if isinstance(side, list | tuple) else (side, side)
    declared_size = [tuple(pair)] if len(pair) == 2 and all(isinstance(item, int) for item in pair) else []  # noqa: PLR2004 - height and width
    sizes = [*declared_size, *([own] if own else []), *((side, side) for side in _SIDES)]
    reason = ""
    for size in dict.fromkeys(sizes):
        tried = replace(rules, size=size)
        reason = _why_not(module, tried) or ""
        if not reason:
            why = "size as its config declares it" if [size] == declared_size else f"size {size[0]} x {size[1]} runs"
            return _imagenet(tried, why) if rules.channels == "RGB" else PictureGuess(rules=tried, why=why)
    listed = ", ".join(f"{height}x{width}" for height, width in dict.fromkeys(sizes))
    msg = f"the model accepts pictures of no usual size (tried {listed}): {reason}"
    raise UsageError(msg, hint="give real inputs as arrays: --samples inputs.npz")


def _of_timm(rules: PictureRules, declared: Mapping[str, Any]) -> PictureRules:
    """Return how timm prepares pictures for the model at validation."""
    channels, height, width = declared["input_size"]
    share = float(declared.get("crop_pct") or 1.0)
    resample = declared.get("interpolation")
    return replace(
        rules,
        channels="L" if channels == 1 else "RGB",
        size=(height, width),
        shorter=int(max(height, width) / share) if 0 < share <= 1 else None,
        resample=resample if resample in _FILTERS else "bilinear",
        mean=tuple(declared.get("mean") or (0.0,)),
        std=tuple(declared.get("std") or (1.0,)),
    )


def _is_size(size: object) -> bool:
    is_triple = isinstance(size, list | tuple) and len(size) == _RANK - 1
    return is_triple and all(isinstance(item, int) and 0 < item <= _LARGEST_SIDE for item in size)  # type: ignore[attr-defined]


def _in_channels(module: Any) -> int:  # noqa: ANN401 - a torch.nn.Module
    """Return how many channels the first convolution takes; 3 where there is none."""
    import torch

    convolutions = (part for part in module.modules() if isinstance(part, torch.nn.Conv2d))
    first = next(convolutions, None)
    return 3 if first is None else int(first.in_channels)


def _why_not(module: Any, rules: PictureRules) -> str | None:  # noqa: ANN401 - a torch.nn.Module
    """Return why a module refuses pictures of a size, or None."""
    from paritygate.models.torch.module import answer_of

    tensors = itertools.chain(module.parameters(), module.buffers())
    dtype = next((str(item.dtype) for item in tensors if item.is_floating_point()), "torch.float32")
    kind = np.float16 if dtype == "torch.float16" else np.float32
    try:
        answer_of(module, {rules.input: np.zeros((2, len(rules.channels), *rules.size), kind)})
    except ParitygateError:
        raise
    except Exception as err:  # noqa: BLE001 - a module raises whatever it raises
        return first_line(err)
    return None
