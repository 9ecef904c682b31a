"""Decide whether the reference has a single output on generated rows."""
