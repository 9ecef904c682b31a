"""Building TensorRT and TensorRT-RTX engines: the network that ONNX becomes, what it computes in, and the build."""
