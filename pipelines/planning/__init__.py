"""Show what a run would do."""
