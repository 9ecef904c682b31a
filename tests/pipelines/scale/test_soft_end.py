"""A process that does not tidy up in time is killed, and no other one."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.processes import wait_until

from paritygate.pipelines.scale import workers
from paritygate.pipelines.scale.workers import SoftEnd

if TYPE_CHECKING:
    import pytest

_DEAF = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); sys.stdin.read()"


def test_a_process_that_ignores_sigterm_is_killed_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    end = SoftEnd()
    command = [sys.executable, "-c", _DEAF]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        end(process)
        end(process)
        assert process.poll() is None
        monkeypatch.setattr(workers, "PATIENCE_S", -1.0)
        end(process)
        wait_until(lambda: process.poll() is not None)
        end(process)
    assert process.returncode == -signal.SIGKILL
