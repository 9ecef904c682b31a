"""The probes: each derives inputs that the samples do not hold, one a file."""
