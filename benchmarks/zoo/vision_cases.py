"""Architectures of timm and torchvision, small and with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from case import Case, normal
from lively import seeded, settled
from torchvision_on_cpu import make_importable

__all__ = ["VISION_CASES"]

PICTURES = {"x": normal("batch 3 64 64")}
BATCH = (16, 3, 64, 64)


def timm_model(name: str, **options: Any) -> Callable[[], Any]:
    """Return what builds a model of timm."""
    return settled(seeded(lambda: _timm(name, **options)), BATCH)


def _timm(name: str, **options: Any) -> Any:
    make_importable()
    import timm

    return timm.create_model(name, pretrained=False, num_classes=5, **options)


def torchvision_model(name: str, **options: Any) -> Callable[[], Any]:
    """Return what builds a model of torchvision."""

    def build() -> Any:
        make_importable()
        import torchvision

        return getattr(torchvision.models, name)(weights=None, num_classes=5, **options)

    return settled(seeded(build), BATCH)


def timm_case(name: str, family: str = "picture classifier", **options: Any) -> Case:
    """Return a case of timm."""
    return Case(name=f"timm-{name}", family=family, build=timm_model(name, **options), inputs=PICTURES)


VISION_CASES = [
    timm_case("resnet10t"),
    timm_case("efficientnet_b0"),
    timm_case("mixer_s32_224", img_size=64),
    timm_case("gmlp_s16_224", img_size=64),
    timm_case("edgenext_xx_small"),
    timm_case("ghostnet_050"),
    timm_case("nf_regnet_b0"),
    timm_case("xcit_nano_12_p16_224", img_size=64),
    timm_case("coat_tiny", img_size=64),
    # Its attention takes blocks of 8 x 8 of what is left of a picture after a sixteenth and a thirty-second.
    Case(
        name="timm-halonet26t",
        family="picture classifier",
        build=settled(seeded(lambda: _timm("halonet26t")), (4, 3, 256, 256)),
        inputs={"x": normal("batch 3 256 256")},
    ),
    timm_case("maxvit_rmlp_pico_rw_256", img_size=64),
    Case(
        name="torchvision-squeezenet",
        family="picture classifier",
        inputs=PICTURES,
        build=torchvision_model("squeezenet1_1"),
    ),
    Case(
        name="torchvision-mnasnet", family="picture classifier", inputs=PICTURES, build=torchvision_model("mnasnet0_5")
    ),
    Case(
        name="torchvision-lraspp",
        family="segmentation",
        inputs={"input": normal("batch 3 64 64")},
        outputs=("out",),
        build=settled(seeded(lambda: _lraspp()), BATCH),  # noqa: PLW0108 - it is defined below
    ),
]


def _lraspp() -> Any:
    make_importable()
    import torchvision

    return torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
