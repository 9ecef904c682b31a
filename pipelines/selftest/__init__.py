"""The selftest: plant faults in the user's own model, and check that the gate catches them."""
