"""Tell the user how to start Triton on a view, and what the server will find there."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paritygate.pipelines.serving.server_kind import Guide
from paritygate.pipelines.serving.triton.settings import TunedSettings, TunedUse
from paritygate.roots import Root
from paritygate.text import counted, from_here

_POLLS = "a server that polls reads it by itself; with explicit control: "
_LOADS = "the server loads it after: "


def triton_guide(config: Mapping[str, Any], notes: Sequence[str], tuned: TunedSettings, root: Root) -> Guide:
    """Return how a user starts the server on the folder of all views, and compares its outputs."""
    name, backend = config["name"], config["backend"]
    # If the file names no tensors, the server's names have their positions.
    tensors = [entry["name"] for side in ("input", "output") for entry in config[side]]
    pairs = [f"{name}={name.rpartition('__')[0]}" for name in tensors if backend == "pytorch"]
    return Guide(
        backend=f"Triton's backend {backend}",
        messages=(*_messages(config), *(f"note: {note}" for note in notes)),
        start=f"tritonserver --model-repository={shlex.quote(_as_triton_has_it(root))} {_mode(root, name)}",
        reload=(f"{_POLLS if isinstance(root, Path) else _LOADS}POST /v2/repository/models/{name}/load",),
        carried_over="" if tuned.use is TunedUse.MEASURED else tuned.note,
        address=f"grpc://127.0.0.1:8001/{name}",
        renaming=[word for pair in pairs for word in ("--map", pair)],
    )


def _mode(root: Root, name: str) -> str:
    # Without polling or a request, a server keeps what it read at its start. In an object store, a server that polls
    # would take half a version.
    if isinstance(root, Path):
        return "--model-control-mode=poll"
    return f"--model-control-mode=explicit --load-model={shlex.quote(name)}"


def _as_triton_has_it(root: Root) -> str:
    """Return the place of all views as Triton's option names it."""
    if isinstance(root, Path):
        return from_here(root)
    scheme, _, rest = root.partition("://")
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT")
    if scheme == "s3" and endpoint:
        return f"s3://{endpoint.rstrip('/')}/{rest}"
    if scheme == "az":
        return f"as://{os.environ.get('AZURE_STORAGE_ACCOUNT_NAME', 'ACCOUNT')}.blob.core.windows.net/{rest}"
    return root


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
