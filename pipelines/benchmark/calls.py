"""Time calls of a model in a worker, with one instance or several side by side.

With a concurrency of k, one process loads k instances, each called by its own thread, as model servers do. The threads
share the processor cores, and Python's lock where a runtime holds it.

A call begins with NumPy arrays and ends with outputs that the caller owns. It includes the copies for that, as serving
does, but not the reading of requests from a network.

A Keras reference runs eagerly, because tracing could hide a fault that a converter makes too. It is served as a graph,
as by TensorFlow Serving and `predict`, and on small models Python is most of an eager call. So it is timed as a graph.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from paritygate.batch import Arrays
from paritygate.convert.tensorflow.function import tensor_spec
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef
from paritygate.validate.runners.opening import open_model
from paritygate.validate.runners.runner import Runner
from paritygate.validate.runners.tensorflow import KerasRunner, tensorflow_reason

if TYPE_CHECKING:
    from paritygate.signature import Signature


_T = TypeVar("_T")

_MIN_CALLS = 3
_NS_PER_S = 1_000_000_000
# Share of a turn that runs untimed first, because other variants have used the caches.
_UNTIMED_SHARE = 0.1
_IDLE_CORES = 0.02
_IDLE_WINDOW_S = 0.02
_MAX_SETTLE_S = 1.0
COMPILED = "Keras is called as a compiled graph, as it is served; as the reference it ran eagerly"
EAGER = "Keras is called eagerly, which is slower than it is served, because it could not be compiled as a graph"


class Instance:
    """A loaded model and its own thread, because thread pools belong to their caller."""

    def __init__(self, runner: Runner, inputs: Sequence[Arrays]) -> None:
        self.runner = runner
        self.inputs = inputs
        self.thread = ThreadPoolExecutor(max_workers=1)


class Turn(Struct, frozen=True, kw_only=True):
    """The calls of one turn.

    `cycle` inputs from `start` on run in turn, in whole cycles, so that every variant runs each equally often. The turn
    takes at least `seconds`.
    """

    calls: Sequence[Arrays]
    start: int
    cycle: int
    seconds: float


class TurnTimes(Struct, frozen=True, kw_only=True):
    """The times of a turn.

    `latencies_ns` are of all calls, instance by instance. `wall_s` runs from the first call's begin to the last one's
    end; `cpu_s` is the whole process's time in between, with native threads.
    """

    latencies_ns: list[int]
    wall_s: float
    cpu_s: float


def warm_up(instances: Sequence[Instance], calls: Sequence[Arrays], *, seconds: float) -> float:
    """Run each input once (at least three calls), as far as seconds go; return the median latency in seconds."""

    def work(instance: Instance) -> list[int]:
        latencies: list[int] = []
        end = time.perf_counter() + seconds
        while len(latencies) < _MIN_CALLS or (len(latencies) < len(calls) and time.perf_counter() < end):
            latencies.append(_timed(instance.runner, calls[len(latencies) % len(calls)]))
        return latencies

    return statistics.median(latency for of_instance in _on_all(instances, work) for latency in of_instance) / _NS_PER_S


def time_calls(instances: Sequence[Instance], turn: Turn) -> TurnTimes:
    """Return the times of one turn, without Python's garbage collector."""
    cpu_at_start = [0.0]

    def mark() -> None:
        cpu_at_start[0] = time.process_time()

    barrier = threading.Barrier(len(instances), action=mark)
    number_of = {id(instance): number for number, instance in enumerate(instances)}

    def work(instance: Instance) -> tuple[int, int, list[int]]:
        try:
            # Instances begin at different inputs, or all would run the longest row at once.
            cycle = _cycle(turn, shift=number_of[id(instance)] * turn.cycle // len(instances))
            _call_untimed(instance.runner, cycle, seconds=turn.seconds * _UNTIMED_SHARE)
            barrier.wait()
        except BaseException:
            # The others would wait forever.
            barrier.abort()
            raise
        return _timed_cycles(instance.runner, cycle, seconds=turn.seconds)

    with _no_garbage_collection():
        timed = _on_all(instances, work)
        cpu_s = time.process_time() - cpu_at_start[0]
    begin = min(item[0] for item in timed)
    end = max(item[1] for item in timed)
    latencies = [latency for item in timed for latency in item[2]]
    return TurnTimes(latencies_ns=latencies, wall_s=(end - begin) / _NS_PER_S, cpu_s=cpu_s)


def _cycle(turn: Turn, *, shift: int) -> list[Arrays]:
    return [turn.calls[(turn.start + (number + shift) % turn.cycle) % len(turn.calls)] for number in range(turn.cycle)]


def _call_untimed(runner: Runner, cycle: Sequence[Arrays], *, seconds: float) -> None:
    end = time.perf_counter() + seconds
    for inputs in cycle:
        runner.run(inputs)
        if time.perf_counter() >= end:
            return


def _timed_cycles(runner: Runner, cycle: Sequence[Arrays], *, seconds: float) -> tuple[int, int, list[int]]:
    latencies: list[int] = []
    begin = now = time.perf_counter_ns()
    least = begin + int(seconds * _NS_PER_S)
    while now < least or len(latencies) < _MIN_CALLS:
        latencies += [_timed(runner, inputs) for inputs in cycle]
        now = time.perf_counter_ns()
    return begin, now, latencies


def _timed(runner: Runner, inputs: Arrays) -> int:
    begin = time.perf_counter_ns()
    runner.run(inputs)
    return time.perf_counter_ns() - begin


def _on_all(instances: Sequence[Instance], work: Callable[[Instance], _T]) -> list[_T]:
    futures = [instance.thread.submit(work, instance) for instance in instances]
    errors = [error for future in futures if (error := future.exception()) is not None]
    # The cause is more telling than a broken barrier.
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def settle() -> float:
    """Wait up to one second until this process is idle, since busy thread pools take cores; return the seconds."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < _MAX_SETTLE_S:
        cpu = time.process_time()
        time.sleep(_IDLE_WINDOW_S)
        if time.process_time() - cpu < _IDLE_CORES * _IDLE_WINDOW_S:
            break
    return time.perf_counter() - begin


def open_to_time(
    ref: ModelRef, device: str, check: Callable[[LoadedModel], None] = lambda _: None
) -> tuple[Runner, tuple[str, ...]]:
    """Return a model's runner and notes on how it is called; `check` gets the model before calls and tracing."""
    runner = open_model(ref, device)
    check(runner.loaded)
    if not isinstance(runner, KerasRunner):
        return runner, ()
    try:
        graph = _graph(runner.function, runner.signature)
    except Exception as err:  # noqa: BLE001 - whatever Python does in a call, tracing it may raise
        return runner, (f"{EAGER}: {tensorflow_reason(err)}",)
    return runner.compiled(graph), (COMPILED,)


def _graph(function: Any, signature: Signature) -> Any:  # noqa: ANN401 - a function of TensorFlow, which has no types
    """Return the function traced for all open sizes of the signature."""
    import tensorflow as tf

    specs = [tensor_spec(spec.shape, spec.dtype, spec.name) for spec in signature.inputs]
    return tf.function(lambda *tensors: tuple(function(*tensors))).get_concrete_function(*specs)
