"""Benchmark the source and its variants."""
