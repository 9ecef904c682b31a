"""The drawings of one output: its differences, actual against expected values, and the places of differences."""
