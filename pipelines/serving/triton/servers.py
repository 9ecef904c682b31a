"""List the versions of ONNX that releases of Triton read, through the ONNX Runtime that they ship."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from paritygate.errors import UsageError

_RELEASE = re.compile(r"[0-9]{2}\.(0[1-9]|1[0-2])")


class OnnxVersion(Struct, frozen=True, kw_only=True):
    """The version of an ONNX file: of its representation (IR), and of the operators of ONNX's own domain."""

    ir: int
    opset: int


class ServerRelease(Struct, frozen=True, kw_only=True):
    """The ONNX Runtime of a release of Triton, and the newest versions of ONNX that it opens."""

    onnxruntime: str
    reads: OnnxVersion


# Source of the versions: the compatibility page of Triton's documentation. Each was tried with the package of that
# version of ONNX Runtime, on files of every IR from 8 to 14 and every opset from 17 to 28.
SERVERS: Mapping[str, ServerRelease] = {
    release: ServerRelease(onnxruntime=version, reads=OnnxVersion(ir=ir, opset=opset))
    for release, version, ir, opset in (
        ("24.04", "1.17.3", 9, 20),
        ("24.07", "1.18.1", 10, 21),
        ("24.10", "1.19.2", 10, 21),
        ("25.01", "1.20.1", 10, 21),
        ("25.04", "1.21.0", 10, 22),
        ("25.07", "1.22.0", 10, 22),
        ("25.10", "1.23.1", 11, 23),
        ("26.01", "1.23.2", 11, 23),
        ("26.04", "1.24.4", 13, 25),
        ("26.07", "1.27.0", 13, 26),
    )
}


def server_of(release: str) -> ServerRelease:
    """Return the contents of a release of Triton, or of the next older known one.

    Raises:
        UsageError: It is not a release, or older than all known ones.
    """
    older = [name for name in SERVERS if name <= release]
    if not _RELEASE.fullmatch(release) or not older:
        msg = f"{release!r} is not a known release of Triton (allowed: {min(SERVERS)} and later, as YY.MM)"
        raise UsageError(msg, hint="write for example --server 25.10, as the container's tag begins")
    return SERVERS[max(older)]
