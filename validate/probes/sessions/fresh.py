"""The same batches in a fresh process, whose first calls they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paritygate.validate.probes.sessions.session import SessionPlan, SessionProbe

__all__ = ["ask"]


def ask(session: SessionProbe, plan: SessionPlan) -> str:
    """Have another process load the candidate and answer."""
    if plan.why_not_afresh:
        return plan.why_not_afresh
    if not session.asked:
        return "no batch was answered that could be asked again"
    session.adopt(plan.answer_afresh(session.asked))
    return ""
