"""Commands to begin with: a first spec, what a model is, what is installed, and the schemas."""
