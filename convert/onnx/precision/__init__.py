"""Rewrite an FP32 ONNX model to FP16 or BF16, node by node, for `onnx_to_low_precision`."""
