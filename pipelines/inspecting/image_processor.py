"""Read from preprocessor_config.json how a folder of Hugging Face weights prepares pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paritygate.errors import UsageError
from paritygate.validate.samples.pictures import PictureRules

_INPUT = "pixel_values"
# PIL's numbers.
_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
_BYTE_SCALE, _SLACK = 1 / 255, 1e-9
# From this size on, ConvNeXt's processor resizes both sides to the size, without a crop.
_WARPED_FROM = 384
_CROP_SHARE = 0.875
# These read one number as the shorter side, others as both sides.
_OF_SHORTER = ("CLIP", "ConvNext", "Levit", "MobileNet", "PoolFormer")
# Steps that are not supported here.
_OTHER_STEPS = ("do_pad", "do_thumbnail", "do_align_long_axis", "do_split_image", "do_reduce_labels")


def picture_rules_of(weights: Path, config: Mapping[str, Any]) -> PictureRules:
    """Return how the processor of a folder of weights prepares pictures, from its preprocessor_config.json.

    Raises:
        UsageError: It prepares them by steps that a spec has no keys for.
    """
    try:
        return _rules(config)
    except (KeyError, TypeError, ValueError) as err:
        why = err.args[0] if isinstance(err, _CannotBeWrittenError) else f"a key is missing or unknown ({err})"
        msg = f"the pictures of {weights} are prepared by steps that samples.images has no keys for: {why}"
        line = f"AutoImageProcessor.from_pretrained({str(weights)!r})(pictures, return_tensors='np')"
        raise UsageError(msg, hint=f"yield pixel_values from a function, --samples rows:rows, with {line}") from err


class _CannotBeWrittenError(ValueError):
    """A step has no key in a spec."""


def _rules(config: Mapping[str, Any]) -> PictureRules:
    steps = [step for step in _OTHER_STEPS if config.get(step)]
    if steps:
        raise _CannotBeWrittenError(", ".join(steps))
    has_values = config.get("do_normalize", True)
    mean = tuple(map(float, config["image_mean"])) if has_values else (0.0,)
    std = tuple(map(float, config["image_std"])) if has_values else (1.0,)
    scale = float(config.get("rescale_factor", _BYTE_SCALE)) if config.get("do_rescale", True) else 1.0
    colours = "L" if has_values and len(mean) == 1 else "BGR" if config.get("do_flip_channel_order") else "RGB"
    return PictureRules(
        input=_INPUT,
        channels=colours,  # type: ignore[arg-type]  # one of the three
        resample=_FILTERS[config.get("resample", 2)],  # type: ignore[arg-type]  # one of the four
        scale=None if abs(scale - _BYTE_SCALE) < _SLACK else scale,
        mean=mean,
        std=std,
        **_sizes(config),
    )


def _sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    if not config.get("do_resize", True):
        raise _CannotBeWrittenError("do_resize is off, so that pictures keep their sizes")
    size, kind = config["size"], str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    if not isinstance(size, Mapping):
        size = {"shortest_edge": size} if kind.startswith(_OF_SHORTER) else {"height": size, "width": size}
    cut = config.get("crop_size") if config.get("do_center_crop") else None
    if cut is not None and not isinstance(cut, Mapping):
        cut = {"height": cut, "width": cut}
    if "height" in size and "width" in size:
        if cut is not None and any(cut[side] != size[side] for side in ("height", "width")):
            raise _CannotBeWrittenError("do_center_crop cuts a picture that was resized without its proportions")
        return {"resize": "exact", "size": (int(size["height"]), int(size["width"])), "crop": "none"}
    shorter = int(size["shortest_edge"])
    if kind.startswith("ConvNext"):
        if shorter >= _WARPED_FROM:
            return {"resize": "exact", "size": (shorter, shorter), "crop": "none"}
        share = float(config.get("crop_pct") or _CROP_SHARE)
        return {"shorter": int(shorter / share), "size": (shorter, shorter)}
    if cut is None:
        msg = "pictures are resized by their shorter side and not cut, so they keep different sizes"
        raise _CannotBeWrittenError(msg)
    return {"shorter": shorter, "size": (int(cut["height"]), int(cut["width"]))}
