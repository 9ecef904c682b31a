"""One row for each rule of the gate: the command line, Python, the spec and printed commands read it there."""
