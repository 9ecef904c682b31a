"""Commands of the repository: releasing, moving aliases, and looking at what was released."""
