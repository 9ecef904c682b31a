"""Commands about runs on disk: which there are, removing them, and a run as one file."""
