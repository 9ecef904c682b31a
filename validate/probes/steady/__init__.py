"""Whether the reference has one answer to rows that were made up."""
