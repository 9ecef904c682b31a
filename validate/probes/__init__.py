"""Probes: inputs derived from the samples, on which a correct conversion gives the same outputs as the reference."""
