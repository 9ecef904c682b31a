"""Runners: one runtime per file, each maps a batch of named arrays to named arrays."""
