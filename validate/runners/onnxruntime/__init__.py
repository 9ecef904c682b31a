"""Runs ONNX models in ONNX Runtime."""
