"""The stages of a run, one per file: each is a function over a spec and a run folder."""
