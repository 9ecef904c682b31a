"""Reuse earlier work: what each child job read is compared by content."""
