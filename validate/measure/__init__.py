"""What is measured of outputs: differences, decisions, statistics, and the limits that they are held to."""
