"""Converts ONNX models to OpenVINO."""
