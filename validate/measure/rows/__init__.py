"""Figures of rows: which of them differ, what they share, and rows that wait for more."""
