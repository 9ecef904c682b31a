"""Measurements of outputs: differences, decisions, statistics, and the limits that apply to them."""
