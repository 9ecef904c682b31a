"""Find the operators at which two ONNX models part, by the values of their inner tensors."""
