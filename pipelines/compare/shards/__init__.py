"""A comparison in parts: each machine measures some batches, and the parts together give the verdict."""
