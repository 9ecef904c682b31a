"""Rows that fail, and that the reference itself answers otherwise."""
