"""One task by many workers: processes of this machine, or those of a Ray cluster."""
