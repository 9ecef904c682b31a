"""What the inputs of a model are, what its samples hold of them, and what a probe makes of both."""
