"""The run folder and its stages: export, build, record, validate, and the evidence that they leave."""
