"""Quantizing to INT8: what is quantized, by which tool, and what came of it."""
