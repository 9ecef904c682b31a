"""Describe builds and records of TensorRT and TensorRT-RTX engines, and open the library behind both."""
