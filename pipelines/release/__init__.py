"""Releases: promoting what was chosen, and the repository that it goes to."""
