"""What an ONNX graph says about inputs: what it compares them with, indexes by them, keeps constant."""
