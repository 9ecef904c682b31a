"""Facts about inputs from an ONNX graph: what it compares them with, indexes by them, or keeps constant."""
