"""Loads a running model server, and compares every answer with the released file's."""
