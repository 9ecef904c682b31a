"""Figures of a command for Prometheus, and those that a Triton has of itself."""
