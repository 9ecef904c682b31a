"""Diagnose a candidate: where it parts from its reference."""
