"""The chart of speed against difference."""
