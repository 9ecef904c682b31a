"""Quantize to INT8: choose nodes, run a tool, and count the result."""
