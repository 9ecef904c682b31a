"""Find past runs by a short name, list them, and remove those that are not needed."""
