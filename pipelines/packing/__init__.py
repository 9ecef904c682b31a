"""One file of a run folder for another machine: written by `pack`, restored by `unpack`."""
