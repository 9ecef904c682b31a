"""Read the inner tensors of a model, in one module for each framework."""
