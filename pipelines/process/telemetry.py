"""Switch off the telemetry of libraries: nothing that runs here goes to a network."""

from __future__ import annotations

import os
import sys


def send_nothing() -> None:
    """Switch the telemetry of ONNX Runtime and OpenVINO off in this process and its children.

    ONNX Runtime since 1.31 ignores `disable_telemetry_events`. OpenVINO and NNCF send during import, unless their
    telemetry package is missing.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # the way to say that there is none
