"""Reads a spec: its schema, its YAML, its errors and its targets."""
