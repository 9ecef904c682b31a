"""Runs TensorRT and TensorRT-RTX engines."""
