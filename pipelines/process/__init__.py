"""Child processes with limits of time and memory: the parent's side and the child's."""
