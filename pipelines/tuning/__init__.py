"""Searches the settings of a model server under a limit on latency, on a server that runs; every answer is checked."""
