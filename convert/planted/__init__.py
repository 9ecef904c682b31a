"""Faults planted into an ONNX model, and innocent rewrites of it: what a gate is tried on before it is trusted."""
