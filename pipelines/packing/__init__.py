"""One file of a run folder, for another machine: made by `pack`, restored by `unpack`."""
