"""Give the inner tensors of a model in order, in one module for each runtime."""
