"""Convert ONNX models to other ONNX models: optimised, in a lower precision, with fixed shapes."""
