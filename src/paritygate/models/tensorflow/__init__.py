"""Read Keras files, SavedModels and TFLite files."""
