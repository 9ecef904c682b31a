"""The same batches in a fresh process, whose first calls they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.errors import BackendError

if TYPE_CHECKING:
    from paritygate.validate.probes.sessions.session import SessionPlan, SessionProbe

__all__ = ["ask"]


def ask(session: SessionProbe, plan: SessionPlan) -> str:
    """Have another process load the candidate and answer."""
    if plan.why_not_afresh:
        return plan.why_not_afresh
    if not session.asked:
        return "no batch was answered that could be asked again"
    try:
        answers = plan.answer_afresh(session.asked)
    except BackendError as err:
        # It answered here: that another process does not is what this looks for.
        session.fail_all(str(err))
        return ""
    for asked, answer in zip(session.asked, answers, strict=True):
        session.judge(asked, answer)
    return ""
