"""Convert Keras models and SavedModels."""
