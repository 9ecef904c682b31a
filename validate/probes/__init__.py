"""Probes: inputs that users do not bring, derived from those that they do, which a right conversion answers alike."""
