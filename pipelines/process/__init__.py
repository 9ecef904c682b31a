"""Starts child processes with a time limit, and is what they run."""
