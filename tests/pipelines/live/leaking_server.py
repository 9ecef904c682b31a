"""A model server as a process of its own: `MODEL LEAK DRIFT`, MiB a minute and the request that answers drift from.

It prints its port. What it leaks follows the clock, whatever the load.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime

_MODEL, _LEAK, _DRIFT = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
_SESSION = onnxruntime.InferenceSession(_MODEL)
_LOCK = threading.Lock()
_PAGES = {
    "/v2": {"name": "leaks", "version": "1", "extensions": []},
    "/v2/models/tiny": {
        "name": "tiny",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 3]}],
    },
}
_leaked: list[bytearray] = []
_state = {"asked": 0, "begin": time.monotonic()}


def _leak() -> None:
    wanted = int(_LEAK * (1 << 20) * (time.monotonic() - _state["begin"]) / 60)
    missing = wanted - sum(map(len, _leaked))
    if missing > 1 << 16:
        # Zeros alone are not resident.
        _leaked.append(bytearray(b"x" * missing))


class Handler(BaseHTTPRequestHandler):
    """Answers the Open Inference Protocol in JSON."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _send(self, said: object) -> None:
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Describe the server."""
        self._send(_PAGES[self.path])

    def do_POST(self) -> None:
        """Answer one request."""
        tensor = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"][0]
        with _LOCK:
            _state["asked"] += 1
            _leak()
            shift = 3e-5 if _DRIFT and _state["asked"] > _DRIFT else 0.0
        x = np.asarray(tensor["data"], dtype=np.float32).reshape(tensor["shape"])
        y = _SESSION.run(None, {"x": x})[0] + np.float32(shift)
        output = {"name": "logits", "datatype": "FP32", "shape": list(y.shape), "data": y.ravel().tolist()}
        self._send({"outputs": [output]})


class Server(ThreadingHTTPServer):
    """Takes many clients that connect at once."""

    daemon_threads = True
    request_queue_size = 1024


server = Server(("127.0.0.1", 0), Handler)
sys.stdout.write(f"{server.server_address[1]}\n")
sys.stdout.flush()
server.serve_forever()
