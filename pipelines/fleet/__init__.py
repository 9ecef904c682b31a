"""Many specs in one command: each is run by a process of its own, several at a time."""
