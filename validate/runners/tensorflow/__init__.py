"""Runs Keras models, SavedModels and TFLite files."""
