"""The table of rules, which the command line, Python, the spec, evidence and printed commands read."""
