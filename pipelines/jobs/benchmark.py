"""The job of a benchmark's worker, run in a child process: one model, loaded once, that is called on demand.

The worker sends one line of JSON when the model is loaded, then one for each line that it gets, until the pipe is
closed. It replies once its threads are idle, and waits for the next line without using a core, so that other workers
have the machine to themselves. Measured between turns, from /proc/PID/task/*/schedstat: workers of ONNX Runtime (its
runner stops its spinning), OpenVINO, PyTorch, TensorFlow, Keras and LiteRT used less than 0.01 % of a core.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import resource
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from paritygate.backends import backend_state
from paritygate.batch import Arrays
from paritygate.codec import from_data
from paritygate.errors import ParitygateError
from paritygate.models.recorded_source import check_is_recorded
from paritygate.models.source import ModelRef, SourceKind
from paritygate.models.tensorflow.importing import import_keras, import_tensorflow
from paritygate.pipelines.benchmark.calls import Instance, Turn, open_to_time, settle, time_calls, warm_up
from paritygate.pipelines.benchmark.inputs import RowPool, calls_of, take_rows
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.process.child_main import serve
from paritygate.validate.runners.onnxruntime_providers import prepare_process, say_provider
from paritygate.validate.samples.samples import SampleSource, open_samples

if TYPE_CHECKING:
    from paritygate.models.loading import LoadedModel

_STATUS = Path("/proc/self/status")
# Resets the peak to the current resident size; see proc_pid_clear_refs(5).
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_KIB = 1024
# Imported before the clock runs, if available: backend and modules by kind.
_MODULES: Mapping[SourceKind, tuple[str, tuple[str, ...]]] = {
    SourceKind.ONNX: ("onnxruntime", ("onnx", "onnxruntime")),
    SourceKind.TORCH: ("torch", ("torch",)),
    SourceKind.TORCHSCRIPT: ("torch", ("torch",)),
    SourceKind.PT2: ("torch", ("torch",)),
    SourceKind.OPENVINO: ("openvino", ("openvino",)),
    SourceKind.TFLITE: ("litert", ("ai_edge_litert.interpreter",)),
}


class _Worker(Struct, kw_only=True):
    """The loaded instances, and the calls of each batch size.

    Checking that the source is the recorded one does not count as loading. `check_s` is its time, and
    `peak_memory_bytes` the peak before it.
    """

    model: ModelRef
    device: str
    pool: RowPool
    recorded: Mapping[str, Any] | None = None
    check_s: float = 0.0
    peak_memory_bytes: int = 0
    notes: tuple[str, ...] = ()
    instances: list[Instance] = field(default_factory=list)
    calls: dict[int, list[Arrays]] = field(default_factory=dict)

    def grow(self, concurrency: int) -> list[Instance]:
        """Return this many instances, loading those that are missing."""
        while len(self.instances) < concurrency:
            runner, self.notes = open_to_time(self.model, self.device, self._check)
            self.instances.append(Instance(runner, self.pool.fitted(runner.signature)))
        return self.instances[:concurrency]

    def _check(self, loaded: LoadedModel) -> None:
        if self.recorded is None:
            return
        begin = time.perf_counter()
        self.peak_memory_bytes = _peak_memory_bytes(self)
        check_is_recorded(loaded, self.recorded)
        # The digest copies parameters.
        _forget_peak()
        self.check_s += time.perf_counter() - begin

    def calls_at(self, batch_size: int) -> list[Arrays]:
        if batch_size not in self.calls:
            self.calls[batch_size] = calls_of(self.instances[0].inputs, batch_size)
        return self.calls[batch_size]


def run(args: Mapping[str, Any], report: Progress) -> None:
    """Load the model, report that, and reply until the pipe is closed."""
    report("reading the samples", 0, 0)
    model = from_data(ModelRef, args["model"])
    prepare_process(model.provider)
    pool = take_rows(open_samples(from_data(SampleSource, args["samples"])), at_least=max(args["batch_sizes"]))
    _import_framework(SourceKind(args["kind"]))
    # Reading all samples may have taken more than the model will.
    _forget_peak()
    report("loading the model", 0, 0)
    worker = _Worker(model=model, device=args["device"], pool=pool, recorded=args["recorded"])
    begin = time.perf_counter()
    worker.grow(1)
    load_s = time.perf_counter() - begin - worker.check_s
    facts = worker.instances[0].runner.facts
    loaded = {
        "runtime": facts.runtime,
        "version": facts.version,
        "device": facts.device,
        "load_s": load_s,
        "first_call_ms": _first_call_ms(worker, args["batch_sizes"]),
        "samples_digest": pool.digest,
        "notes": (*worker.notes, *say_provider(facts.provider), *facts.provider_warnings),
        "peak_memory_bytes": _peak_memory_bytes(worker),
    }
    serve(args, report, functools.partial(_answer, worker), first=loaded)


def _import_framework(kind: SourceKind) -> None:
    if kind is SourceKind.KERAS:
        import_keras()
    elif kind is SourceKind.SAVEDMODEL:
        import_tensorflow()
    elif (framework := _MODULES.get(kind)) is not None and backend_state(framework[0]).is_available:
        # The runner reports a missing one, and knows what needs it.
        for name in framework[1]:
            importlib.import_module(name)


def _first_call_ms(worker: _Worker, batch_sizes: Sequence[int]) -> float | None:
    """Return the milliseconds of the first successful call; None if the model refuses every batch size."""
    runner = worker.instances[0].runner
    for size in batch_sizes:
        inputs = worker.calls_at(size)[0]
        begin = time.perf_counter()
        try:
            runner.run(inputs)
        except ParitygateError:
            # Reported in full when calls of this size are timed.
            continue
        return (time.perf_counter() - begin) * 1e3
    return None


def _answer(worker: _Worker, asked: Mapping[str, Any]) -> dict[str, Any]:
    try:
        figures = _warm_up(worker, asked) if asked["do"] == "warm up" else _take_turn(worker, asked)
    except ParitygateError as err:
        return {"error": str(err), **err.next_step}
    except Exception as err:  # noqa: BLE001 - what one call raised says nothing of the next
        traceback.print_exc()
        text = str(err).strip().splitlines()
        return {"error": f"{type(err).__name__}: {text[0] if text else ''}", "hint": ""}
    settle()
    return {**figures, "peak_memory_bytes": _peak_memory_bytes(worker)}


def _warm_up(worker: _Worker, asked: Mapping[str, Any]) -> dict[str, Any]:
    calls = worker.calls_at(asked["batch_size"])
    latency_s = warm_up(worker.grow(asked["concurrency"]), calls, seconds=asked["seconds"])
    return {"latency_s": latency_s, "calls": len(calls)}


def _take_turn(worker: _Worker, asked: Mapping[str, Any]) -> dict[str, Any]:
    turn = Turn(
        calls=worker.calls_at(asked["batch_size"]), start=asked["start"], cycle=asked["cycle"], seconds=asked["seconds"]
    )
    times = time_calls(worker.grow(asked["concurrency"]), turn)
    return {"latencies_ns": times.latencies_ns, "wall_s": times.wall_s, "cpu_s": times.cpu_s}


def _forget_peak() -> None:
    """Reset the largest resident size where the system can: on Linux."""
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text(_RESET_PEAK, encoding="utf-8")


def _peak_memory_bytes(worker: _Worker) -> int:
    """Return the largest resident size of this process since it began to load the model, without checking the source.

    On Linux the program's own peak is read, because that of getrusage starts with the size of the parent process.
    """
    if _STATUS.is_file():
        match = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(encoding="utf-8"), re.MULTILINE)
        if match:
            return max(worker.peak_memory_bytes, int(match[1]) * _KIB)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB
