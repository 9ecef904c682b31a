"""Build TensorRT and TensorRT-RTX engines: the network of an ONNX model, its dtypes, and the build."""
