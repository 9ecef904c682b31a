"""The terminal's view of each result, one file per subject."""
