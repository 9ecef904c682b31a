"""Mutations of an ONNX model: faults that the gate must catch, and equivalent rewrites that it must pass."""
