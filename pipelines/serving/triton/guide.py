"""Tell the user how to start Triton on a view, and what the server will find there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paritygate.pipelines.serving.server_kind import Guide
from paritygate.pipelines.serving.triton.settings import TunedSettings, TunedUse
from paritygate.text import counted, from_here


def triton_guide(config: Mapping[str, Any], notes: Sequence[str], tuned: TunedSettings, root: Path) -> Guide:
    """Return how a user starts the server on the folder of all views, and compares its outputs."""
    name, backend = config["name"], config["backend"]
    # If the file names no tensors, the server's names have their positions.
    tensors = [entry["name"] for side in ("input", "output") for entry in config[side]]
    pairs = [f"{name}={name.rpartition('__')[0]}" for name in tensors if backend == "pytorch"]
    return Guide(
        backend=f"Triton's backend {backend}",
        messages=(*_messages(config), *(f"note: {note}" for note in notes)),
        # Without polling or a request, a server keeps what it read at its start.
        start=f"tritonserver --model-repository={shlex.quote(from_here(root))} --model-control-mode=poll",
        reload=(
            f"a server that polls reads it by itself; with explicit control: POST /v2/repository/models/{name}/load",
        ),
        carried_over="" if tuned.use is TunedUse.MEASURED else tuned.note,
        address=f"grpc://127.0.0.1:8001/{name}",
        renaming=[word for pair in pairs for word in ("--map", pair)],
    )


def _messages(config: Mapping[str, Any]) -> Iterator[str]:
    for side in ("input", "output"):
        yield f"{side}s: {', '.join(map(_tensor, config[side]))}"
    rows, batching = int(config["max_batch_size"]), config.get("dynamic_batching")
    if batching is not None:
        sizes = " and ".join(map(str, batching.get("preferred_batch_size", ())))
        preferred = f", {sizes} preferred" if sizes else ""
        delay = batching.get("max_queue_delay_microseconds", 0)
        yield f"batching: up to {rows} rows a call{preferred}, a request waits {delay} us for others"
    elif rows > 0:
        yield f"batching: up to {rows} rows a call, as a request brings them"
    requests = len(config.get("model_warmup", ()))
    yield f"warm-up: {counted(requests, 'request') if requests else 'none: --samples gives it real inputs'}"


def _tensor(entry: Mapping[str, Any]) -> str:
    dims = ", ".join(str(dim) for dim in entry["dims"])
    return f"{entry['name']} {entry['data_type'].removeprefix('TYPE_')}[{dims}]"
