"""The limits that a user declares, and channels that no limit can judge."""
