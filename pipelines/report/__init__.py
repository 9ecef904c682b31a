"""The report of a run, for people: measurements, limits and outcomes."""
