"""The same batches again and again in one session, in other orders."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paritygate.validate.probes.sessions.session import SessionPlan, SessionProbe

_ROUNDS = 3
# So many answers hold, but for one time in four hundred, one of those that are wrong in 1.5 % of all rows.
_ROWS = 400


def ask(session: SessionProbe, plan: SessionPlan) -> str:
    """Ask every batch at least three times more, each time in another order."""
    order = list(range(len(session.asked)))
    random = plan.random()
    rows = sum(asked.stored.record.rows for asked in session.asked)
    # Of a model that is slow, half of all that may be asked again.
    wanted = _ROWS if plan.most_rows is None else min(_ROWS, plan.most_rows // 2)
    for number in range(max(_ROUNDS, math.ceil(wanted / max(rows, 1)))):
        # Backwards first: what followed a large batch then comes before it.
        order = order[::-1] if number == 0 else [int(at) for at in random.permutation(order)]
        for at in order:
            asked = session.asked[at]
            session.judge(asked, session.answer(asked, session.candidate), when="after other calls in one process")
    return ""
