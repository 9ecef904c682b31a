"""Switch off the telemetry of libraries: nothing that runs here goes to a network."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

_OF_ONNXRUNTIME = "ORT_DISABLE_TELEMETRY"


def send_nothing() -> None:
    """Switch the telemetry of ONNX Runtime and OpenVINO off in this process and its children.

    ONNX Runtime since 1.31 ignores `disable_telemetry_events`. OpenVINO and NNCF send during import, unless their
    telemetry package is missing.
    """
    os.environ[_OF_ONNXRUNTIME] = "1"
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # the way to say that there is none


@contextlib.contextmanager
def sending_nothing() -> Iterator[None]:
    """Switch it off as `send_nothing`, and leave the environment variables of the user's process as they were."""
    before = os.environ.get(_OF_ONNXRUNTIME)
    send_nothing()
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_OF_ONNXRUNTIME, None)
        else:
            os.environ[_OF_ONNXRUNTIME] = before
