"""Run the same batches repeatedly in one session, in other orders."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paritygate.validate.probes.sessions.session import SessionPlan, SessionProbe

_ROUNDS = 3
# This many rows miss a fault in 1.5 % of all rows once in 400 times (0.985 ** 400 = 0.0024).
_ROWS = 400


def ask(session: SessionProbe, plan: SessionPlan) -> str:
    """Run every batch at least three more times, each time in another order."""
    order = list(range(len(session.asked)))
    random = plan.random()
    rows = sum(batch.stored.record.rows for batch in session.asked)
    # A slow model gets half of the rows that may run again.
    wanted = _ROWS if plan.most_rows is None else min(_ROWS, plan.most_rows // 2)
    for number in range(max(_ROUNDS, math.ceil(wanted / max(rows, 1)))):
        # Backwards first, so that batches after a large one come before it.
        order = order[::-1] if number == 0 else [int(at) for at in random.permutation(order)]
        for at in order:
            batch = session.asked[at]
            session.judge(batch, session.answer(batch, session.candidate), when="after other calls in one process")
    return ""
