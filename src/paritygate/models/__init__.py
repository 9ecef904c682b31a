"""Reads every kind of model: which files it consists of, its signature, its weights, how it is called."""
