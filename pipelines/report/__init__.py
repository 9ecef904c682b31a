"""The report of a run: what was measured, held against what, and what came of it, for people to read and keep."""
