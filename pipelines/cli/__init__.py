"""The command line: the group, its options, what the terminal shows, and the commands."""
