"""Choose the variants of a run to release, by measurements, limits and preference, with a reason."""
