"""Session probes: the same real rows in other sessions, compared with the reference and with the first outputs."""
