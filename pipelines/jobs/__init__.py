"""Run in a child process: one job per file, JSON in, JSON out."""
