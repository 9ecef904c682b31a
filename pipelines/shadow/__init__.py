"""Judges captured traffic of a server by a released file, with a test that may be read after each request."""
