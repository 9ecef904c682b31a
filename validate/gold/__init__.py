"""Quality against known answers: a metric of reference and candidate, and what the candidate may lose of it."""
