"""What the terminal shows of each result, a file for each subject."""
