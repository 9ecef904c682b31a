"""What each format is not run on, as far as that is known without trying."""

from __future__ import annotations

import pytest

from paritygate.formats import why_not_run
from paritygate.precision import Variant


@pytest.mark.parametrize(
    ("variant", "device", "reason"),
    [
        ("onnx-fp32", "cpu", None),
        ("onnx-fp32", "cuda", None),
        ("onnx-bf16", "cpu", "ONNX Runtime's CPU provider has no BF16 operators"),
        ("onnx-bf16", "cuda", None),
        ("tensorrt-fp16", "cpu", "engines run on NVIDIA GPUs only"),
        ("tensorrt-rtx-fp16", "cpu", "engines run on NVIDIA GPUs only"),
        ("tensorrt-fp16", "cuda", None),
        ("openvino-fp32", "cpu", None),
        ("openvino-fp32", "cuda", "OpenVINO is run on the CPU only"),
        ("tflite-fp16", "cpu", None),
        ("tflite-fp16", "cuda", "LiteRT is run on the CPU only"),
        ("torch-fp32", "cuda", None),
    ],
)
def test_what_is_not_run_where(variant: str, device: str, reason: str | None) -> None:
    assert why_not_run(Variant.parse(variant), device) == reason
