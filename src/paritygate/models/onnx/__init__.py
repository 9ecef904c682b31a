"""Read ONNX files with their external data, graphs and functions."""
