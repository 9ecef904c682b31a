"""Search the settings of a running model server under a limit on latency, and check every output."""
