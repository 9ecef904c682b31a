"""How threads of ONNX Runtime wait for their next work: busily, or without using a core."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime

# What OpenMP reads, which other runtimes compute with: one variable says it for all of them.
_POLICY = "OMP_WAIT_POLICY"
_PASSIVE = "passive"


def set_waiting(options: onnxruntime.SessionOptions) -> None:
    """Let the threads of a session wait without using a core between calls, and in calls where that is asked for.

    Two models often run in turn: threads that wait busily for the next call of one slow the other down. In a call they
    do so by default, which is faster on an idle machine and slower beside other work. Answers are the same.
    """
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if os.environ.get(_POLICY, "").lower() == _PASSIVE:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
