"""Rewriting an FP32 ONNX model to FP16 or BF16, node by node; `low_precision` is the way in."""
