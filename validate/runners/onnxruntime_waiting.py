"""Sets how many threads ONNX Runtime uses, and how they wait: busily, or without using a core."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from paritygate.machine import threads_allowed

if TYPE_CHECKING:
    import onnxruntime

# The variable of OpenMP, which other runtimes use, so that one setting applies to all.
_POLICY = "OMP_WAIT_POLICY"
_PASSIVE = "passive"


def set_waiting(options: onnxruntime.SessionOptions) -> None:
    """Let the threads of a session wait without using a core between calls, and within calls on request.

    Two models often run in turn, so threads that wait busily slow the other model down. Within a call, busy waiting is
    the default: faster on an idle machine, slower next to other work. Outputs are the same.
    """
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # The number that a caller has set is one thread.
    options.intra_op_num_threads = options.intra_op_num_threads or threads_allowed() or 0
    if os.environ.get(_POLICY, "").lower() == _PASSIVE:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
