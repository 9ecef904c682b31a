"""Reads ONNX files: the file with its external data, its graph and its functions."""
