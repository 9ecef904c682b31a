"""Run the same batches from several threads at once, where the runner allows it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paritygate.validate.probes.sessions.session import SessionPlan, SessionProbe

_THREADS = 4
_ROUNDS = 2


def ask(session: SessionProbe, plan: SessionPlan) -> str:
    """Run every batch twice, four at a time, and compare with the outputs of sequential calls."""
    if plan.why_not_at_once:
        return plan.why_not_at_once
    random = plan.random()
    count = len(session.asked)
    order = [int(at) for _ in range(_ROUNDS) for at in random.permutation(count)]
    # Four concurrent calls need four batches, so few batches repeat.
    order = (order * -(-_THREADS // len(order)))[: max(len(order), _THREADS)]
    # Run in parts, so that few outputs wait to be judged.
    for start in range(0, len(order), 2 * _THREADS):
        part = order[start : start + 2 * _THREADS]
        with ThreadPoolExecutor(_THREADS) as pool:
            asked_of = {pool.submit(session.answer, session.asked[at], session.candidate): at for at in part}
            for future in as_completed(asked_of):
                session.judge(session.asked[asked_of[future]], future.result())
    return ""
