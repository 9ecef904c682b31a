"""Commands that do a spec's work: all of it, or one stage."""
