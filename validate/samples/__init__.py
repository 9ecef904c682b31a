"""Reads samples in batches, splits them, and feeds them to both sides of a comparison."""
