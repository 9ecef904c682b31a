"""Which variant of a run is released: what it was measured to be, the limits, the preference, and the reason."""
