"""Workers on Ray: a cluster on this machine for one command, or one that runs already."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paritygate import __version__
from paritygate.backends import require_backend
from paritygate.errors import BackendError, LostWorkerError, MissingBackendError, UsageError
from paritygate.machine import available_processors, machine_facts
from paritygate.pipelines.scale.workers import Worker, Workers
from paritygate.text import first_line

# No statistics of use are sent, and no folder is uploaded where `uv run` started the command.
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
# Without a cluster of several machines, as on a desktop, Ray listens on 127.0.0.1 alone.
_ENVIRONMENT_HERE = {**_ENVIRONMENT, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_HERE = {"address": "local", "include_dashboard": False}
_CONNECT_S = 10.0
_ANSWER_S = 120.0


@contextlib.contextmanager
def ray_workers(workers: int, address: str | None, paths: Sequence[Path]) -> Iterator[RayWorkers]:
    """Yield the place of workers on the cluster at an address, or of one on this machine, and disconnect or end it.

    Raises:
        MissingBackendError: Ray is not installed, or paritygate on a machine of the cluster.
        BackendError: There is no such cluster, or a machine has other versions, or lacks one of the `paths`.
    """
    require_backend("ray")
    os.environ.update(_ENVIRONMENT if address else _ENVIRONMENT_HERE)
    import ray

    processors = max(workers, available_processors() // workers * workers)
    if address is not None:
        _check_address(address)
    options = {"address": address} if address else {**_HERE, "num_cpus": processors}
    # Ray replaces it.
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except (OSError, RuntimeError, ValueError) as err:
        msg = f"Ray {f'at {address}' if address else 'on this machine'} cannot be used: {first_line(err)}"
        raise BackendError(msg, hint="check it with ray status; for a token, export RAY_AUTH_MODE=token") from err
    signal.signal(signal.SIGTERM, terminate)
    try:
        machines = {
            node["NodeID"]: node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        }
        if not machines:
            msg = f"the cluster at {address} has no processors"
            raise BackendError(msg, hint="add a machine", command=f"ray start --address {address}")
        _check_machines({key: node["NodeManagerAddress"] for key, node in machines.items()}, paths)
        cores = [int(node["Resources"]["CPU"]) for node in machines.values()]
        processors = max(1, min(sum(cores) // workers, *cores))
        yield RayWorkers(place=f"{workers} at a time by Ray, machines: {len(machines)}", processors=processors)
    finally:
        ray.shutdown()


class RayWorkers(Workers, frozen=True):
    """Workers that are actors of Ray, which starts and distributes their processes."""

    def start(self, kind: Callable[..., Worker], *args: Any) -> Worker:  # noqa: ANN401 - as `kind` takes them
        """Return a worker in a process of Ray."""
        import ray

        # `stop` comes during a call. Ray's own repetitions would not end with Ctrl-C.
        once = {"max_restarts": 0, "max_task_retries": 0}
        actor = ray.remote(num_cpus=self.processors, max_concurrency=2, scheduling_strategy="SPREAD", **once)(kind)
        return _RayWorker(actor.remote(*args))


class _RayWorker:
    """A worker in a process of Ray."""

    def __init__(self, actor: Any) -> None:  # noqa: ANN401 - Ray's handle of any class
        self._actor = actor

    def call(self, *args: Any) -> Any:  # noqa: ANN401 - of any worker
        """Return the result of a call there; raise LostWorkerError if that process, or its machine, is lost."""
        import ray

        try:
            return ray.get(self._actor.call.remote(*args))
        except ray.exceptions.RayTaskError as err:
            raise err.cause from None
        except ray.exceptions.RayError as err:
            msg = f"a worker of Ray was lost: {first_line(err)}"
            raise LostWorkerError(msg, hint="read the logs of Ray on that machine") from err

    def stop(self) -> None:
        """End the call there."""
        self._actor.stop.remote()

    def close(self) -> None:
        """End the process, after all that it started."""
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._actor.close.remote(), timeout=_CONNECT_S)
        ray.kill(self._actor)


def _check_address(address: str) -> None:
    """Raise an error unless something listens there; Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit()):
        msg = f"--ray-address {address!r} is not of the form HOST:PORT"
        raise UsageError(msg, hint="write for example --ray-address 127.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as err:
        msg = f"no Ray cluster answers at {address}: {first_line(err)}"
        raise BackendError(msg, hint="start it", command=f"ray start --head --port {port}") from err


def _check_machines(names: Mapping[str, str], paths: Sequence[Path]) -> None:
    """Compare versions with those of each machine of the cluster, by id, and look for the paths there."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # Ray sends an inner function as code, so it runs without the package.
    def facts(paths: Sequence[str]) -> dict[str, Any]:
        import os

        try:
            from paritygate import __version__
            from paritygate.machine import machine_facts
        except ImportError as err:
            return {"problem": str(err)}
        lacks = [path for path in paths if not os.path.exists(path)]  # noqa: PTH110 - a path of another machine
        return {"versions": {"paritygate": __version__, **machine_facts()["versions"]}, "lacks": lacks}

    task = ray.remote(num_cpus=0)(facts)
    texts = [str(path.absolute()) for path in paths]
    asked = {
        name: task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False)).remote(texts)
        for key, name in names.items()
    }
    here = {"paritygate": __version__, **machine_facts()["versions"]}
    for name, running in asked.items():
        try:
            there = ray.get(running, timeout=_ANSWER_S)
        except ray.exceptions.RayError as err:
            msg = f"the machine {name} of the cluster does not answer: {first_line(err)}"
            raise BackendError(msg, hint="look at the cluster", command="ray status") from err
        if "problem" in there:
            msg = f"the machine {name} of the cluster has no paritygate {__version__}: {there['problem']}"
            raise MissingBackendError(
                msg, hint="install it for Ray's Python there", command=f"pip install 'paritygate[ray]=={__version__}'"
            )
        differ = [
            f"{key} {there['versions'][key]} (here {version})"
            for key, version in here.items()
            if there["versions"].get(key, version) != version
        ]
        if differ:
            msg = f"the machine {name} of the cluster has {', '.join(differ)}"
            raise BackendError(msg, hint="install the same versions on all machines")
        if there["lacks"]:
            msg = f"the machine {name} of the cluster does not have {', '.join(there['lacks'])}"
            raise BackendError(msg, hint="put the files on all machines, or into a shared folder, at the same paths")
