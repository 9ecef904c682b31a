"""The selftest: the gate tried on faults that are planted into the user's own model, before it is trusted."""
