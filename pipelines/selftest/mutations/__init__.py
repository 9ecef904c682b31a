"""Mutations of an ONNX model, faults and equivalent rewrites: what the gate is tried on before it is trusted."""
