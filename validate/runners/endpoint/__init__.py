"""Runners of models that a server answers for."""
