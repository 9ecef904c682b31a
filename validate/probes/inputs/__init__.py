"""The roles of a model's inputs, the survey of its samples, and the probes' view of both."""
