"""The cache is tested where the kernel tells what a process reads; elsewhere there is none, and the reason is said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from paritygate.pipelines.process.witness.listener import Listener

_ASK = """
import sys
from paritygate.pipelines.process.witness.asking import ask_to_be_watched
ask_to_be_watched(int(sys.argv[1]))
"""


@pytest.fixture(scope="session", autouse=True)
def _kernel_tells() -> None:
    """Skip where a child of ours cannot be watched."""
    listener = Listener([])
    number = listener.childs_end.fileno()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", _ASK, str(number)], pass_fds=[number], env=environment):
        listener.start()
    reason = listener.close().why_unknown
    if reason:
        pytest.skip(reason)
