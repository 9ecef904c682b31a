"""Compares a candidate's outputs with the reference's, and judges the differences."""
