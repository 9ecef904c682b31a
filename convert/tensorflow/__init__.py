"""Converts Keras models and SavedModels."""
