"""Read every kind of model: its files, its signature, its weights and how it is called."""
