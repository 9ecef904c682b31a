"""Records what the reference answers, how its outputs are distributed, and how far it agrees with itself."""
