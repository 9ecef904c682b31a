"""The kind and number of workers that a command starts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from paritygate import __version__
from paritygate.machine import available_processors
from paritygate.pipelines.scale.workers import Workers


class Engine(Struct, frozen=True, kw_only=True):
    """The kind and number of workers."""

    kind: str  # processes or ray
    workers: int
    address: str | None = None  # of a Ray cluster that runs

    @contextlib.contextmanager
    def started(self, paths: Sequence[Path], say: Callable[[str], None]) -> Iterator[Workers]:
        """Yield the place of the workers, each of which needs the `paths`; raises as `ray_workers`.

        `say` gets what they need before anything starts.
        """
        if self.kind == "processes":
            processors = max(1, available_processors() // self.workers)
            yield Workers(place=f"{self.workers} at a time on this machine", processors=processors)
            return
        from paritygate.pipelines.scale.ray_cluster import ray_workers

        if self.address is not None:
            files = "".join(f", {path.absolute()}" for path in paths)
            say(f"each machine of the cluster needs: paritygate {__version__} with the same packages{files}")
        with ray_workers(self.workers, self.address, paths) as workers:
            yield workers
