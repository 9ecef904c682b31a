"""The probes, one per file: each derives inputs that the samples do not hold."""
