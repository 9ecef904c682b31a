"""Reads Keras files, SavedModels and TFLite files."""
