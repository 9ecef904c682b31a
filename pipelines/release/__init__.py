"""Releases: which variant is chosen, and the repository that it goes to."""
