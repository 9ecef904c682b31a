"""Work that was done before, with the same, is taken over: what each child job read is compared by content."""
