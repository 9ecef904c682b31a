"""Libraries that report of their use to their makers are kept from it: nothing that runs here goes to a network."""

from __future__ import annotations

import os
import sys


def send_nothing() -> None:
    """Switch the telemetry of ONNX Runtime and OpenVINO off in this process, and in those that it starts.

    ONNX Runtime since 1.31 sends by itself, whatever `disable_telemetry_events` is told; OpenVINO and NNCF do while
    they are imported, unless the package that they send with is not there.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # the way to say that there is none
