"""What each command prints of its result, a file for each subject."""
