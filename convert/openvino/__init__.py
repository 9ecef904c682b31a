"""Convert ONNX models to OpenVINO."""
