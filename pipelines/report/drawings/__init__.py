"""What is drawn of one output: its differences, actual against expected values, and where the differences are."""
