"""Inspect a model before anything is made of it (`inspect`), and write a first spec for it (`init`)."""
