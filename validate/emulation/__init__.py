"""Emulation of a precision that this machine does not compute in: an ONNX graph whose values are really rounded."""
