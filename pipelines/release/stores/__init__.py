"""Where a repository keeps its files: a folder on disk, or a prefix in an object store."""
