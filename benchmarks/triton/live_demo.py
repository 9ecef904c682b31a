"""Load a real Triton, judge its live traffic, and find a wrong file: `live_demo.py ENVIRONMENT`.

`make live-demo` calls it. Clients send real inputs through a proxy, which mirrors them to `capture`. `shadow` judges
the answers: first those of the released file, then those of a wrong file in its place. Everything listens on the
loopback, and ends with this process.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import onnx
from demo import MODEL, SAMPLES, call, command_of, publish, released, say
from mirroring_proxy import mirroring, proxy_program
from msgspec.structs import replace
from running import running
from triton_server import TritonServer, free_ports, shadow_of, why_no_server

from paritygate.pipelines.serving.place import Place, digest_of
from paritygate.pipelines.serving.triton.view import TritonView
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource

_OFF_BY = 0.5
_MAX_FLIP_RATE = 0.02
_WAIT_S = 60.0
_RIGHT, _ROLLBACK = 0, 1


def main(place: Path) -> int:
    """Do all of it, and return 0 if the right file is promoted, and the wrong one is not.

    Raises:
        SystemExit: A program is missing, or a step failed.
    """
    proxy = proxy_program(place)
    why = why_no_server(place) or ("" if proxy else f"there is no proxy in {place.name}/: make live-demo downloads it")
    if why or proxy is None:
        sys.exit(why)
    # Without it, this signal would leave the servers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    repository = released()
    with tempfile.TemporaryDirectory(prefix="paritygate-live-") as folder:
        work = Path(folder)
        view = publish(repository, work).view
        mode = ["--model-control-mode=explicit", f"--load-model={MODEL}"]
        with TritonServer(place, work / "shadow", work, mode=mode) as server:
            server.wait_until_ready(MODEL)
            say(f"\nTriton {server.get('/v2')['version']} is ready at http://{server.http}.")
            loaded = call(
                *("load", f"http://{server.http}/v2/models/{MODEL}", "--against", f"{MODEL}@prod"),
                *("--repository", str(repository), "--samples", SAMPLES, "--users", "1,4", "--rate", "20", "--stress"),
                *("--stress-seconds", "5", "--server-metrics", f"http://{server.metrics}/metrics"),
            )
            right = _judged(proxy, server, repository, work / "right")
            say(f"\nNow a wrong file takes its place: its last bias is {_OFF_BY} too large.")
            _serve_wrong(view, server, work)
            wrong = _judged(proxy, server, repository, work / "wrong")
    found = (loaded, right, wrong)
    if found != (_RIGHT, _RIGHT, _ROLLBACK):
        say(f"\nload, shadow and shadow ended with {found}, expected {(_RIGHT, _RIGHT, _ROLLBACK)}")
        return 1
    say("\nThe released file passed, and the wrong file is to be rolled back.")
    return 0


def _judged(proxy: str, server: TritonServer, repository: Path, folder: Path) -> int:
    """Send traffic through the proxy, and return the exit code of `shadow` on what was captured."""
    folder.mkdir()
    bodies = list(_requests())
    (sink,), traffic = free_ports(1), str(folder / "traffic.jsonl")
    capture = command_of(
        *("capture", "--listen", str(sink), "--send-to", f"http://{server.http}", "--out", traffic),
        *("--requests", str(len(bodies)), "--seconds", str(_WAIT_S)),
    )
    with (
        running(capture) as capturing,
        _answering(f"127.0.0.1:{sink}"),
        mirroring(proxy, folder, f"http://{server.http}", sink) as port,
        # It stays open: this proxy drops the copy of a request whose client closes its connection.
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_WAIT_S)) as client,
    ):
        answered = 0
        for body in bodies:
            client.request("POST", f"/v2/models/{MODEL}/infer", body)
            answer = client.getresponse()
            answer.read()
            answered += answer.status == http.HTTPStatus.OK
        if capturing.wait(2 * _WAIT_S):
            sys.exit("the traffic was not captured")
    say(f"The proxy answered {answered} of {len(bodies)} requests.")
    return call(
        *("shadow", MODEL, "--captured", traffic, "--repository", str(repository)),
        *("--max-flip-rate", str(_MAX_FLIP_RATE)),
    )


def _requests() -> Iterator[str]:
    """Yield a request of one row for each row of the samples."""
    for batch in open_samples(SampleSource(text=SAMPLES, folder=Path.cwd()))():
        for row in range(batch.rows):
            tensors = [
                {"name": name, "datatype": "INT64", "shape": [1, *array.shape[1:]], "data": array[row].tolist()}
                for name, array in batch.inputs.items()
            ]
            yield json.dumps({"inputs": tensors})


@contextlib.contextmanager
def _answering(address: str) -> Iterator[None]:
    """Wait until something answers at an address."""
    end = time.monotonic() + _WAIT_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection(address)) as connection:
            connection.connect()
            break
        time.sleep(0.1)
    yield


def _serve_wrong(view: TritonView, server: TritonServer, work: Path) -> None:
    """Put a file with another last bias in the place of the released one, and load it.

    Raises:
        SystemExit: The server does not load it.
    """
    path = work / "wrong.onnx"
    model = onnx.load(view.files["model.onnx"])
    bias = [item for item in model.graph.initializer if item.name.endswith(".bias")][-1]
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + _OFF_BY, bias.name))
    onnx.save(model, path)
    # Whoever replaces the file of a version by hand replaces its digest, too.
    files, digests = {**view.files, "model.onnx": path}, {**view.digests, "model.onnx": digest_of(path)}
    shadow = Place(work / "shadow")
    shadow.remove_folder(view.name)
    shadow_of(replace(view, files=files, digests=digests), None).write(shadow)
    if server.post(f"/v2/repository/models/{MODEL}/load", {}) is None:
        sys.exit(f"the server does not load the wrong file:\n{server.last_words()}")
    server.wait_until_ready(MODEL)


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except KeyboardInterrupt:
        sys.exit(130)
